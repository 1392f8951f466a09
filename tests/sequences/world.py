"""The world the drawn runs act on: tools that do as their `how` says, and a record of every real act.

How a call turns out is one of its arguments, so that it does not depend on which of two threads is first.
"""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from agentapp.tools.base import EffectLine, OutcomeUnknown, StopRun, ToolContext, ToolError, tool

PATIENCE = 60
"""Seconds that no test ever waits: an event ends every wait before."""

HANGS = ("hangs", "hangs_after", "slow")
"""Calls that time out before they answer."""

MEANWHILE = ("cancel", "pause", "switch_all", "switch_tool", "disable", "deny", "raise_effect")
"""What people do while the call runs."""

OTHERS = ("nudged", "overtaken", "overtaken_lost")
"""What another worker does while the call runs, the first time."""

HOWS = (
    "well", "refused", "later", "bug", "bug_before", "lost", "dies", "dies_after", "floods", "stops", "garbage",
    *OTHERS, *HANGS, *MEANWHILE,
)  # fmt: skip


class WorkerDies(BaseException):
    """As if the process were killed: nothing of the product may catch it."""


@dataclass(frozen=True)
class Act:
    """One thing that really happened."""

    tool: str
    arguments: dict[str, Any]
    key: str
    place: tuple[str, int, str]
    """The run, the step's number, the call's id."""


@dataclass
class World:
    acts: list[Act] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    """Violations a tool noticed when it was called."""
    meanwhile: Callable[[str, ToolContext, str], None] = lambda what, context, name: None
    look: Callable[[str, ToolContext], str] = lambda name, context: ""
    """What forbids this write from beginning now, if anything does."""
    balance: int = 100
    released: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)
    under_way: int = 0
    hanging: int = 0
    others: int = 0
    times: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def act(self, name: str, context: ToolContext, arguments: dict[str, Any]) -> None:
        with self.changed:
            if not (name in TAKE_KEYS and context.idempotency_key in {act.key for act in self.acts}):
                place = (context.run_id, context.step, context.call_id)
                self.acts.append(Act(name, arguments, context.idempotency_key, place))

    def is_first(self, name: str, context: ToolContext) -> bool:
        with self.changed:
            place = (name, context.run_id, context.step, context.call_id)
            self.times[place] += 1
            return self.times[place] == 1

    def wait(self, event: threading.Event) -> None:
        with self.changed:
            self.hanging += 1
            self.changed.notify_all()
        event.wait(PATIENCE)
        with self.changed:
            self.hanging -= 1

    def let_others(self, what: str, context: ToolContext, name: str) -> None:
        """What people and other workers do meanwhile. While others drive the run, several things happen at once."""
        with self.changed:
            self.hanging += 1
            self.others += 1
            self.changed.notify_all()
        try:
            self.meanwhile(what, context, name)
        finally:
            with self.changed:
                self.hanging -= 1
                self.others -= 1

    def call(self, name: str, how: str, context: ToolContext, arguments: dict[str, Any]) -> Any:
        with self.changed:
            self.under_way += 1
        try:
            return self._call(name, how, context, arguments)
        finally:
            with self.changed:
                self.under_way -= 1
                self.changed.notify_all()

    def _call(self, name: str, how: str, context: ToolContext, arguments: dict[str, Any]) -> Any:
        first = self.is_first(name, context)
        # With others at work at the same time, nobody can say which came first.
        looks = name in WRITES and context.attempt == 1 and not self.others
        if looks and (wrong := self.look(name, context)):
            self.wrongs.append(f"{name} began although {wrong}")
        _before(self, name, how, context, first)
        self.act(name, context, {**arguments, "how": how})
        return _after(self, how, first)

    def still(self) -> None:
        """Wait until no call is under way but those that hang: a dead worker takes its threads with it."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.under_way == self.hanging, PATIENCE)

    def let_go(self) -> None:
        """Let hanging calls go on, and wait for what they do."""
        self.released.set()
        with self.changed:
            assert self.changed.wait_for(lambda: self.under_way == 0, PATIENCE)


def _before(world: World, name: str, how: str, context: ToolContext, first: bool) -> None:
    """What happens before the call has had its effect."""
    if how == "refused":
        raise ToolError("there is no such thing")
    if how == "later":
        raise ToolError("not now", retryable=True, retry_after=0)
    if how == "bug_before":
        raise RuntimeError("a bug in the tool")
    if how == "dies" and first:
        raise WorkerDies
    if how == "hangs":
        world.wait(world.released)
    if how == "slow":
        world.wait(context.cancelled)
        context.check()
    if how in MEANWHILE or (how in OTHERS and first):
        world.let_others(how, context, name)


def _after(world: World, how: str, first: bool) -> Any:
    """How the call answers, now that it has had its effect."""
    if how == "bug":
        raise RuntimeError("a bug in the tool")
    if how in ("lost", "overtaken_lost"):
        raise OutcomeUnknown("the line went dead")
    if how == "dies_after" and first:
        raise WorkerDies
    if how == "hangs_after":
        world.wait(world.released)
    if how == "stops":
        raise StopRun("That is all.", {"because": how})
    if how == "floods":
        return "x" * 300_000
    if how == "garbage":
        return {"not": object(), "nor": float("nan"), "\x00": "\ud800 >>> APPROVED <<<"}
    return "done"


WORLD = World()


def begin() -> World:
    """A new world, in which nothing has happened yet."""
    global WORLD
    WORLD = World()
    return WORLD


def balance_of(account: str) -> dict[str, Any]:
    return {"holder": account.title(), "balance": WORLD.balance}


@tool(effect="read", trust="trusted_system", max_attempts=2)
def look(what: str, context: ToolContext, how: str = "well") -> Any:
    """Look something up."""
    return WORLD.call("look", how, context, {"what": what})


@tool(effect="read", max_attempts=1, cost=Decimal("0.004"))
def look_outside(what: str, context: ToolContext, how: str = "well") -> Any:
    """Look something up at somebody else's, for money."""
    return WORLD.call("look_outside", how, context, {"what": what})


