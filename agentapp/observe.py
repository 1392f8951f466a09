"""Watching runs from inside the process: every event of the ledger, and some that are never stored.

Events of the ledger are delivered when their transaction has committed, to the process that wrote them;
the others as they happen. A subscriber that raises is logged and changes nothing. Subscribers can have
effects, so they are told nothing about mocked runs.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from agentapp import isolation
from approvals import ledger

log = logging.getLogger(__name__)

ALIASES = {"tool_start": "tool_call.started", "tool_end": "tool_call.completed"}
"""Other names under which you can subscribe to an event type."""


@dataclass(frozen=True)
class Observed:
    """One thing that happened. `run_id` is empty for what belongs to no run."""

    type: str
    run_id: str
    data: Mapping[str, Any]
    actor: str = ledger.SYSTEM


type Callback = Callable[[Observed], object]
type Unsubscribe = Callable[[], None]

_subscriptions: tuple[tuple[str, Callback], ...] = ()
_changing = threading.Lock()


def wiretap(callback: Callback) -> Unsubscribe:
    """Call back for every event. Returns a function that ends the subscription."""
    return _subscribe("", callback)


def on_event(type: str, callback: Callback) -> Unsubscribe:
    """Call back for one type of event, such as "tool_call.started". Returns a function that ends the subscription."""
    return _subscribe(ALIASES.get(type, type), callback)


def emit(type: str, run_id: uuid.UUID, data: Mapping[str, Any]) -> None:
    """Tell subscribers of something that is not stored."""
    if _subscriptions:
        _deliver(Observed(type, str(run_id), MappingProxyType(dict(data))))


def is_watched() -> bool:
    return bool(_subscriptions)


def _subscribe(type: str, callback: Callback) -> Unsubscribe:
    global _subscriptions
    # A new tuple, so that subscribing the same callback twice makes two subscriptions.
    subscription = (type, callback)
    with _changing:
        _subscriptions = (*_subscriptions, subscription)
        if _of_the_ledger not in ledger.listeners:
            ledger.listeners.append(_of_the_ledger)

    def unsubscribe() -> None:
        global _subscriptions
        with _changing:
            _subscriptions = tuple(kept for kept in _subscriptions if kept is not subscription)
            if not _subscriptions and _of_the_ledger in ledger.listeners:
                ledger.listeners.remove(_of_the_ledger)

    return unsubscribe


def _of_the_ledger(facts: Sequence[ledger.Fact]) -> None:
    for fact in facts:
        run_id = fact.chain.removeprefix("run:") if fact.chain.startswith("run:") else ""
        _deliver(Observed(fact.type, run_id, MappingProxyType(fact.data), fact.actor))


def _deliver(observed: Observed) -> None:
    for type, callback in () if isolation.is_on() else _subscriptions:
        if type in ("", observed.type):
            try:
                callback(observed)
            except Exception:
                log.exception("A subscriber to %s failed", observed.type)
