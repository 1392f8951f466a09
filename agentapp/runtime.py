"""What a driver is bound to for one drive of a run: access to its models, behind their breakers."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from agentapp import breakers, budgets, drafts, llm, points, runs, secrecy
from agentapp.breakers import CircuitOpen, Thing
from agentapp.compilers import compile_messages
from agentapp.considered import GUIDED
from agentapp.deadline import let_go_of_database
from agentapp.drivers import get_driver
from agentapp.drivers.base import Driver, StepRequest
from agentapp.guidance_facts import known_to
from agentapp.hooks import HookFailed
from agentapp.llm import ModelError
from agentapp.messages import Reply, StopRun, ToolCall, Usage
from agentapp.models import Tool
from agentapp.recorded import Recorded
from agentapp.state import RunState
from agentapp.switches import Stopped
from agentapp.toolset import specs, tool_choice
from agentapp.transcript import decided
from approvals import ledger

log = logging.getLogger(__name__)

AT_ONCE = 8
"""How many requests of one step wait for models at the same time."""


class DriveRuntime:
    """The models of one run."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def complete(self, request: llm.Request, *, seen: bool = False) -> Reply:
        """Ask a model and wait for the whole reply. Raises ModelError, or CircuitOpen or Stopped without asking.

        `seen`: people may read it while it is written, unless something may still be removed from the whole.
        """
        watch = self._show if seen and self._stays_as_it_comes() else None
        return points.inference(self.state, request, lambda asked: self._ask(asked, watch))

    def complete_all(self, requests: Sequence[llm.Request]) -> list[Reply | ModelError]:
        """Send several requests at once and wait for all. Returns the outcomes in the same order.

        Hooks and breakers see them here one by one; only the waiting is done in threads, without a database.
        """
        state = self.state
        asked = [points.inference_begins(state, request) for request in requests]
        for model in dict.fromkeys(each.request.model for each in asked):
            slowest = max(each.request.timeout for each in asked if each.request.model == model)
            _admit(state, breakers.of_model(model), slowest)
        came = self._ask_at_once([each.request for each in asked])
        # Before hooks see any of them: what was spent is counted even if a hook ends the run.
        for reply in came:
            self._hear(reply)
        if len(came) < len(asked):
            raise Stopped
        return [self._taken(each, reply) for each, reply in zip(asked, came, strict=True)]

    def _ask_at_once(self, requests: Sequence[llm.Request]) -> list[Reply | ModelError]:
        """The outcome of each request; fewer than requested if the run was stopped before the rest."""
        asked: list[Future[Reply | ModelError]] = []
        with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="model") as threads:
            for request in requests:
                while sum(not each.done() for each in asked) >= AT_ONCE:
                    wait([each for each in asked if not each.done()], return_when=FIRST_COMPLETED)
                if not asked or len(asked) >= AT_ONCE:  # those in between are sent at the same moment
                    if not self.state.may_ask():
                        break
                    let_go_of_database()
                asked.append(threads.submit(_reply_or_error, request))
        return [each.result() for each in asked]

    def _taken(self, asked: points.Inference, reply: Reply | ModelError) -> Reply | ModelError:
        things = breakers.of_model(asked.request.model)
        if isinstance(reply, ModelError):
            _count_failure(self.state, things, reply)
            points.inference_failed(self.state, asked, reply)
            return reply
        self._count_success(things)
        return points.inference_ends(self.state, asked, reply)

    def replay(self, request: llm.Request, reply: Reply) -> Reply:
        """Take a reply from a script as if a model had given it."""
        return points.inference(self.state, request, lambda _: reply)

    def _ask(self, request: llm.Request, watch: Callable[[str], None] | None) -> Reply:
        things = breakers.of_model(request.model)
        _admit(self.state, things, request.timeout)
        if not self.state.may_ask():
            self.state.discard_draft()
            raise Stopped
        let_go_of_database()
        try:
            reply = llm.complete(request, watch)
        except ModelError as error:
            self.state.discard_draft()
            _count_failure(self.state, things, error)
            raise
        self._hear(reply)
        self._count_success(things)
        return reply

    def _hear(self, reply: Reply | ModelError) -> None:
        if isinstance(reply, Reply):
            self.state.heard += reply.usage

    def _count_success(self, things: list[Thing]) -> None:
        if breakers.need_a_look(self.state.run):
            with ledger.transaction():
                breakers.succeeded(self.state.run, things)

    def _stays_as_it_comes(self) -> bool:
        """Whether no hook may change a reply and it can name no secret argument, which only its calls would show."""
        state = self.state
        return not (
            state.hooks.at("after_inference_response") or secrecy.may_be_named(state.history, state.configuration.tools)
        )

    def _show(self, text: str) -> None:
        """Show people what has arrived so far. If that fails, the reply is not lost."""
        state = self.state
        try:
            if text and drafts.write(state.run, state.token, state.run.step_count + 1, text):
                state.drafted = True
        except DatabaseError:
            log.warning("The reply in run %s could not be shown while it was written", state.run.pk, exc_info=True)
        finally:
            let_go_of_database()


