"""The record of a run that another run replays or is answered from: replies, results and decisions. Reads only.

A call gets the result that the same call, with the same arguments, gave then. In a sandbox, a call without such a match
gets the result of the same tool's call in the same position. A call that neither finds is not on record, and fails.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agentapp.answers import UNKNOWN
from agentapp.messages import DecisionFailure, Reply, StopSignal, ToolCall, ToolResult, Usage
from agentapp.models import Run, ToolExecution
from agentapp.reasons import Reason, StopReason
from agentapp.tools.context import ToolContext
from agentapp.transcript import StepRows, load_kept, load_steps
from approvals.digest import sha256
from approvals.models import Approval, DecisionType

RECORD = "record"
NOT_RECORDED = "This call is not on record, so nothing was called."
EXPIRE = "expire"
# How a run ends by itself, once its replay has come that far.
_BY_ITSELF = (
    StopReason.COMPLETED, StopReason.STEPS_LIMIT, StopReason.TOKEN_LIMIT, StopReason.COST_LIMIT, StopReason.NO_PROGRESS,
    StopReason.FINISH_REASON,
)  # fmt: skip
# Today's rules would not repeat these: the call did not run because of outside circumstances then, or of a hook.
_BY_WORLD = (
    Reason.IDEMPOTENCY_KEY_CONSUMED, Reason.CIRCUIT_OPEN, Reason.BUDGET_EXHAUSTED, Reason.BLOCKED_BY_HOOK,
    Reason.PERMISSION_DENIED,
)  # fmt: skip

State = ToolExecution.State


@dataclass(frozen=True)
class Decided:
    """What people said about a request: a type of decision, or that they let it expire."""

    type: str
    message: str = ""
    arguments_text: str = ""
    stop_run: bool = False


@dataclass(frozen=True)
class OnRecord:
    """Called in place of a tool: it returns what is on record."""

    result: ToolResult
    limits: Mapping[str, int] = MappingProxyType({})

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return self.result


@dataclass
class Recorded:
    """The run that answers, with its steps and those that it continued from."""

    run: Run
    steps: list[StepRows]
    kept: list[StepRows] = field(default_factory=list)
    approvals: dict[uuid.UUID, Approval] = field(default_factory=dict)
    is_replay: bool = False

    def reply(self, number: int) -> Reply | None:
        """What its model decided in a step. None: it took no such step."""
        rows = self.steps[number - 1] if number <= len(self.steps) else None
        return _reply(rows) if rows is not None else None

    def stand_in(self, history: Sequence[StepRows], execution: ToolExecution, text: str) -> "OnRecord":
        """What is called in place of a tool. `history`: the calls so far, including this one."""
        result = self._found(history, execution, text)
        missing = ToolResult("fatal_error", message=NOT_RECORDED, reason=Reason.NOT_MOCKED, trust="trusted_system")
        return OnRecord(result or missing)

    def _found(self, history: Sequence[StepRows], execution: ToolExecution, text: str) -> ToolResult | None:
        calls = [call for call in self._calls() if call.name == execution.name]
        earlier = [call for call in _before(history, execution) if call.started_at is not None]
        same = [call for call in calls if _is_of(call, text)]
        if same:
            turn = sum(_is_of(call, text) for call in earlier)
            return self._result(same[min(turn, len(same) - 1)])
        in_turn = calls[len(earlier)] if not self.is_replay and len(earlier) < len(calls) else None
        return self._result(in_turn) if in_turn is not None else None

    def decided(self, history: Sequence[StepRows], execution: ToolExecution) -> Decided | None:
        """What people said about a call then. None: they had said nothing when the run ended.

        If nobody was asked about the call then, it counts as approved now.
        """
        calls = [call for call in self._all() if call.name == execution.name]
        earlier = list(_before(history, execution))
        same = [call for call in calls if call.arguments_digest == execution.arguments_digest]
        turn = sum(call.arguments_digest == execution.arguments_digest for call in earlier)
        found = same[min(turn, len(same) - 1)] if same else None
        if found is None and not self.is_replay and len(earlier) < len(calls):
            found = calls[len(earlier)]
        asked = self.approvals.get(found.approval_id) if found is not None and found.approval_id else None
        decided = _decided(asked) if asked is not None else None
        if decided is not None and decided.type == DecisionType.EDIT and not same:
            decided = Decided(DecisionType.APPROVE)  # their edit was for another call
        was_left = self.is_replay and found is not None and asked is not None and not found.result_status
        return decided or (None if was_left else Decided(DecisionType.APPROVE))

    @property
    def end(self) -> StopSignal | None:
        """How the run ended, if something outside ended it, which no replay encounters. None: it ended by itself."""
        if self.run.stop_reason in _BY_ITSELF:
            return None
        return StopSignal(self.run.stop_reason, self.run.stop_message, {}, RECORD)

    def _all(self) -> Iterator[ToolExecution]:
        for rows in (*self.kept, *self.steps):
            yield from rows.executions

    def _calls(self) -> Iterator[ToolExecution]:
        for call in self._all():
            answered = call.state == State.FINISHED and bool(call.result_status)
            by_world = call.reason in _BY_WORLD or (not call.has_error and call.approval_id is None)
            if (answered and (call.started_at is not None or by_world)) or call.state == State.OUTCOME_UNKNOWN:
                yield call

    def _result(self, call: ToolExecution) -> ToolResult:
        if call.state == State.OUTCOME_UNKNOWN:
            # In a sandbox nobody would find out what happened.
            reason = Reason.OUTCOME_UNKNOWN if self.is_replay else Reason.TOOL_FAILURE
            return ToolResult("fatal_error", message=UNKNOWN, reason=reason, trust="trusted_system")
        return _result(call)


def load(run: Run) -> Recorded | None:
    """The record that answers a mocked run. No query for any other run."""
    key = (run.mocks or {}).get(RECORD)
    if key is None:
        return None
    found = Run.objects.get(pk=key)
    steps = load_steps(found)
    asked = [call.approval_id for rows in steps for call in rows.executions if call.approval_id is not None]
    approvals = Approval.objects.filter(pk__in=asked).prefetch_related("decisions")
    is_replay = run.branch == Run.Branch.REPLAY
    return Recorded(found, steps, load_kept(found), {each.pk: each for each in approvals}, is_replay)


def snapshot_text(run: Run, tool: str, text: str) -> str | None:
    """The state that a decision about a call rested on then. None: nobody was asked about it."""
    key = (run.mocks or {}).get(RECORD)
    asked = Approval.objects.filter(run_id=key, tool=tool) if key is not None else Approval.objects.none()
    kept = list(asked.order_by("created_at").values_list("arguments_text", "final_arguments_text", "snapshot_text"))
    return next((snapshot for was, final, snapshot in reversed(kept) if text in (was, final)), None)


def _is_of(call: ToolExecution, text: str) -> bool:
    """Whether a call was made with these arguments, or proposed with them if it did not run."""
    return call.executed_text == text if call.executed_text else call.arguments_digest == sha256(text)


def _before(history: Sequence[StepRows], execution: ToolExecution) -> Iterator[ToolExecution]:
    for other in (other for rows in history for other in rows.executions):
        if other.pk == execution.pk:
            return
        if other.name == execution.name:
            yield other


def _reply(rows: StepRows) -> Reply:
    step = rows.step
    failure: DecisionFailure | None = None
    calls = [ToolCall(call.call_id, call.name, call.arguments_text, call.variable) for call in rows.executions]
    if step.error:
        failure = DecisionFailure(step.error, rows.executions[0].message if rows.executions else "The driver failed.")
        calls = []
    return Reply(
        text=step.text,
        tool_calls=tuple(calls),
        usage=Usage(step.input_tokens, step.output_tokens, step.cached_tokens, step.cost),
        model=step.model,
        finish_reason=step.finish_reason,
        reasoning=step.reasoning,
        failure=failure,
    )


def _result(call: ToolExecution) -> ToolResult:
    status: Any = call.result_status
    trust: Any = call.trust
    return ToolResult(
        status=status,
        data=json.loads(call.result_text) if call.result_text else None,
        message=call.message,
        # A person has since found out that it did not happen.
        reason=Reason.TOOL_FAILURE if call.reason == Reason.OUTCOME_UNKNOWN else call.reason,
        metadata=call.metadata,
        control={name: value for name, value in call.control.items() if name != "took_effect"},
        trust=trust,
        evidence_ref=call.evidence_ref,
        retry_after=0 if call.retry_after is not None else None,
    )


def _decided(asked: Approval) -> Decided | None:
    given = [one for one in asked.decisions.all() if one.undone_at is None]
    if asked.state == Approval.State.EXPIRED:
        return Decided(EXPIRE)
    if asked.state in (Approval.State.APPROVED, Approval.State.USED):
        edited = asked.final_arguments_text if asked.is_edited else ""
        return Decided(DecisionType.EDIT if edited else DecisionType.APPROVE, "", edited)
    if asked.state == Approval.State.REJECTED:
        words = " ".join(one.message for one in given if one.type == DecisionType.REJECT)
        return Decided(DecisionType.REJECT, words, stop_run=any(one.stop_run for one in given))
    if asked.state == Approval.State.RESPONDED:
        return Decided(DecisionType.RESPOND, given[-1].message if given else "")
    return None
