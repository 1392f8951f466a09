"""The append-only chain of events: the only writer of Event.

One chain per run, and one for configuration and sign-ins. An event is written in the transaction
of the change it records. Each holds the hash of the one before, over its canonical text, so a
change or a gap made by hand is found and named by `verify`.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection
from django.db import transaction as db_transaction

from approvals.digest import canonical, load, sha256
from approvals.models import Event

CONFIGURATION = "configuration"
GENESIS = "0" * 64
SYSTEM = "system"
MODEL = "model"
# The room for an actor in the table; a long name with a long token's name is cut.
MAX_ACTOR = 200

_facts: ContextVar[list["Fact"] | None] = ContextVar("facts", default=None)


@dataclass(frozen=True)
class Fact:
    """One event to be written: where, what happened, who did it, and the particulars."""

    chain: str
    type: str
    actor: str
    data: dict[str, Any]


listeners: list[Callable[[Sequence[Fact]], None]] = []
"""Called with the facts of each transaction that wrote any, once it has committed."""


@dataclass(frozen=True)
class Break:
    """The first place where a chain does not hold, and how."""

    chain: str
    seq: int
    problem: str


def run_chain(run_id: uuid.UUID) -> str:
    return f"run:{run_id}"


def actor_of(user: AbstractBaseUser | None, via: str = "") -> str:
    """The name an event gives a person. `via` says how they came, as in 'token CI'."""
    name = f"user:{user.pk}:{user.get_username()}" if user is not None else SYSTEM
    return (f"{name} ({via})" if via else name)[:MAX_ACTOR]


@contextmanager
def transaction() -> Iterator[None]:
    """A database transaction whose recorded facts are written as events just before it commits.

    Transitions that happen together thus cost one look at the end of the chain and one insert.
    Nested use joins the outer one. An exception drops the facts with the changes they record.
    """
    outer = _facts.get()
    if outer is not None:
        mark = len(outer)
        try:
            with db_transaction.atomic():
                yield
        except BaseException:
            del outer[mark:]
            raise
        return
    facts: list[Fact] = []
    token = _facts.set(facts)
    try:
        with db_transaction.atomic():
            yield
            for chain in dict.fromkeys(fact.chain for fact in facts):
                _append(chain, [fact for fact in facts if fact.chain == chain])
            if facts and listeners:
                db_transaction.on_commit(partial(_tell, facts), robust=True)
    finally:
        _facts.reset(token)


def record(chain: str, type: str, data: dict[str, Any] | None = None, actor: str = SYSTEM) -> None:
    """Note one fact for the surrounding `ledger.transaction()`. Raises RuntimeError outside of one.

    For a run's chain the caller holds the lock on the run's row; the configuration chain is locked
    when it is written. The unique place of an event is what stops a caller that forgot.
    """
    facts = _facts.get()
    if facts is None:
        raise RuntimeError("An event belongs to the transaction of its change: use ledger.transaction().")
    facts.append(Fact(chain, type, actor, data or {}))


def _tell(facts: Sequence[Fact]) -> None:
    # What a listener records belongs to a transaction of its own: the one it hears of is over.
    token = _facts.set(None)
    try:
        for listener in tuple(listeners):
            listener(facts)
    finally:
        _facts.reset(token)


def _append(chain: str, facts: Sequence[Fact]) -> None:
    if chain == CONFIGURATION:
        _lock_chain(chain)
    last = Event.objects.filter(chain=chain).order_by("-seq").values_list("seq", "hash").first()
    seq, previous = last or (0, GENESIS)
    events = []
    for fact in facts:
        seq += 1
        event = _sealed(seq, previous, fact)
        previous = event.hash
        events.append(event)
    Event.objects.bulk_create(events)


def height(chain: str = CONFIGURATION) -> int:
    """How many events a chain has. For the configuration chain this is the version of the configuration."""
    last = Event.objects.filter(chain=chain).order_by("-seq").values_list("seq", flat=True).first()
    return last or 0


def verify(chain: str | None = None) -> tuple[int, Break | None]:
    """Recompute one chain or all. Returns how many events hold, and the first break if there is one."""
    events = Event.objects.order_by("chain", "seq")
    if chain is not None:
        events = events.filter(chain=chain)
    return verify_events(events.iterator(chunk_size=2000))


def verify_events(events: Iterable[Event]) -> tuple[int, Break | None]:
    """Check events that come ordered by chain and place."""
    held, chain, seq, previous = 0, None, 0, GENESIS
    for event in events:
        if event.chain != chain:
            chain, seq, previous = event.chain, 0, GENESIS
        problem = _problem(event, seq + 1, previous)
        if problem:
            return held, Break(event.chain, event.seq, problem)
        held, seq, previous = held + 1, event.seq, event.hash
    return held, None


def _sealed(seq: int, previous: str, fact: Fact) -> Event:
    at = datetime.now(UTC)
    body = canonical(
        {
            "chain": fact.chain,
            "seq": seq,
            "type": fact.type,
            "actor": fact.actor,
            "at": at.isoformat(),
            "data": fact.data,
            "previous": previous,
        }
    )
    return Event(
        chain=fact.chain,
        seq=seq,
        type=fact.type,
        run_id=uuid.UUID(fact.chain.removeprefix("run:")) if fact.chain.startswith("run:") else None,
        actor=fact.actor,
        at=at,
        body=body,
        previous_hash=previous,
        hash=sha256(body),
    )


def _problem(event: Event, expected_seq: int, previous: str) -> str:
    """What is wrong with one event, or an empty text."""
    if event.seq != expected_seq:
        return f"event {expected_seq} is missing"
    if event.hash != sha256(event.body):
        return "its text does not match its hash"
    if event.previous_hash != previous:
        return "it does not follow the event before it"
    try:
        body = load(event.body)
    except (ValueError, RecursionError):
        return "its text is not JSON"
    columns = {
        "chain": event.chain,
        "seq": event.seq,
        "type": event.type,
        "actor": event.actor,
        "previous": event.previous_hash,
        "at": event.at.isoformat(),
    }
    if not isinstance(body, dict) or {name: body.get(name) for name in columns} != columns:
        return "its columns do not match its text"
    named = run_chain(event.run_id) if event.run_id else None
    if event.chain != named and (named or event.chain.startswith("run:")):
        return "its run is not the run of its chain"
    return ""


def _lock_chain(chain: str) -> None:
    """Let one writer at a time append. SQLite needs nothing: a writing transaction is alone from its start."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"ledger:{chain}"])
