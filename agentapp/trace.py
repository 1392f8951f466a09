"""Rows → what the console and the API show of a run. Reads only."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Prefetch
from django.db.models.functions import Left

from agentapp import auth, waits
from agentapp.models import Run, Step, ToolExecution
from agentapp.reasons import Reason
from agentapp.timescale import Axis, Kind, Span, partition
from approvals import ledger
from approvals.models import Approval, Decision, DecisionType, Event

NAME_CHARS = 90

type Hue = Literal["", "ok", "wait", "bad", "info"]

State = ToolExecution.State
_FAILED = (ToolExecution.ResultStatus.RETRYABLE_ERROR, ToolExecution.ResultStatus.FATAL_ERROR)
_REFUSED_IN_WORDS: dict[str, str] = {
    Reason.APPROVAL_REJECTED: "Rejected",
    Reason.APPROVAL_EXPIRED: "Expired",
    Reason.POLICY_DENIED: "Denied by rule",
    Reason.BLOCKED_BY_HOOK: "Blocked by hook",
}


@dataclass(frozen=True)
class Bar:
    """A piece of a row on the axis. `x` and `width` in percent; no width means a point in time."""

    kind: Kind
    x: float
    width: float = 0.0


@dataclass(frozen=True)
class Mark:
    """A word about a row, and the hue that goes with it."""

    word: str
    hue: Hue = ""


@dataclass(frozen=True)
class Row:
    """One line of the timeline.

    `step` is 0 for the input. `call` is the place of a call in its step, for the call itself, its approvals
    and the run that answers it; `state` is the call's. `seconds` None: it took no time. `planned`: it has not
    happened yet.
    """

    kind: Literal["message", "model", "call", "approval", "run"]
    step: int
    name: str
    call: int | None = None
    bars: tuple[Bar, ...] = ()
    seconds: float | None = None
    tokens: int | None = None
    cost: Decimal | None = None
    mark: Mark | None = None
    state: str = ""
    failed: bool = False
    planned: bool = False
    approval: Approval | None = None
    subrun: Run | None = None

    @property
    def key(self) -> str:
        """Names the row within its run, the same in every rendering."""
        place = f"{self.step}" if self.call is None else f"{self.step}-{self.call}"
        under = self.approval or self.subrun
        return f"{place}-{under.pk.hex[-6:]}" if under else place

    @property
    def depth(self) -> int:
        return {"message": 0, "model": 0, "call": 1, "approval": 2, "run": 2}[self.kind]


@dataclass(frozen=True)
class Totals:
    """Where time and money went. The seconds of model, tools, failed, waited and idle make up the whole."""

    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    failed_seconds: float = 0.0
    waited_seconds: float = 0.0
    idle_seconds: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    cost_is_partial: bool = False
    errors: int = 0

    @property
    def worked_seconds(self) -> float:
        return self.model_seconds + self.tool_seconds + self.failed_seconds

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cached_share(self) -> float:
        """The part of the tokens read that came from the provider's cache, 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0


@dataclass(frozen=True)
class Timeline:
    """`approvals` are the requests about each call by its id, the oldest first."""

    rows: tuple[Row, ...]
    axis: Axis
    totals: Totals
    approvals: dict[uuid.UUID, list[Approval]] = field(default_factory=dict, repr=False)

    @property
    def first_failure(self) -> Row | None:
        return next((row for row in self.rows if row.failed), None)

    def of_steps(self, first: int, last: int) -> tuple[Row, ...]:
        """The rows of the steps from first to last. The input belongs to the first step."""
        return tuple(row for row in self.rows if first <= max(row.step, 1) <= last)


def steps_of(run: Run) -> list[Step]:
    """A run's steps with their calls, each call with its approval and the decisions about it. Three queries."""
    decisions = Decision.objects.select_related("user").order_by("decided_at")
    calls = ToolExecution.objects.select_related("tool", "approval", "subrun__agent").order_by("index")
    calls = calls.defer(*_SUBRUN_UNREAD).prefetch_related(Prefetch("approval__decisions", queryset=decisions))
    return list(run.steps.order_by("number").prefetch_related(Prefetch("executions", queryset=calls)))


def timeline(run: Run, now: datetime, viewer: User | None = None) -> Timeline:
    """The whole run as rows on one axis. Each approval says, as `openable`, whether `viewer` may open it.

    Four queries, and one more when the outcome of a call is or was unknown, however long the run is.
    Texts of arguments and results are not read.
    """
    steps = list(
        run.steps.order_by("number")
        .defer("text", "reasoning", "disclosed_tools", "provider_parts")
        .annotate(first_words=Left("text", NAME_CHARS))
    )
    calls: dict[uuid.UUID, list[ToolExecution]] = defaultdict(list)
    for call in _calls(run):
        calls[call.step_id].append(call)
    approvals = _approvals(run, viewer)
    lost = _lost(run, [call for of_step in calls.values() for call in of_step])
    end = max(run.finished_at or now, run.created_at)
    told = [_Told(step, [_Call(call, approvals, lost, end) for call in calls[step.pk]]) for step in steps]
    parts = partition((span for one in told for span in one.spans), run.created_at, end)
    axis = Axis(parts, run.created_at)
    rows = [Row("message", 0, run.title, bars=(Bar("idle", axis.x(run.created_at)),))]
    rows += [row for one in told for row in one.rows(axis, run)]
    if run.state == Run.State.RUNNING and all(call.is_answered for one in calls.values() for call in one):
        rows.append(Row("model", len(steps) + 1, "Deciding the next step", planned=True))
    return Timeline(tuple(rows), axis, _totals(steps, parts, rows), approvals)


