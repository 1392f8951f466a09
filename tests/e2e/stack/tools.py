"""What the agent of these tests can do. Effects go to a file, since tools run in the worker's process."""

from typing import Annotated

from pydantic import Field

from agentapp.tools.base import EffectLine, ToolContext, tool
from tests import hostile
from tests.faults.world import happen


@tool(
    effect="irreversible",
    title="Refund {amount:money} for order {order}",
    sentence="The agent will return {amount:money} for order {order}.",
    effects=(EffectLine("{amount:money} leaves the shop", "It cannot be taken back", "money"),),
    button="{amount:money}",
    locked=("order",),
)
def refund(order: str, amount: Annotated[float, Field(gt=0, le=500)], context: ToolContext, note: str = "") -> str:
    """Return what a customer has paid.

    Args:
        order: The order.
        amount: How much.
        note: Message to the customer.
    """
    happen("refund", f"{order} {amount:.2f}", context.idempotency_key)
    return f"Returned {amount:.2f} for order {order}."


@tool(effect="read", max_attempts=1)
def read_messages(which: list[str]) -> str:
    """Read what customers wrote.

    Args:
        which: Which messages; none: a megabyte of all of them.
    """
    return "\n".join(hostile.MESSAGES[name] for name in which) or hostile.megabyte()
