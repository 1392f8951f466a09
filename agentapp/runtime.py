"""What a driver is bound to for one drive of a run: the way to its models, behind their breakers."""

import logging
from collections.abc import Callable, Iterable

from django.conf import settings
from django.db import DatabaseError

from agentapp import breakers, drafts, llm, points
from agentapp.breakers import Thing
from agentapp.deadline import let_go_of_database
from agentapp.drivers import get_driver
from agentapp.drivers.base import Driver
from agentapp.llm import ModelError
from agentapp.messages import Reply
from agentapp.state import RunState
from approvals import ledger

log = logging.getLogger(__name__)

# These say that one request cannot be answered, or cannot be sent from here; not that the model fails.
_NOT_THE_MODELS = {"rejected", "context_window", "content_filter", "not_configured", "unknown_model"}


class DriveRuntime:
    """The models of one run."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def complete(self, request: llm.Request, *, seen: bool = False) -> Reply:
        """Ask a model and wait for the whole reply. Raises ModelError, or CircuitOpen without asking.

        `seen`: people may read it while it is written; not where a hook may still change it.
        """
        watch = self._show if seen and not self.state.hooks.at("after_inference_response") else None
        return points.inference(self.state, request, lambda asked: self._ask(asked, watch))

    def replay(self, request: llm.Request, reply: Reply) -> Reply:
        """Take a reply from a script as if a model had given it."""
        return points.inference(self.state, request, lambda _: reply)

    def _ask(self, request: llm.Request, watch: Callable[[str], None] | None) -> Reply:
        things = breakers.of_model(request.model)
        _admit(self.state, things, request.timeout)
        let_go_of_database()
        try:
            reply = llm.complete(request, watch)
        except ModelError as error:
            self.state.discard_draft()
            if error.code not in _NOT_THE_MODELS:
                with ledger.transaction():
                    breakers.failed(things[0], str(error))
            raise
        if breakers.need_a_look(self.state.run):
            with ledger.transaction():
                breakers.succeeded(self.state.run, things)
        return reply

    def _show(self, text: str) -> None:
        """Let people see what has come so far. That they cannot is no reason to lose the reply."""
        state = self.state
        try:
            if text and drafts.write(state.run, state.token, state.run.step_count + 1, text):
                state.drafted = True
        except DatabaseError:
            log.warning("What the model of %s says could not be shown while it is written", state.run.pk, exc_info=True)
        finally:
            let_go_of_database()


def driver_of(state: RunState) -> Driver:
    """The driver of a run, bound for this drive when it is first wanted."""
    if state.driver is None:
        state.driver = get_driver("scripted" if state.run.script is not None else state.run.agent_snapshot["driver"])
        state.driver.bind(DriveRuntime(state))
    return state.driver


def admit_agent(state: RunState) -> None:
    """Let a run of an agent begin. Raises CircuitOpen when its runs keep failing. One under way goes on."""
    if not state.steps:
        _admit(state, breakers.of_agent(state.run), settings.MODEL_TIMEOUT_SECONDS)


def _admit(state: RunState, things: Iterable[Thing], probe_seconds: float) -> None:
    known = [thing for thing in things if thing in state.configuration.breakers]
    if not known:
        return
    with ledger.transaction():
        circuit = breakers.admit(known, probe_seconds)
    if circuit is not None:
        raise circuit
