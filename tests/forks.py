"""A run that looks something up and pays, for tests to fork and replay; and what its model is sent."""

from typing import Any

from django.contrib.auth.models import User

from agentapp import actions
from agentapp.compilers import compile_messages, load_earlier
from agentapp.models import Run, ToolExecution
from agentapp.transcript import load_steps
from tests.conftest import call, calls, says

LOOK = calls(call("l", "look_up", what="kettle"), text="I look.")
PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")
BOTH = calls(call("a", "look_up", what="cup"), call("b", "pay", account="ana", amount=5), text="Two things.")
DONE = says("Paid.")


def fork(run: Run, user: User, step: int = 1, **changed: Any) -> Run:
    return actions.fork_run(run.pk, actions.Fork(step=step, **changed), user)


def sent(run: Run) -> list[Any]:
    """What the model of a run is sent for its next step."""
    return list(compile_messages(run, load_earlier(run), load_steps(run)))


def acts(run: Run) -> list[str]:
    """The calls of a run that may have changed something."""
    begun = ToolExecution.objects.filter(run=run, consequential=True, started_at__isnull=False)
    return list(begun.order_by("step__number", "index").values_list("name", flat=True))
