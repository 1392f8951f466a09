"""Where the loop stops for a run's hooks, and tells its observers. No transaction is open at any of these points."""

import dataclasses
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentapp import hooks, llm, observe, runs
from agentapp.executions import Proposal
from agentapp.hooks import HookFailed
from agentapp.messages import Reply, StopRun, StopSignal, ToolCall, ToolResult
from agentapp.models import Run, ToolExecution
from agentapp.proposals import MAX_CALLS_PER_STEP
from agentapp.reasons import Reason, StopReason
from agentapp.state import RunState
from agentapp.transcript import StepRows
from approvals import ledger
from approvals.digest import MalformedJSON, canonical, parse
from approvals.models import Event

log = logging.getLogger(__name__)

BLOCKED = "A hook blocked this call. It did not run."
AFTER_BLOCK = "An earlier call was blocked, which ends the run."
HOOKS_RAN = "step.hooks_ran"
# Why a run ends after people rejected a call or let it expire, by the reason that the call was answered with.
_BY_PEOPLE: dict[str, str] = {
    Reason.APPROVAL_REJECTED: StopReason.APPROVAL_DENIED,
    Reason.APPROVAL_EXPIRED: StopReason.APPROVAL_EXPIRED,
}


def facts(run: Run, state: str = "") -> hooks.RunFacts:
    return hooks.RunFacts(
        id=str(run.pk),
        agent=run.agent_snapshot["name"],
        state=state or run.state,
        route=run.route,
        conversation_id=str(run.conversation_id or ""),
        customer=run.customer,
        starter=run.starter.get_username() if run.starter else "",
        title=run.title,
        input=run.input,
        metadata=run.metadata,
        steps=run.step_count,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        cost=run.cost,
    )


# --- The run and its steps -----------------------------------------------------------------------


def begin(state: RunState) -> None:
    """Load the run's hooks. Before its first step, run the hooks that come before everything."""
    state.hooks = hooks.load(state.run.agent_snapshot, mocked=state.run.is_mocked)
    if not state.steps and not state.run.model_failures:
        observe.emit("execution.started", state.run.pk, {"agent": state.run.agent_snapshot["name"]})
        _run(state, "before_execution", lambda: hooks.BeforeExecution(run=facts(state.run)))
    if state.steps and state.steps[-1].executions and state.hooks.at("after_step"):
        state.step_under_way = True  # the previous worker may have died before running its hooks


def before_step(state: RunState) -> None:
    number, tools = state.run.step_count + 1, tuple(sorted(state.disclosed))
    observe.emit("step.started", state.run.pk, {"step": number})
    _run(state, "before_step", lambda: hooks.BeforeStep(run=facts(state.run), step=number, tools=tools))


def after_step(state: RunState) -> bool:
    """A step is over. True: a hook wants the run to go on although the model would end it.

    What the hooks said is recorded, so that the next worker neither loses it nor runs them again.
    """
    rows, hooked = state.steps[-1], state.hooks.at("after_step")
    said = _said_after(state, rows) if hooked else None
    if said is not None:
        return said
    before = hooks.AfterStep(
        run=facts(state.run),
        step=rows.step.number,
        text=rows.step.text,
        calls=tuple(execution.name for execution in rows.executions),
        error=rows.step.error,
    )
    after, _ = _run(state, "after_step", lambda: before)
    go_on = after is not None and after.continue_run
    if hooked:
        with ledger.transaction():
            chain = ledger.run_chain(state.locked().pk)
            ledger.record(chain, HOOKS_RAN, {"step": rows.step.number, "continues": go_on})
    observe.emit("step.completed", state.run.pk, {"step": rows.step.number, "error": rows.step.error})
    wanted = {"step": rows.step.number, "calls": len(rows.executions), "requested": go_on}
    observe.emit("continuation.evaluated", state.run.pk, {**wanted, "continues": go_on or bool(rows.executions)})
    return go_on


def _said_after(state: RunState, rows: StepRows) -> bool | None:
    """Whether the hooks after a step wanted the run to go on. None: they have not finished."""
    ran = Event.objects.filter(chain=ledger.run_chain(state.run.pk), type=HOOKS_RAN).order_by("-seq").first()
    return bool(ran.data["continues"]) if ran is not None and ran.data["step"] == rows.step.number else None


