"""What a driver is bound to for one drive of a run: the way to its models, behind their breakers."""

from collections.abc import Iterable

from django.conf import settings

from agentapp import breakers, llm, points
from agentapp.breakers import Thing
from agentapp.deadline import let_go_of_database
from agentapp.llm import ModelError
from agentapp.messages import Reply
from agentapp.state import RunState
from approvals import ledger

# These say that one request cannot be answered, or cannot be sent from here; not that the model fails.
_NOT_THE_MODELS = {"rejected", "context_window", "content_filter", "not_configured", "unknown_model"}


class DriveRuntime:
    """The models of one run."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def complete(self, request: llm.Request) -> Reply:
        """Ask a model and wait for the whole reply. Raises ModelError, or CircuitOpen without asking."""
        return points.inference(self.state, request, self._ask)

    def replay(self, request: llm.Request, reply: Reply) -> Reply:
        """Take a reply from a script as if a model had given it."""
        return points.inference(self.state, request, lambda _: reply)

    def _ask(self, request: llm.Request) -> Reply:
        things = breakers.of_model(request.model)
        _admit(self.state, things, request.timeout)
        let_go_of_database()
        try:
            reply = llm.complete(request)
        except ModelError as error:
            if error.code not in _NOT_THE_MODELS:
                with ledger.transaction():
                    breakers.failed(things[0], str(error))
            raise
        if breakers.need_a_look(self.state.run):
            with ledger.transaction():
                breakers.succeeded(self.state.run, things)
        return reply


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