def call_of(run: Run, step: int, index: int) -> ToolExecution | None:
    """One call with all that is kept of it. One query; who decided about it stands in the timeline."""
    calls = ToolExecution.objects.select_related("step", "tool", "approval", "replay_of__step", "subrun__agent")
    return calls.defer(*_SUBRUN_UNREAD).filter(run=run, step__number=step, index=index).first()


def step_of(run: Run, number: int) -> Step | None:
    """One step with the calls it asked for. Two queries."""
    calls = ToolExecution.objects.select_related("tool", "approval").order_by("index")
    return run.steps.filter(number=number).prefetch_related(Prefetch("executions", queryset=calls)).first()


def said(event: Event) -> dict[str, Any] | None:
    """The particulars of an event; None when somebody has tampered with it so that it says nothing."""
    try:
        return event.data
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class _Call:
    """One call and the time it took: its own, and that of the people it waited for."""

    def __init__(
        self,
        call: ToolExecution,
        approvals: dict[uuid.UUID, list[Approval]],
        lost: dict[uuid.UUID, datetime],
        end: datetime,
    ) -> None:
        self.call, self.approvals, self.end = call, approvals.get(call.pk, []), end
        self.failed = call.result_status in _FAILED or call.state == State.OUTCOME_UNKNOWN
        self.waits = [
            Span("people", approval.created_at, waits.ended(approval, after, call, end))
            for approval, after in zip(self.approvals, [*self.approvals[1:], None], strict=False)
        ]
        self.work: list[Span] = []
        lost_at = lost.get(call.pk)
        if call.started_at:
            stop = call.finished_at or end
            if lost_at and call.started_at <= lost_at <= stop:
                self.work = [Span("failed", call.started_at, lost_at), Span("people", lost_at, stop)]
            else:
                self.work = [Span("failed" if self.failed else "tool", call.started_at, stop)]

    def rows(self, axis: Axis, run: Run, step: int) -> Iterable[Row]:
        call, spans = self.call, [*self.waits, *self.work]
        at = call.finished_at or call.proposed_at
        planned = call.state in (State.PROPOSED, State.READY) and not run.is_final
        yield Row(
            "call",
            step,
            call.name,
            call=call.index,
            bars=_bars(spans, axis) or (() if planned else (Bar("idle", axis.x(at)),)),
            seconds=sum(span.seconds for span in spans) if spans else None,
            mark=self._mark(),
            state=call.state,
            failed=self.failed,
            planned=planned,
        )
        for approval, wait in zip(self.approvals, self.waits, strict=True):
            yield Row(
                "approval",
                step,
                f"{approval.reference}, {waits.became(approval)}",
                call=call.index,
                bars=_bars([wait], axis),
                seconds=wait.seconds,
                approval=approval,
            )

        if call.subrun is not None:
            yield self._subrun_row(axis, call.subrun, step)

    def _subrun_row(self, axis: Axis, subrun: Run, step: int) -> Row:
        span = Span("tool", subrun.created_at, max(subrun.created_at, subrun.finished_at or self.end))
        hue = _RUN_HUES.get(subrun.state, "")
        return Row(
            "run",
            step,
            f"{subrun.agent.name}, {subrun.reference}",
            call=self.call.index,
            bars=_bars([span], axis),
            seconds=span.seconds,
            tokens=subrun.input_tokens + subrun.output_tokens,
            cost=subrun.cost,
            mark=Mark(subrun.get_state_display(), hue),
            subrun=subrun,
        )

    def _mark(self) -> Mark | None:
        call = self.call
        edited = any(
            decision.type == DecisionType.EDIT and decision.undone_at is None
            for approval in self.approvals[-1:]
            for decision in approval.decisions.all()
        )
        if call.state in _OPEN_MARKS:
            return _OPEN_MARKS[State(call.state)]
        if call.replay_of_id:
            return Mark("Done before")
        if call.result_status == ToolExecution.ResultStatus.REFUSED:
            return Mark(_REFUSED_IN_WORDS.get(call.reason, "Refused"), "bad")
        if call.result_status in _FAILED:
            return Mark(f"Failed, attempt {call.attempts}" if call.attempts > 1 else "Failed", "bad")
        if call.attempts > 1:
            return Mark(f"Attempt {call.attempts}", "bad")
        return Mark("Changed by a person", "ok") if edited else None


