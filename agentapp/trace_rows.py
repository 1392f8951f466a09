"""One step with its calls as rows on an axis: names, bars, marks. No queries."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from agentapp import request_words
from agentapp.messages import FAILED
from agentapp.models import Run, ToolExecution
from agentapp.reasons import Reason
from agentapp.timescale import Axis, Kind, Span
from approvals.detectors import shortened
from approvals.models import Approval, DecisionType

NAME_CHARS = 90
# More calls of one step than this are folded into one row, except those that need a look.
GROUP, GROUP_SHOWN = 20, 3

type Group = Literal["whole", "folded", "opened"]
type Hue = Literal["", "ok", "wait", "bad", "info"]

State = ToolExecution.State
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

    `step` is 0 for the input. `call` is the position of a call in its step, for the call itself, its approvals
    and the run that answers it; `state` is the call's. `seconds` None: it took no time. `planned`: it has not
    happened yet. Kind "more" stands for the calls of a step that are folded away.
    """

    kind: Literal["message", "model", "call", "approval", "run", "more"]
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
        if self.kind == "more":
            return f"{self.step}-more"
        place = f"{self.step}" if self.call is None else f"{self.step}-{self.call}"
        under = self.approval or self.subrun
        return f"{place}-{under.pk.hex[-6:]}" if under else place

    @property
    def depth(self) -> int:
        return {"message": 0, "model": 0, "call": 1, "more": 1, "approval": 2, "run": 2}[self.kind]


class StepFacts(NamedTuple):
    """What the timeline reads of a step."""

    pk: uuid.UUID
    number: int
    words: str
    error: str
    model: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: Decimal | None
    started_at: datetime
    finished_at: datetime


