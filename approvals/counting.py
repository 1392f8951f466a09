"""Which of a request's decisions count towards its thresholds. Reads only."""

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.auth.models import Group, User

from approvals import entitlement
from approvals.digest import load
from approvals.models import Approval, Decision, DecisionType
from approvals.thresholds import Count, Reviewer, Terms


def reviewers(approval: Approval, rights: Iterable[tuple[int, int | None]], risk: str = "") -> dict[int, Reviewer]:
    """These people, as (who decides, whose right it is if lent), with the groups they decide for now.

    By their own right, these are the groups they are in; by a lent right, those lent to them for this request.
    """
    lenders = dict(rights)
    if not lenders:
        return {}
    names: dict[int, str] = {}
    groups: dict[int, dict[int, str]] = {}
    rows = User.objects.filter(pk__in=lenders).values_list("pk", "username", "groups__pk", "groups__name")
    for pk, name, group_id, group in rows:
        names[pk] = name
        if group_id is not None and lenders[pk] is None:
            groups.setdefault(pk, {})[group_id] = group
    for pk, lender in lenders.items():
        if lender is not None:
            lent = entitlement.covering(approval, risk).filter(deputy=pk, lender=lender)
            mine = Group.objects.filter(delegation__in=lent, user=lender)
            groups[pk] = dict(mine.values_list("pk", "name"))
    return {pk: Reviewer(pk, name, groups.get(pk, {})) for pk, name in names.items()}


def count(
    approval: Approval,
    terms: Terms,
    about: dict[str, Any],
    approving: Iterable[Decision],
    besides: Iterable[tuple[int, int | None]] = (),
    excluded: Collection[int | None] = (),
    risk: str = "",
) -> Count:
    """The approvals given and the rejections standing, under these terms.

    `besides`: people who look at the request, counted among the known people. `excluded` people count for nothing.
    `risk`: the call's current risk; a right may have been lent for a lower one.
    """
    agreed = _rights(approving, excluded)
    against = _rights(rejections(approval), excluded)
    known = reviewers(approval, {**dict(besides), **agreed, **against}.items(), risk)
    return Count(
        terms,
        {**about, "args": _arguments(approval), "tool": _tool(approval)},
        [known[pk] for pk in agreed if pk in known],
        [known[pk] for pk in against if pk in known],
        known,
    )


def _rights(decisions: Iterable[Decision], excluded: Collection[int | None]) -> dict[int, int | None]:
    """For each decider, whose right they used, without people who count for nothing, even if others speak for them."""
    return {
        each.user_id: each.on_behalf_of_id
        for each in decisions
        if each.user_id is not None and not {each.user_id, each.on_behalf_of_id} & ({*excluded} - {None})
    }


def rejections(approval: Approval) -> list[Decision]:
    """The rejections that stand. Changing the call does not take them back; only the person who rejected can."""
    return [
        decision
        for decision in approval.decisions.filter(undone_at__isnull=True, type=DecisionType.REJECT)
        if decision.user_id is not None
    ]


def _arguments(approval: Approval) -> Any:
    """The call as it would run now."""
    try:
        return load(approval.final_arguments_text or approval.arguments_text)
    except ValueError:
        return {}


def _tool(approval: Approval) -> dict[str, str]:
    return {"name": approval.tool, "effect_class": approval.effect_class}