def driver_of(state: RunState) -> Driver:
    """The driver of a run, bound for this drive when first needed."""
    if state.driver is None:
        named = state.run.agent_snapshot["driver"]
        # The guided driver is used with a script too: the script holds only what a model would answer.
        state.driver = get_driver("scripted" if state.run.script is not None and named != GUIDED else named)
        state.driver.bind(DriveRuntime(state))
    return state.driver


def decide(state: RunState, disclosed: dict[str, Tool], *, may_call: bool) -> Reply:
    """The driver's decision about the next step. No transaction is open here. Raises ModelError."""
    run = state.run
    if run.opening is not None and not state.steps:
        return _opening(run.opening)
    if state.recorded is not None and state.recorded.is_replay:
        return _on_record(state.recorded, run.step_count + 1)
    has_called = any(rows.executions for rows in state.history)
    request = StepRequest(
        run_id=str(run.pk),
        step=decided(state.earlier.kept) + run.step_count + 1,
        agent=run.agent_snapshot,
        script=run.script,
        messages=compile_messages(run, state.conversation(), state.steps),
        tools=tuple(specs(disclosed)),
        tool_choice=tool_choice(run, disclosed, has_called) if may_call else "none",
        known=known_to(state, disclosed) if run.agent_snapshot["driver"] == GUIDED else None,
    )
    state.heard = Usage()
    try:
        return driver_of(state).next_step(request)
    except (ModelError, StopRun, HookFailed, CircuitOpen, Stopped):
        _count_heard(state)
        raise


def _opening(opening: Mapping[str, Any]) -> Reply:
    """The call with which the person who forked a run replaced its first decision. No model was asked for it."""
    call = ToolCall(opening["id"], opening["name"], opening["arguments"])
    return Reply(text=opening["text"], tool_calls=(call,), finish_reason="tool_call")


def _on_record(recorded: Recorded, step: int) -> Reply:
    reply = recorded.reply(step)
    if reply is None:
        raise ModelError(f"The run that this one replays has no step {step}.", code="record_ended")
    return reply


def _count_heard(state: RunState) -> None:
    """Count what the replies cost, even if a later one failed and no step came of them."""
    used = state.heard.credible
    if used != Usage():
        with ledger.transaction():
            run = state.locked()
            runs.add_usage(run, used)
            budgets.spend(run, used.cost)


def _reply_or_error(request: llm.Request) -> Reply | ModelError:
    """Runs in its own thread: an exception raised there would lose the other replies."""
    try:
        return llm.complete(request)
    except ModelError as error:
        return error


def _count_failure(state: RunState, things: Sequence[Thing], error: ModelError) -> None:
    if error.is_failure and not state.run.is_mocked:
        with ledger.transaction():
            breakers.failed(things[0], str(error), state.run)


def admit_agent(state: RunState) -> None:
    """Let a run of an agent begin. Raises CircuitOpen if the agent's runs keep failing. A run under way goes on."""
    if not state.steps:
        _admit(state, breakers.of_agent(state.run), settings.MODEL_TIMEOUT_SECONDS)


def _admit(state: RunState, things: Iterable[Thing], probe_seconds: float) -> None:
    known = [thing for thing in things if thing in state.configuration.breakers]
    if not known:
        return
    state.just_claimed = False
    with ledger.transaction():
        circuit = breakers.admit(known, probe_seconds)
    if circuit is not None:
        raise circuit
