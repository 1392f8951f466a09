"""Plans for tests: an agent that may plan, and a tool whose calls depend on a state of the world."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User

from agentapp.models import Run, Tool
from agentapp.tools.base import EffectLine, ToolError, tool
from approvals.models import Approval
from tests.clerk_tools import balance_of, note
from tests.conftest import Clerk, call, calls, install_tools, says

MODULE = "agentapp.tools.planning"


@tool(
    effect="compensable",
    title="Refund {amount:money} to {account}",
    sentence="The agent will refund {amount:money} to {snapshot.holder} ({account}).",
    effects=(EffectLine("{amount:money} leaves", "The house account", "money"),),
    button="{amount:money}",
    snapshot=balance_of,
)
def refund(account: str, amount: float, how: str = "well") -> str:
    """Refund something, and fail on the way as told."""
    note("refund", account=account, amount=amount)
    if how == "broken":
        raise ToolError("the bank is closed")
    return f"refunded {amount} to {account}"


MEANWHILE: dict[str, Callable[[], Any]] = {}
"""What happens in the world while an agent looks at something."""


@tool(effect="read")
def look_away(name: str) -> str:
    """Look away, and let happen what happens."""
    MEANWHILE[name]()
    return "back"


def meanwhile(name: str, happens: Callable[[], Any]) -> dict[str, Any]:
    """One scripted reply, during which something happens."""
    MEANWHILE[name] = happens
    return calls(call(f"away-{name}", "look_away", name=name))


def let_plan(clerk: Clerk, settings: Any) -> Tool:
    """Give the clerk the tool that proposes plans."""
    settings.TOOL_MODULES = [*settings.TOOL_MODULES, MODULE]
    row = install_tools(MODULE)["propose_plan"]
    clerk.agent.tools.add(row)
    return row


def planned(name: str, /, **arguments: Any) -> dict[str, Any]:
    """One call of a plan."""
    return {"tool": name, "arguments": arguments}


def a_plan(*items: dict[str, Any], id: str = "plan", purpose: str = "Make good what went wrong.") -> dict[str, Any]:
    """One scripted reply that proposes a plan."""
    return calls(call(id, "propose_plan", purpose=purpose, calls=list(items)))


ANN = planned("refund", account="ann", amount=5)
BOB = planned("refund", account="bob", amount=7)
EVE = planned("label", text="settled")


def made(id: str, item: dict[str, Any], **others: Any) -> dict[str, Any]:
    """The call that an item of a plan stands for; `others` are arguments that differ."""
    return call(id, item["tool"], **{**item["arguments"], **others})


def approved_plan(
    clerk: Clerk, user: User, items: list[dict[str, Any]], *replies: dict[str, Any]
) -> tuple[Run, Approval]:
    """A run whose plan a person has approved, driven on from there, and the plan's request."""
    run = clerk.run(a_plan(*items), *replies, says("done"))
    [approval] = clerk.open(run)
    clerk.decide(approval, user)
    run = clerk.drive(run)
    approval.refresh_from_db()
    return run, approval
