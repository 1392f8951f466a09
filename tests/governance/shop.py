"""A shop whose tools record what they did and the state of the world at that moment."""

from dataclasses import dataclass, field, replace
from typing import Any

from agentapp.tools.base import ToolContext, tool


@dataclass(frozen=True)
class Allowed:
    """What a grant allows: refunds up to an amount, with one version of the tool, at most this many times."""

    maker: str
    most: int
    version: str
    hits: int


@dataclass(frozen=True)
class World:
    """What the machine has made of the world: who may decide what, and the state of tools and balances."""

    groups: dict[str, frozenset[str]] = field(default_factory=dict)
    active: frozenset[str] = frozenset()
    versions: dict[str, str] = field(default_factory=dict)
    balance: int = 100
    lent: frozenset[tuple[str, str, str]] = frozenset()
    """Who has delegated to whom the right to decide for which group."""
    widened: frozenset[str] = frozenset()
    """Requests that Managers may decide as well, because nobody decided."""
    allowed: dict[str, "Allowed"] = field(default_factory=dict)
    """What each grant allows, by its reference. Revoked and expired grants are not included."""


@dataclass(frozen=True)
class Effect:
    """One thing a tool did: its arguments, its key, and the world it happened in."""

    tool: str
    arguments: dict[str, Any]
    key: str
    world: World


class Now:
    """The world as it is."""

    world = World()
    effects: list[Effect] = []

    @classmethod
    def change(cls, **changes: Any) -> None:
        cls.world = replace(cls.world, **changes)

    @classmethod
    def begin(cls, world: World) -> None:
        cls.world, cls.effects = world, []

    @classmethod
    def note(cls, name: str, key: str, **arguments: Any) -> str:
        cls.effects.append(Effect(name, arguments, key, cls.world))
        return "done"


def balance_of(account: str) -> dict[str, Any]:
    return {"balance": Now.world.balance}


@tool(effect="compensable", snapshot=balance_of)
def refund(account: str, amount: int, context: ToolContext) -> str:
    """Pay somebody back."""
    return Now.note("refund", context.idempotency_key, account=account, amount=amount)


@tool(effect="irreversible")
def wire(account: str, amount: int, context: ToolContext) -> str:
    """Send money for good."""
    return Now.note("wire", context.idempotency_key, account=account, amount=amount)