class CallFacts(NamedTuple):
    """What the timeline reads of a call."""

    pk: uuid.UUID
    step_id: uuid.UUID
    place: int
    name: str
    state: str
    result_status: str
    reason: str
    attempts: int
    replay_of_id: uuid.UUID | None
    outcome_note: str
    cost: Decimal
    subrun_id: uuid.UUID | None
    proposed_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Call:
    """One call and the time it took: its own, and the wait for people."""

    def __init__(
        self,
        call: CallFacts,
        approvals: list[Approval],
        seen: tuple[datetime | None, Sequence[datetime]],
        subruns: dict[uuid.UUID, Run],
        end: datetime,
    ) -> None:
        self.call, self.approvals, self.end = call, approvals, end
        self.subrun = subruns.get(call.subrun_id) if call.subrun_id else None
        self.failed = call.result_status in FAILED or call.state == State.OUTCOME_UNKNOWN
        self.waits = [
            Span("people", approval.created_at, request_words.ended(approval, after, call.finished_at, end))
            for approval, after in zip(approvals, [*approvals[1:], None], strict=False)
        ]
        self.work = list(self._work(*seen)) if call.started_at else []

    def _work(self, lost_at: datetime | None, failed_at: Sequence[datetime]) -> Iterable[Span]:
        """Its attempts one after the other. From the moment its outcome is unknown, it waits for people."""
        start, stop = self.call.started_at or self.end, self.call.finished_at or self.end
        for at in failed_at:
            if start < at < stop:
                yield Span("failed", start, at)
                start = at
        if lost_at and start <= lost_at <= stop:
            yield Span("failed", start, lost_at)
            yield Span("people", lost_at, stop)
        else:
            yield Span("failed" if self.failed else "tool", start, stop)

    @property
    def needs_a_look(self) -> bool:
        return self.failed or self.call.state in (State.WAITING, State.EXECUTING, State.OUTCOME_UNKNOWN)

    def rows(self, axis: Axis, run: Run, step: int) -> Iterable[Row]:
        call, spans = self.call, [*self.waits, *self.work]
        at = call.finished_at or call.proposed_at
        planned = call.state in (State.PROPOSED, State.READY) and not run.is_final
        yield Row(
            "call",
            step,
            call.name,
            call=call.place,
            bars=_bars(spans, axis) or (() if planned else (Bar("idle", axis.x(at)),)),
            seconds=sum(span.seconds for span in spans) if spans else None,
            cost=call.cost or None,
            mark=self._mark(),
            state=call.state,
            failed=self.failed,
            planned=planned,
        )
        for approval, wait in zip(self.approvals, self.waits, strict=True):
            yield Row(
                "approval",
                step,
                f"{approval.reference}, {request_words.became(approval)}",
                call=call.place,
                bars=_bars([wait], axis),
                seconds=wait.seconds,
                approval=approval,
            )

        if self.subrun is not None:
            yield self._subrun_row(axis, self.subrun, step)

    def _subrun_row(self, axis: Axis, subrun: Run, step: int) -> Row:
        span = Span("tool", subrun.created_at, max(subrun.created_at, subrun.finished_at or self.end))
        hue = _RUN_HUES.get(subrun.state, "")
        return Row(
            "run",
            step,
            f"{subrun.agent.name}, {subrun.reference}",
            call=self.call.place,
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
        if call.result_status in FAILED:
            return Mark(f"Failed, attempt {call.attempts}" if call.attempts > 1 else "Failed", "bad")
        if call.attempts > 1:
            return Mark(f"Attempt {call.attempts}", "bad")
        return Mark("Changed by a person", "ok") if edited else None


class Told:
    """One step: the model's decision and its calls."""

    def __init__(self, step: StepFacts, calls: Sequence[Call]) -> None:
        self.step, self.calls = step, calls
        self.own = Span("model", step.started_at, step.finished_at)

    @property
    def spans(self) -> list[Span]:
        return [self.own, *(span for call in self.calls for span in [*call.work, *call.waits])]

    def rows(self, axis: Axis, run: Run, *, group: Group = "whole", keep: int | None = None) -> Iterable[Row]:
        step = self.step
        yield Row(
            "model",
            step.number,
            _said(step, self.calls),
            bars=_bars([self.own], axis),
            seconds=self.own.seconds,
            tokens=step.input_tokens + step.output_tokens,
            cost=step.cost,
            mark=Mark("No decision", "bad") if step.error else None,
        )
        shown, hidden = self._fold(keep) if group != "whole" and len(self.calls) > GROUP else (self.calls, [])
        for call in shown if group != "opened" else self.calls:
            yield from call.rows(axis, run, step.number)
        if hidden and group == "folded":
            yield self._hidden_row(hidden, axis)
        elif hidden:
            yield Row("more", step.number, f"Fold {len(hidden)} call{'s' if len(hidden) > 1 else ''}")

    def _fold(self, keep: int | None) -> tuple[list[Call], list[Call]]:
        """The first few calls, those that need a look and the one to keep, and then the others."""
        looked_at = [call for at, call in enumerate(self.calls) if at < GROUP_SHOWN or call.needs_a_look][:GROUP]
        shown = [call for call in self.calls if call in looked_at or call.call.place == keep]
        return shown, [call for call in self.calls if call not in shown]

    def _hidden_row(self, hidden: Sequence[Call], axis: Axis) -> Row:
        spans = [span for call in hidden for span in call.work]
        failed = sum(call.failed for call in hidden)
        whole = [Span("tool", min(span.start for span in spans), max(span.end for span in spans))] if spans else []
        return Row(
            "more",
            self.step.number,
            f"{len(hidden)} more call{'s' if len(hidden) > 1 else ''}",
            bars=_bars(whole, axis),
            mark=Mark(f"{failed} failed", "bad") if failed else None,
        )


_OPEN_MARKS: dict[State, Mark] = {
    State.PROPOSED: Mark("Planned"),
    State.READY: Mark("Planned"),
    State.WAITING: Mark("Waiting", "wait"),
    State.EXECUTING: Mark("Running", "info"),
    State.OUTCOME_UNKNOWN: Mark("Outcome unknown", "bad"),
    State.CANCELLED: Mark("Cancelled"),
}
_RUN_HUES: dict[str, Hue] = {
    Run.State.SUCCEEDED: "ok",
    Run.State.WAITING: "wait",
    Run.State.RUNNING: "info",
    Run.State.FAILED: "bad",
}


def _said(step: StepFacts, calls: Sequence[Call]) -> str:
    """The name of a step: the first words of the model, or else what it asked for."""
    line = next((line.strip() for line in step.words.splitlines() if line.strip()), "")
    if line:
        return shortened(line, NAME_CHARS)
    if step.error or not calls:
        return "Said nothing"
    return f"Asked for {calls[0].call.name}" if len(calls) == 1 else f"Asked for {len(calls)} calls"


def _bars(spans: Sequence[Span], axis: Axis) -> tuple[Bar, ...]:
    return tuple(Bar(span.kind, axis.x(span.start), axis.width(span.start, span.end)) for span in spans)
