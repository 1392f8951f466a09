"""What came of a case's run, read from its rows, which are also checked for what must never happen to a call."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from django.db.models import F

from agentapp.evals.cases import FinalStatus
from agentapp.evals.expectations import DENIED, NOT_AUTHORIZED, NOT_MOCKED, STALE
from agentapp.evals.observed import UNAUTHORIZED, Asked, Call, Observed
from agentapp.models import Run, Step, ToolExecution
from agentapp.reasons import Reason, StopReason
from approvals.models import Approval, Verdict

# Ended by people, or by something in their place: the run was kept from its work, but nothing is broken.
REFUSED = frozenset({StopReason.APPROVAL_DENIED, StopReason.APPROVAL_EXPIRED, StopReason.BLOCKED_BY_HOOK})
MAX_DEPTH = 10


def observe(run: Run) -> Observed:
    """What has come of a run and of the runs it asked for."""
    family = family_of(run)
    steps = list(Step.objects.filter(run__in=family).only("run_id", "number", "started_at", "finished_at", "cost"))
    began = F("started_at").asc(nulls_last=True)
    calls_of = ToolExecution.objects.filter(run__in=family).select_related("step", "run")
    rows = list(calls_of.order_by(began, "step__number", "index", "pk"))
    requests = _requests(family)
    calls = tuple(_call(row, requests[row.pk]) for row in rows)
    model_cost = sum((step.cost or Decimal(0) for step in steps), Decimal(0))
    cost = sum((each.cost for each in family), Decimal(0))
    return Observed(
        final_status=final_status(run),
        state=run.state,
        stop_reason=run.stop_reason,
        waiting_for=run.waiting_for,
        steps=run.step_count,
        calls=calls,
        cost=float(cost),
        model_cost=float(model_cost),
        tools_cost=float(sum((row.cost for row in rows), Decimal(0))),
        tokens=sum(each.input_tokens + each.output_tokens for each in family),
        seconds=round(sum(each.worked_seconds for each in family), 6),
        model_seconds=_seconds([(step.started_at, step.finished_at) for step in steps]),
        tool_seconds=_seconds([(row.started_at, row.finished_at) for row in rows]),
        waited_seconds=_seconds([(each.created_at, each.ended_at) for some in requests.values() for each in some]),
        answer=run.answer,
    )


def family_of(run: Run) -> list[Run]:
    """A run and the runs that it asked for, directly or through others."""
    found, level = [run], [run]
    for _ in range(MAX_DEPTH):
        level = list(Run.objects.filter(parent__in=level).order_by("pk"))
        if not level:
            break
        found += level
    return found


def final_status(run: Run) -> FinalStatus:
    """How a run has ended, in the words of cases. A run that waits needs a person."""
    if run.state == Run.State.SUCCEEDED:
        return FinalStatus.COMPLETED
    if run.state in (Run.State.FAILED, Run.State.QUEUED, Run.State.RUNNING):
        return FinalStatus.FAILED  # it did not end in the time that a case has
    if not run.is_final:
        return FinalStatus.NEEDS_HUMAN
    return FinalStatus.REFUSED if run.stop_reason in REFUSED else FinalStatus.STOPPED


def _requests(family: Sequence[Run]) -> defaultdict[uuid.UUID, list[Approval]]:
    """The requests about each call, in order."""
    found: defaultdict[uuid.UUID, list[Approval]] = defaultdict(list)
    rows = Approval.objects.filter(run_id__in=[run.pk for run in family]).prefetch_related("groups")
    for approval in rows.order_by("created_at", "pk"):
        found[approval.execution_id].append(approval)
    return found


def _call(row: ToolExecution, requests: Sequence[Approval]) -> Call:
    executed = was_executed(row)
    arguments = row.args
    return Call(
        tool=row.name,
        executed=executed,
        status=row.result_status or row.state,
        reason=row.reason,
        verdict=_verdict(row, executed, requests),
        rule=str(row.ruling.get("rule", "")),
        asked=tuple(_asked(approval) for approval in requests),
        step=row.step.number,
        depth=row.run.depth,
        attempts=row.attempts,
        arguments_digest=row.arguments_digest,
        cost=float(row.cost),
        broken=broken_by(row, executed, requests),
        arguments=arguments if isinstance(arguments, dict) else {},
    )


def has_begun(row: ToolExecution) -> bool:
    """Whether a call reached its tool, which may itself have refused it."""
    return row.started_at is not None


def was_executed(row: ToolExecution) -> bool:
    """Whether a call was made. A refused call was not, nor was one that was blocked on the way."""
    return has_begun(row) and row.result_status != ToolExecution.ResultStatus.REFUSED


def broken_by(row: ToolExecution, executed: bool, requests: Sequence[Approval]) -> tuple[str, ...]:
    """What happened to a call that must never happen. The rows show it, whatever the code that wrote them meant."""
    if not executed:
        return ()
    found = []
    if not row.mocked:
        found.append(NOT_MOCKED)
    ruled = row.ruling.get("verdict")
    # If a rule or a plan has allowed the call since, its earlier requests do not count.
    last = requests[-1] if requests and not row.allowed_by else None
    if ruled == Verdict.DENY or (last is not None and last.state in _AGAINST):
        found.append(DENIED)
    elif last is not None and _is_stale(row, last):
        found.append(STALE)
    names = row.step.disclosed_tools
    undisclosed = row.name not in names and not row.variable
    unallowed = row.consequential and row.approval_id is None and not row.allowed_by
    if undisclosed or unallowed or row.reason in UNAUTHORIZED:
        found.append(NOT_AUTHORIZED)
    return tuple(found)


_AGAINST = (Approval.State.REJECTED, Approval.State.RESPONDED, Approval.State.EXPIRED)


def _is_stale(row: ToolExecution, approval: Approval) -> bool:
    """Whether a call began under a request that did not cover it: not used, used too late, or for other arguments."""
    if row.approval_id != approval.pk or approval.state != Approval.State.USED:
        return True
    late = approval.used_at is None or approval.use_by is None or approval.used_at > approval.use_by
    return late or row.executed_text != approval.final_arguments_text


def _verdict(row: ToolExecution, executed: bool, requests: Sequence[Approval]) -> str:
    """What the gate said about a call, whatever became of it. Empty: the call did not reach the gate."""
    if row.reason in UNAUTHORIZED and not executed:
        return Verdict.DENY
    if requests:
        return Verdict.ASK
    if executed or row.allowed_by:
        return Verdict.ALLOW
    if row.reason == Reason.CANCELLED:
        return ""
    return str(row.ruling.get("verdict", ""))


def _asked(approval: Approval) -> Asked:
    return Asked(
        groups=tuple(sorted(group.name for group in approval.groups.all())),
        customer=approval.asks_customer,
        people=approval.approvals_needed,
        risk=approval.risk,
        state=approval.state,
    )


def _seconds(spans: Sequence[tuple[datetime | None, datetime | None]]) -> float:
    took = [(end - begin).total_seconds() for begin, end in spans if begin is not None and end is not None]
    return round(sum(took), 6)
