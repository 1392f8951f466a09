"""Tools for the tests of the runtime. They write down what they did, so that a test can count effects."""

import threading
from typing import Annotated

from pydantic import Field

from agentapp.tools.base import EffectLine, ToolContext, ToolError, tool

EFFECTS: list[tuple[str, dict[str, object], str]] = []
WORLD: dict[str, object] = {}
_lock = threading.Lock()


def note(name: str, arguments: dict[str, object], key: str) -> None:
    with _lock:
        EFFECTS.append((name, arguments, key))


@tool(effect="read", trust="trusted_system")
def look_up(what: str) -> dict[str, str]:
    """Look something up.

    Args:
        what: What to look up.
    """
    note("look_up", {"what": what}, "")
    return {"found": what}


def balance(account: str) -> dict[str, object]:
    return {"account": account, "balance": WORLD.get(account, 100)}


@tool(
    effect="irreversible",
    title="Pay {amount:money} to {account}",
    sentence="The agent will pay {amount:money} to {account}.",
    effects=(EffectLine("{amount:money} leaves", "The house account", "money"),),
    button="{amount:money}",
    snapshot=balance,
    locked=("account",),
)
def pay(account: str, amount: Annotated[float, Field(gt=0, le=1000)], context: ToolContext, note_: str = "") -> str:
    """Pay somebody.

    Args:
        account: Who is paid.
        amount: How much.
        note_: What for.
    """
    note("pay", {"account": account, "amount": amount}, context.idempotency_key)
    return f"paid {amount} to {account}"


@tool(effect="irreversible", idempotency="key", title="Pay once {amount:money} to {account}")
def pay_once(account: str, amount: float, context: ToolContext) -> str:
    """Pay somebody, once per key."""
    note("pay_once", {"account": account, "amount": amount}, context.idempotency_key)
    return f"paid {amount} to {account}"


@tool(effect="reversible")
def label(text: str) -> str:
    """Put a label on something."""
    note("label", {"text": text}, "")
    return text


@tool(effect="read")
def broken(text: str) -> str:
    """A read that fails."""
    raise ToolError(f"cannot read {text}")
