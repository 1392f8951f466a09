"""What a driver is bound to for one drive of a run: the way to its models."""

from agentapp import llm
from agentapp.deadline import let_go_of_database
from agentapp.messages import Reply
from agentapp.state import RunState


class DriveRuntime:
    """The models of one run."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def complete(self, request: llm.Request) -> Reply:
        """Ask a model and wait for the whole reply. Raises ModelError."""
        let_go_of_database()
        return llm.complete(request)
