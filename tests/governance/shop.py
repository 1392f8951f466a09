"""A shop whose tools note, beside what they did, how the world stood at that moment."""

from dataclasses import dataclass, field, replace
from typing import Any

from agentapp.tools.base import ToolContext, tool


@dataclass(frozen=True)
class Allowed:
    """What somebody allows for a while: refunds up to an amount, by the tool of a version, so often at most."""

    maker: str
    most: int
    version: str
    hits: int


@dataclass(frozen=True)
class World:
    """What the machine has made of the world: who may decide what, how tools and balances stand."""

    groups: dict[str, frozenset[str]] = field(default_factory=dict)
    active: frozenset[str] = frozenset()
    versions: dict[str, str] = field(default_factory=dict)
    balance: int = 100
    lent: frozenset[tuple[str, str, str]] = frozenset()
    """Who has lent to whom the right to decide for which group."""
    widened: frozenset[str] = frozenset()
    """Requests about which Managers may decide as well, because nobody decided."""
    allowed: dict[str, "Allowed"] = field(default_factory=dict)
    """By the reference of a grant what it allows. One that was revoked or is over is not among them."""


@dataclass(frozen=True)
class Effect:
    """One thing a tool did: with which arguments, under which key, and in which world."""

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
