"""Whom or what each run of a list waits for, in words. As many queries for many runs as for one."""

import uuid
from collections import defaultdict
from collections.abc import Sequence

from django.contrib.auth.models import Group
from django.db.models import OuterRef, QuerySet, StringAgg, Subquery, Value

from agentapp import auth, turns
from agentapp.console.card import claim_of
from agentapp.models import Run
from approvals.models import Approval


def waiting_on(runs: Sequence[Run]) -> list[str]:
    """For each run: its people and the call they decide about, or what else it waits for."""
    asked = _asked([run.pk for run in runs if run.waiting_for == Run.WaitingFor.APPROVAL])
    ahead = turns.ahead(runs)
    return [_words(run, asked.get(run.pk, ""), ahead.get(run.pk)) for run in runs]


def _words(run: Run, asked: str, ahead: Run | None) -> str:
    if run.state == Run.State.QUEUED:
        return f"After {ahead.reference}" if ahead else "A worker"
    if run.waiting_for == Run.WaitingFor.SUBAGENT:
        return "Another agent"
    if run.waiting_for == Run.WaitingFor.OUTCOME:
        return "A person: outcome unknown"
    if run.waiting_for == Run.WaitingFor.BUDGET:
        return "A person: more budget"
    if run.state == Run.State.PAUSED:
        return "Somebody to resume it"
    if run.waiting_for == Run.WaitingFor.SWITCH:
        return "A kill switch"
    if run.waiting_for == Run.WaitingFor.APPROVAL:
        # No request is open: the decision is held for a moment and can still be undone.
        return asked or "Undo time"
    return ""


def _asked(keys: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """For runs with open requests: who decides, and about which tool or how many calls."""
    if not keys:
        return {}
    found = (
        Approval.objects.filter(run_id__in=keys, state__in=Approval.UNDECIDED)
        .annotate(
            asked=_names(Group.objects.filter(approval=OuterRef("pk")), "approval"),
            # If a request names no group, everybody who decides is asked.
            anybody=_names(Group.objects.filter(permissions__codename="decide_approval"), "permissions__codename"),
        )
        .select_related("claim__user", "claim__group")
        .only(
            "run_id",
            "tool",
            "kind",
            "state",
            "claim__until",
            "claim__user__first_name",
            "claim__user__last_name",
            "claim__user__username",
            "claim__group__name",
        )
        .order_by("created_at", "pk")
    )
    by_run: dict[uuid.UUID, list[tuple[str, str]]] = defaultdict(list)
    for row in found:
        claim = claim_of(row)
        claimed = (auth.name_of(claim.user) if claim.user else str(claim.group)) if claim else ""
        people = claimed or _listed(sorted((row.asked or row.anybody or "").split("\n")))
        by_run[row.run_id].append(("The customer" if row.asks_customer else people, row.tool))
    return {key: _said(asked) for key, asked in by_run.items()}


def _names(groups: QuerySet[Group], alike: str) -> Subquery:
    """The names of some groups, one per line. `alike` is a column with the same value for all of them."""
    named = groups.order_by().values(alike).annotate(names=StringAgg("name", Value("\n")))
    return Subquery(named.values("names"))


def _said(asked: Sequence[tuple[str, str]]) -> str:
    people = {who for who, _ in asked}
    who = (people.pop() if len(people) == 1 else "") or "People"
    return f"{who}: {asked[0][1]}" if len(asked) == 1 else f"{who}: {len(asked)} requests"


def _listed(names: Sequence[str]) -> str:
    """The first of many groups: the list's cell has no room for more than two."""
    return " or ".join(names) if len(names) <= 2 else f"{names[0]} and others"
