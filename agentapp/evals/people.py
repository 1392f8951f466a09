"""Decides about the calls of a mocked run in place of the people who would be asked, as its case says."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings

from agentapp import runs
from agentapp.evals.cases import Deciding
from agentapp.models import Run, Tool
from agentapp.tools.schema import check_arguments
from approvals import decisions, ledger, standing
from approvals.digest import canonical, parse
from approvals.models import Approval, DecisionType


class NotTaken(Exception):
    """A decision written in a case cannot be made. The message says why."""


@dataclass
class People:
    """The people who decide in one run of a case, with the decisions they have left."""

    left: list[Deciding]
    seen: set[uuid.UUID] = field(default_factory=set)
    """Requests that were decided, or must be left waiting."""

    def decide(self, family: Sequence[Run]) -> bool:
        """Decide about every waiting request, oldest first. False: nothing was decided.

        Raises NotTaken.
        """
        waiting = Approval.objects.filter(run_id__in=[run.pk for run in family], state__in=Approval.UNDECIDED)
        decided = False
        for approval in waiting.exclude(pk__in=self.seen).order_by("created_at", "pk"):
            said = next((each for each in self.left if each.tool in (None, approval.tool)), None)
            if said is None:
                continue
            self.left.remove(said)
            self.seen.add(approval.pk)
            if said.decide != "none":
                _take(approval, said)
                decided = True
        return decided


def take(
    approval: Approval, type: str, message: str = "", *, edited_text: str = "", stop_run: bool = False
) -> decisions.Taken | standing.Refusal:
    """Decide about a call of a mocked run, as the people asked would. No worker is told: the caller drives the run."""
    approval.refresh_from_db()
    said: dict[str, Any] = {"message": message, "stop_run": stop_run, "edited_text": edited_text}
    incoming = decisions.Incoming.in_place_of_people(approval, type, "eval", **said)
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        taken = decisions.decide(approval.pk, incoming, timedelta(seconds=settings.APPROVAL_USE_WITHIN_SECONDS))
        if isinstance(taken, decisions.Taken) and run is not None:
            runs.wake(run, runs.clock(run))
    return taken


def expire(approval: Approval) -> bool:
    """Expire a mocked run's request now. False: its run is not mocked, or it is no longer undecided."""
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        expired = decisions.lapse(approval.pk)
        if expired and run is not None:
            runs.wake(run, runs.clock(run))
    return expired


def _take(approval: Approval, said: Deciding) -> None:
    if said.decide == "expire":
        expire(approval)
        return
    edited = _edited(approval, said) if said.decide == "edit" else ""
    taken = take(approval, DecisionType(said.decide), said.message, edited_text=edited, stop_run=said.stop_run)
    if isinstance(taken, standing.Refusal):
        raise NotTaken(f"nobody could {said.decide} {approval.tool}: {taken.message}")


def _edited(approval: Approval, said: Deciding) -> str:
    """The arguments after the edit. Raises NotTaken if they may not be edited so, or the tool does not take them."""
    arguments = {**parse(approval.final_arguments_text or approval.arguments_text), **(said.arguments or {})}
    fixed = sorted(set(approval.locked_fields) & set(said.arguments or {}))
    if fixed:
        raise NotTaken(f"nobody may edit {', '.join(fixed)} of {approval.tool}")
    tool = Tool.objects.get(name=approval.tool)
    problems = check_arguments(tool.input_schema, arguments)
    if problems:
        raise NotTaken(f"{approval.tool} does not take what the edit makes: {problems[0].sentence}")
    return canonical(arguments)
