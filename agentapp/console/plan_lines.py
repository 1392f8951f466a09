"""The calls of a plan for people to read: what they approve, and afterwards what came of each."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import auth
from agentapp.console.fields import label_of
from agentapp.models import ToolExecution
from approvals import lens, planned
from approvals.digest import canonical
from approvals.masking import masked
from approvals.models import Approval, EffectClass, PlannedCall, Risk
from approvals.planned import ShownCall


@dataclass(frozen=True)
class Line:
    """One call of a plan as it was shown, and where it stands now."""

    number: int
    call: ShownCall
    arguments: list[tuple[str, str]]
    state: list[tuple[str, str]]
    standing: str = ""
    """Empty until the plan is approved; then made, waits or ended."""
    words: str = ""
    execution: ToolExecution | None = None
    """The call that was made under it, for people who may see its run."""

    @property
    def risk(self) -> str:
        return str(Risk(self.call.risk).label)

    @property
    def effect(self) -> str:
        return str(EffectClass(self.call.effect_class).label).partition(":")[2].strip()


@dataclass(frozen=True)
class Plan:
    """A plan's calls, and whether its reader may end the rest of it."""

    lines: list[Line]
    left: int
    may_end: bool


def plan_of(approval: Approval, user: User) -> Plan | None:
    """The calls of a plan. None, without a query, if it is not a plan; three queries for an approved plan."""
    if not approval.is_plan:
        return None
    rows = {row.position: row for row in approval.planned_calls.all()} if approval.used_at is not None else {}
    made = [row.used_by for row in rows.values() if row.used_by is not None]
    calls = _made(made, approval, user) if made else {}
    over, hidden = _has_ended(approval), _hidden(approval)
    lines = [
        _line(number, call, rows.get(number), calls, over, hidden)
        for number, call in enumerate(planned.calls_in(approval.plan_text), start=1)
    ]
    left = sum(line.standing == "waits" for line in lines)
    return Plan(lines, left, bool(left) and auth.may_end_plan(user))


def as_asked(approval: Approval) -> Plan | None:
    """The calls of a plan as people saw them, whatever has become of them since. No query."""
    if not approval.is_plan:
        return None
    calls = enumerate(planned.calls_in(approval.plan_text), start=1)
    hidden = _hidden(approval)
    return Plan([_line(number, call, None, {}, False, hidden) for number, call in calls], 0, may_end=False)


def _hidden(approval: Approval) -> list[str]:
    return lens.hidden(approval.secret_fields, approval.pii_fields)


def _has_ended(approval: Approval) -> bool:
    """Whether the run of a plan is over, if it was read with the request."""
    execution: ToolExecution | None = getattr(approval, "execution", None)
    return execution is not None and execution.run.is_final


def _made(ids: list[uuid.UUID], approval: Approval, user: User) -> Mapping[uuid.UUID, ToolExecution]:
    """The calls made under a plan, if this person may see its run."""
    seen = ToolExecution.objects.filter(pk__in=ids, run__in=auth.visible_runs(user).filter(pk=approval.run_id))
    return {execution.pk: execution for execution in seen.select_related("step")}


def _line(
    number: int,
    call: ShownCall,
    row: PlannedCall | None,
    calls: Mapping[uuid.UUID, ToolExecution],
    over: bool,
    hidden: Collection[str],
) -> Line:
    given = [(label_of(name, {}), text) for name, text in _texts(masked(call.arguments, hidden))]
    shown = (given, _texts(masked(call.snapshot, hidden)))
    if row is None:
        return Line(number, call, *shown)
    if row.used_by is not None:
        execution = calls.get(row.used_by)
        return Line(number, call, *shown, "made", _came_to(execution), execution)
    if row.ended_at is not None:
        return Line(number, call, *shown, "ended", f"Ended: {row.ended_why}")
    if over:
        return Line(number, call, *shown, "ended", "Not made: the run has ended")
    if row.use_by <= timezone.now():
        return Line(number, call, *shown, "ended", "Its time is over")
    return Line(number, call, *shown, "waits", "Not made yet")


def _came_to(execution: ToolExecution | None) -> str:
    if execution is None or execution.result_status in ("", ToolExecution.ResultStatus.OK):
        return "Made"
    return f"Made, but it failed: {execution.get_result_status_display().lower()}"


def _texts(value: Any) -> list[tuple[str, str]]:
    """Names and values as texts: text as it is, everything else as JSON."""
    found = value if isinstance(value, dict) else {}
    return [(name, item if isinstance(item, str) else canonical(item)) for name, item in found.items()]
