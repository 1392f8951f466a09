"""What a driver is bound to for one drive of a run: the way to its models."""

from agentapp import llm, points
from agentapp.deadline import let_go_of_database
from agentapp.messages import Reply
from agentapp.state import RunState


class DriveRuntime:
    """The models of one run."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def complete(self, request: llm.Request) -> Reply:
        """Ask a model and wait for the whole reply. Raises ModelError."""
        return points.inference(self.state, request, _complete)

    def replay(self, request: llm.Request, reply: Reply) -> Reply:
        """Take a reply from a script as if a model had given it."""
        return points.inference(self.state, request, lambda _: reply)


def _complete(request: llm.Request) -> Reply:
    let_go_of_database()
    return llm.complete(request)
