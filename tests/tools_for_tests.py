"""A module of tools, as TOOL_MODULES may name it."""

from typing import Any

from agentapp.tools.base import EffectLine, ToolContext, tool


@tool(effect="read")
def look_up_order(order: str) -> dict[str, Any]:
    """Look up one order.

    Args:
        order: The order's number.
    """
    return {"order": order}


def _balance(account: str) -> dict[str, Any]:
    return {"balance": 100, "account": account}


@tool(
    effect="irreversible",
    title="Pay {amount:money} to {account}",
    sentence="{amount:money} leaves and goes to {account}.",
    effects=(EffectLine(title="{amount:money} leaves", detail="Cannot be taken back."),),
    button="{amount:money}",
    snapshot=_balance,
    idempotency="key",
    timeout=12,
    max_attempts=2,
    locked=("account",),
    secret=("pin",),
    owner="payments team",
)
def pay_out(account: str, amount: float, pin: str, context: ToolContext) -> dict[str, Any]:
    """Pay money out.

    Args:
        account: Where it goes.
        amount: How much.
        pin: The account's secret number.
    """
    return {"paid": amount, "key": context.idempotency_key}


@tool
def send_letter(text: str) -> str:
    """Send a letter. It does not say what it does to the world."""
    return text