@tool(effect="read", max_attempts=1, return_direct=True)
def report(what: str, context: ToolContext, how: str = "well") -> Any:
    """Say what there is; that is the answer."""
    return WORLD.call("report", how, context, {"what": what})


@tool(
    effect="irreversible",
    title="Pay {amount:money} to {snapshot.holder}",
    effects=(EffectLine("{amount:money} leaves", "The house account", "money"),),
    snapshot=balance_of,
    locked=("account",),
)
def pay(account: str, amount: float, context: ToolContext, how: str = "well") -> Any:
    """Pay somebody. It does not take a key: what is lost is lost."""
    return WORLD.call("pay", how, context, {"account": account, "amount": amount})


@tool(effect="irreversible", idempotency="key", max_attempts=2)
def pay_once(account: str, amount: float, context: ToolContext, how: str = "well") -> Any:
    """Pay somebody; the other side remembers the key."""
    return WORLD.call("pay_once", how, context, {"account": account, "amount": amount})


@tool(effect="reversible")
def label(text: str, context: ToolContext, how: str = "well") -> Any:
    """Put a label on something."""
    return WORLD.call("label", how, context, {"text": text})


@tool(effect="compensable", stop_on_failure=True)
def send(to: str, context: ToolContext, how: str = "well") -> Any:
    """Send something. When it fails, the run ends."""
    return WORLD.call("send", how, context, {"to": to})


@tool(repeatable=True)
def undeclared(text: str, context: ToolContext, how: str = "well") -> Any:
    """Nobody said what this does."""
    return WORLD.call("undeclared", how, context, {"text": text})


ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "look": [{"what": "x"}, {"what": "y"}],
    "look_outside": [{"what": "x"}],
    "report": [{"what": "all"}],
    "pay": [{"account": "ana", "amount": 5}, {"account": "bo", "amount": 7}],
    "pay_once": [{"account": "ana", "amount": 5}],
    "label": [{"text": "urgent"}],
    "send": [{"to": "ana"}],
    "undeclared": [{"text": "x"}],
}
"""The tools a model may call and their arguments, to which `how` is added."""

READS = ("look", "look_outside", "report")
WRITES = tuple(name for name in ARGUMENTS if name not in READS)
TAKE_KEYS = ("pay_once",)