def before_end(state: RunState, final: str, signal: StopSignal) -> None:
    """The run is about to end. If it failed, the hooks for errors run first."""
    if final == Run.State.FAILED:
        failed = hooks.OnError(run=facts(state.run), message=signal.message, source=signal.source)
        _run_to_the_end(state, "on_error", failed)
        observe.emit("execution.failed", state.run.pk, {"message": signal.message})
    context = hooks.OnStop(
        run=facts(state.run, final), reason=signal.reason, message=signal.message, source=signal.source
    )
    _run_to_the_end(state, "on_stop", context)
    observe.emit("execution.stopped", state.run.pk, dataclasses.asdict(signal))


def after_execution(state: RunState, final: str, signal: StopSignal, answer: str) -> None:
    context = hooks.AfterExecution(
        run=facts(state.run, final), reason=signal.reason, message=signal.message, answer=answer
    )
    _run_to_the_end(state, "after_execution", context)
    observe.emit("execution.completed", state.run.pk, {"state": str(final), "reason": str(signal.reason)})


def tokens_reported(state: RunState, reply: Reply) -> None:
    used = reply.usage
    if used.input_tokens or used.output_tokens:
        data = {"step": state.run.step_count, "input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
        observe.emit("tokens.reported", state.run.pk, data)


# --- The model -----------------------------------------------------------------------------------


def inference(state: RunState, request: llm.Request, ask: Callable[[llm.Request], Reply]) -> Reply:
    """A model's reply to a request, both as changed by hooks."""
    asked = inference_begins(state, request)
    try:
        reply = ask(asked.request)
    except llm.ModelError as error:
        inference_failed(state, asked, error)
        raise
    return inference_ends(state, asked, reply)


@dataclass(frozen=True)
class Inference:
    """A request as it goes to a model. `id` is empty if no hook or observer looks at it."""

    request: llm.Request
    id: str = ""


def inference_begins(state: RunState, request: llm.Request) -> Inference:
    """A request that is about to be sent, as changed by hooks."""
    if not observe.is_watched() and not any(
        state.hooks.at(point) for point in ("before_inference_request", "after_inference_response")
    ):
        return Inference(request)
    run, step, about = state.run, state.run.step_count + 1, uuid.uuid4().hex
    before = hooks.BeforeInferenceRequest(run=facts(run), step=step, inference_id=about, request=request)
    asked, _ = _run(state, "before_inference_request", lambda: before)
    request = asked.request if asked else request
    observe.emit("inference.started", run.pk, {"inference": about, "step": step, "request": request})
    return Inference(request, about)


def inference_failed(state: RunState, asked: Inference, error: llm.ModelError) -> None:
    """A request that got no reply."""
    if asked.id:
        data = {"inference": asked.id, "step": state.run.step_count + 1, "message": str(error)}
        observe.emit("inference.failed", state.run.pk, data)


def inference_ends(state: RunState, asked: Inference, reply: Reply) -> Reply:
    """The reply to a request, as changed by hooks."""
    if not asked.id:
        return reply
    run, step = state.run, state.run.step_count + 1
    after = hooks.AfterInferenceResponse(
        run=facts(run), step=step, inference_id=asked.id, request=asked.request, reply=reply
    )
    answered, _ = _run(state, "after_inference_response", lambda: after)
    reply = _honest(reply, answered.reply) if answered else reply
    observe.emit("inference.completed", run.pk, {"inference": asked.id, "step": step, "reply": reply})
    return reply


def _honest(given: Reply, made: Reply) -> Reply:
    """Hooks cannot change what was spent. What the provider wants back unchanged is dropped if the words changed."""
    same = (given.text, given.tool_calls) == (made.text, made.tool_calls)
    parts = None if not same and made.provider_parts == given.provider_parts else made.provider_parts
    return dataclasses.replace(made, usage=given.usage, provider_parts=parts)


# --- Calls ---------------------------------------------------------------------------------------


@dataclass
class Guarded:
    """A step's calls as hooks left them, still to be checked."""

    calls: list[ToolCall]
    answered: dict[int, Proposal] = field(default_factory=dict)
    """By position: calls that hooks have blocked or answered. They are not checked, and do not run."""
    proposed: dict[int, ToolCall] = field(default_factory=dict)
    """By position: what the model had proposed, if a hook changed it."""
    changers: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def marked(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """The checked proposals, each with what hooks did to it."""
        return [
            dataclasses.replace(
                proposal, proposed=self.proposed.get(index), changed_by=list(self.changers.get(index, ()))
            )
            for index, proposal in enumerate(proposals)
        ]


def guard(state: RunState, calls: Sequence[ToolCall]) -> Guarded:
    """Let hooks change, answer or block calls before anything about them is checked."""
    guarded = Guarded([call if call.id else dataclasses.replace(call, id=f"call_{uuid.uuid4().hex}") for call in calls])
    if not state.hooks.at("before_tool_use"):
        return guarded
    # Calls beyond the limit are refused whatever a hook would do with them.
    for index, call in enumerate(guarded.calls[:MAX_CALLS_PER_STEP]):
        try:
            blocked = _guard_one(state, guarded, index, call)
        except (StopRun, HookFailed) as raised:
            why = "A hook stopped the run." if isinstance(raised, StopRun) else str(raised)
            guarded.answered = {
                place: guarded.answered.get(place) or _cancelled(state, each, why)
                for place, each in enumerate(guarded.calls)
            }
            # This is stored with the step, so that the next worker ends the run.
            guarded.answered[index] = _stopping_proposal(guarded.answered[index], raised)
            break
        if blocked and state.run.agent_snapshot.get("stop_on_tool_block"):
            rest = range(index + 1, len(guarded.calls))
            guarded.answered |= {place: _cancelled(state, guarded.calls[place], AFTER_BLOCK) for place in rest}
            break
    return guarded


def _guard_one(state: RunState, guarded: Guarded, index: int, call: ToolCall) -> bool:
    """Let hooks see one call. True: they blocked it."""
    arguments = _object(call.arguments_text)
    before = hooks.BeforeToolUse(
        run=facts(state.run), step=state.run.step_count + 1, call_id=call.id, name=call.name, arguments=arguments,
        arguments_text=call.arguments_text,
    )  # fmt: skip
    after, changers = _run(state, "before_tool_use", lambda: before)
    if after is None or not changers:
        return False
    guarded.changers[index] = changers
    changed = _changed_call(call, before, after, changers[-1])
    if changed != call:
        guarded.proposed[index], guarded.calls[index] = call, changed
    tool = state.configuration.tools.get(changed.name)
    if after.blocked:
        answer = ToolResult(
            status="refused", reason=Reason.BLOCKED_BY_HOOK, message=after.message or BLOCKED, trust="trusted_system"
        )
        guarded.answered[index] = Proposal(changed, tool, refusal=answer, was_blocked=True)
    elif after.result is not None:
        trusted = dataclasses.replace(after.result, trust=after.result.trust or "untrusted_content")
        guarded.answered[index] = Proposal(changed, tool, refusal=trusted)
    return after.blocked


def _changed_call(call: ToolCall, before: hooks.BeforeToolUse, after: hooks.BeforeToolUse, source: str) -> ToolCall:
    text = call.arguments_text
    if repr(after.arguments) != repr(before.arguments):
        try:
            text = canonical(after.arguments)
        except (MalformedJSON, TypeError, ValueError) as error:
            raise HookFailed(f"Hook {source!r} returned arguments that are not plain JSON: {error}", source) from error
    return dataclasses.replace(call, name=after.name, arguments_text=text)


def after_tool_use(
    state: RunState, execution: ToolExecution, result: ToolResult
) -> tuple[ToolResult, ToolResult | None]:
    """A result as changed by hooks, and the tool's own result if they changed it.

    No hook can turn an unknown outcome into a known one, and a tool that stopped the run has the last word.
    """
    if not state.hooks.at("after_tool_use") or result.reason == Reason.OUTCOME_UNKNOWN or _stops(result):
        return result, None
    before = hooks.AfterToolUse(
        run=facts(state.run),
        step=state.steps[-1].step.number,
        call_id=execution.call_id,
        name=execution.name,
        arguments=_object(execution.executed_text) or {},
        result=result,
    )
    try:
        after, _ = _run(state, "after_tool_use", lambda: before)
    except StopRun as stop:
        return stopping(result, stop), None
    except HookFailed as failed:
        # The call has run, and that stays on record; the run ends when the result is stored.
        return stopping(result, failed), None
    changed = after is not None and bool(hooks.changed_fields(before, dataclasses.replace(after, shared=before.shared)))
    return (after.result, result) if after is not None and changed else (result, None)


def stopping(result: ToolResult, raised: StopRun | HookFailed, source: str = "") -> ToolResult:
    """A result that ends the run once it is stored, whichever worker reads it."""
    signal = signal_of(raised, source)
    return dataclasses.replace(result, control={**result.control, "stop": dataclasses.asdict(signal)})


def signal_of(raised: StopRun | HookFailed, source: str = "") -> StopSignal:
    if isinstance(raised, StopRun):
        return StopSignal(StopReason.STOP_REQUESTED, str(raised), raised.context, raised.source or source)
    return StopSignal(StopReason.ERROR, str(raised), source=raised.source)


def stop_wanted(state: RunState, rows: StepRows) -> StopSignal | None:
    """Why the outcome of a step's calls ends the run, if it does."""
    signal = stop_of_calls(rows)
    if signal is not None or rows.open or not state.run.agent_snapshot.get("stop_on_tool_block"):
        return signal
    blocked = next((execution for execution in rows.executions if execution.was_blocked), None)
    if blocked is None:
        return None
    return StopSignal(StopReason.BLOCKED_BY_HOOK, f"A hook blocked {blocked.name}: {blocked.message}", source="hook")


def stop_of_calls(rows: StepRows) -> StopSignal | None:
    """Why a tool or a hook stopped the run at an answered call of a step, if any did."""
    for execution in rows.executions:
        asked = execution.control.get("stop") if execution.is_answered else None
        if isinstance(asked, dict) and asked.get("reason") == _BY_PEOPLE.get(execution.reason, ""):
            return StopSignal(_BY_PEOPLE[execution.reason], execution.message)
        if isinstance(asked, dict):
            message, context = str(asked.get("message", "")), asked.get("context")
            failed = asked.get("reason") == StopReason.ERROR
            return StopSignal(
                StopReason.ERROR if failed else StopReason.STOP_REQUESTED,
                message or "A tool asked to stop.",
                context if isinstance(context, dict) else {},
                str(asked.get("source") or f"tool:{execution.name}"),
            )
    return None


def _stops(result: ToolResult) -> bool:
    return "stop" in result.control and result.data is None


def _cancelled(state: RunState, call: ToolCall, why: str) -> Proposal:
    tool = state.configuration.tools.get(call.name)
    return Proposal(
        call, tool, refusal=ToolResult(status="refused", reason=Reason.CANCELLED, message=why, trust="trusted_system")
    )


def _stopping_proposal(proposal: Proposal, raised: StopRun | HookFailed) -> Proposal:
    assert proposal.refusal is not None
    return dataclasses.replace(proposal, refusal=stopping(proposal.refusal, raised))


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = parse(text or "{}")
    except MalformedJSON:
        return None
    return found if isinstance(found, dict) else None


# --- Running them --------------------------------------------------------------------------------


def _run[C: hooks.Context](state: RunState, point: str, make: Callable[[], C]) -> tuple[C | None, tuple[str, ...]]:
    """Run a point's hooks on its context. None: it has no hooks, and the context was not even made."""
    if not state.hooks.at(point):
        return None, ()
    state.just_claimed = False

    def violated(name: str, at: str, what: str) -> None:
        with ledger.transaction():
            if runs.lock(state.run.pk) is not None:
                data = {"hook": name, "point": at, "field": what}
                ledger.record(ledger.run_chain(state.run.pk), "hook.contract_violated", data)

    return state.hooks.run(point, make(), violated)


def _run_to_the_end(state: RunState, point: str, context: hooks.Context) -> None:
    """Run the hooks of a run that is ending. What they raise is logged, and the run ends all the same."""
    try:
        _run(state, point, lambda: context)
    except (StopRun, HookFailed) as raised:
        log.warning("A hook of %s raised on %s: %s", state.run.pk, point, raised)