class _Told:
    """One step: the model's decision and its calls."""

    def __init__(self, step: Step, calls: Sequence[_Call]) -> None:
        self.step, self.calls = step, calls
        self.own = Span("model", step.started_at, step.finished_at)

    @property
    def spans(self) -> list[Span]:
        return [self.own, *(span for call in self.calls for span in [*call.work, *call.waits])]

    def rows(self, axis: Axis, run: Run) -> Iterable[Row]:
        step = self.step
        yield Row(
            "model",
            step.number,
            _said(step, [call.call for call in self.calls]),
            bars=_bars([self.own], axis),
            seconds=self.own.seconds,
            tokens=step.input_tokens + step.output_tokens,
            cost=step.cost,
            mark=Mark("No decision", "bad") if step.error else None,
        )
        for call in self.calls:
            yield from call.rows(axis, run, step.number)


_OPEN_MARKS: dict[State, Mark] = {
    State.PROPOSED: Mark("Planned"),
    State.READY: Mark("Planned"),
    State.WAITING: Mark("Waiting", "wait"),
    State.EXECUTING: Mark("Running", "info"),
    State.OUTCOME_UNKNOWN: Mark("Outcome unknown", "bad"),
    State.CANCELLED: Mark("Cancelled"),
}


# Of a run that answers a call, what its own page shows.
_SUBRUN_UNREAD = tuple(f"subrun__{name}" for name in ("agent_snapshot", "input", "script", "metadata", "answer"))
_RUN_HUES: dict[str, Hue] = {
    Run.State.SUCCEEDED: "ok",
    Run.State.WAITING: "wait",
    Run.State.RUNNING: "info",
    Run.State.FAILED: "bad",
}


def _calls(run: Run) -> Iterable[ToolExecution]:
    what = ("run", "step", "index", "name", "state", "result_status", "reason", "attempts", "replay_of")
    more = ("outcome_note", "proposed_at", "started_at", "finished_at")
    asked = ("agent__name", "state", "input_tokens", "output_tokens", "cost", "created_at", "finished_at")
    calls = run.executions.select_related("subrun__agent").order_by("index")
    return calls.only(*what, *more, *(f"subrun__{name}" for name in asked))


def _approvals(run: Run, viewer: User | None) -> dict[uuid.UUID, list[Approval]]:
    """The requests about each call, the oldest first: a call asks again when what it rests on has changed."""
    found: dict[uuid.UUID, list[Approval]] = defaultdict(list)
    decisions = Decision.objects.select_related("user").order_by("decided_at")
    openable = auth.visible_approvals(viewer).filter(pk=OuterRef("pk")) if viewer else Approval.objects.none()
    for approval in (
        Approval.objects.filter(run_id=run.pk)
        .annotate(openable=Exists(openable))
        .defer("arguments_text", "arguments", "final_arguments_text", "snapshot_text", "evidence", "explanation")
        .prefetch_related(Prefetch("decisions", queryset=decisions.defer("arguments_text")))
        .order_by("created_at", "pk")
    ):
        found[approval.execution_id].append(approval)
    return found


def _lost(run: Run, calls: Sequence[ToolExecution]) -> dict[uuid.UUID, datetime]:
    """Since when nobody knew what became of a call. The row keeps only when that ended."""
    if not any(call.state == State.OUTCOME_UNKNOWN or call.outcome_note for call in calls):
        return {}
    events = Event.objects.filter(chain=ledger.run_chain(run.pk), type="tool_call.outcome_unknown").order_by("seq")
    return {uuid.UUID(data["execution"]): event.at for event in events if (data := said(event))}


def _said(step: Step, calls: Sequence[ToolExecution]) -> str:
    """What a step is called: the first words of the model, else what it asked for."""
    words: str = getattr(step, "first_words", "")
    line = next((line.strip() for line in words.splitlines() if line.strip()), "")
    if line:
        return line if len(line) < NAME_CHARS else f"{line[: NAME_CHARS - 1].rstrip()}…"
    if step.error or not calls:
        return "Said nothing"
    return f"Asked for {calls[0].name}" if len(calls) == 1 else f"Asked for {len(calls)} calls"


def _bars(spans: Sequence[Span], axis: Axis) -> tuple[Bar, ...]:
    return tuple(Bar(span.kind, axis.x(span.start), axis.width(span.start, span.end)) for span in spans)


def _totals(steps: Sequence[Step], parts: Sequence[Span], rows: Sequence[Row]) -> Totals:
    seconds: dict[str, float] = defaultdict(float)
    for part in parts:
        seconds[part.kind] += part.seconds
    return Totals(
        model_seconds=seconds["model"],
        tool_seconds=seconds["tool"],
        failed_seconds=seconds["failed"],
        waited_seconds=seconds["people"],
        idle_seconds=seconds["idle"],
        input_tokens=sum(step.input_tokens for step in steps),
        cached_tokens=sum(step.cached_tokens for step in steps),
        output_tokens=sum(step.output_tokens for step in steps),
        cost=sum((step.cost or Decimal(0) for step in steps), Decimal(0)),
        cost_is_partial=any(step.cost is None for step in steps),
        errors=sum(1 for row in rows if row.failed),
    )
