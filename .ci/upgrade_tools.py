"""What the agent of `upgrades.py` can do. Each effect is a line in the file that WORLD names."""

import os
from pathlib import Path

from agentapp.tools.base import tool
from agentapp.tools.context import OutcomeUnknown

WORLD = Path(os.environ["WORLD"])


def effects() -> list[str]:
    return WORLD.read_text().splitlines() if WORLD.exists() else []


def _happen(item: str) -> None:
    with WORLD.open("a") as world:  # one short line at once, also from several processes
        world.write(f"{item}\n")


@tool(effect="read", owner="Shop")
def look(item: str) -> str:
    """Look up an order.

    Args:
        item: The order.
    """
    return f"{item} is paid."


@tool(effect="irreversible", owner="Shop")
def pay(item: str) -> str:
    """Pay for an order.

    Args:
        item: The order.
    """
    _happen(item)
    return f"{item} is paid."


@tool(effect="irreversible", owner="Shop")
def pay_in_doubt(item: str) -> str:
    """Pay for an order. The first answer gets lost on the way.

    Args:
        item: The order.
    """
    is_first = item not in effects()
    _happen(item)
    if is_first:
        raise OutcomeUnknown(f"Nobody answered for {item}.")
    return f"{item} is paid."
