"""The append-only chain of events: the only writer of Event.

There is one chain per run, and one for configuration and sign-ins. An event is written in the transaction of the change
it records. Each holds the hash of the one before over its canonical text, so `verify` finds and names any change or gap
made by hand.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection
from django.db import transaction as db_transaction
from django.db.models import BooleanField, ExpressionWrapper, Q

from approvals import clock
from approvals.detectors import clean, within
from approvals.digest import canonical, sha256
from approvals.ids import uuid7
from approvals.models import ChainHead, Event
from approvals.proof.chains import GENESIS, Break, read, verify
from approvals.proof.columns import about, run_chain

__all__ = [
    "CONFIGURATION", "GENESIS", "LEDGER", "MAX_ACTOR", "MODEL", "SYSTEM", "Break", "Configured", "Fact", "about",
    "actor_of", "come", "coming", "height", "knows", "listeners", "only_at", "read", "record", "remembering",
    "run_chain", "sealed", "transaction", "verify",
]  # fmt: skip

CONFIGURATION = "configuration"
# Events about the ledger itself. They are not changes to the configuration.
LEDGER = "ledger"
SYSTEM = "system"
MODEL = "model"
# The end of a chain: the place and hash of its last event.
type End = tuple[int, str]
# The length of an actor in the table. A long name with a long token name is cut.
MAX_ACTOR = 200
# The most events that one statement adds to a chain, together with its new end.
MOST_AT_ONCE = 32

_facts: ContextVar["_Facts | None"] = ContextVar("facts", default=None)
_coming: ContextVar[dict[Any, str] | None] = ContextVar("coming", default=None)
_known: ContextVar[dict[str, End] | None] = ContextVar("known", default=None)


@dataclass(frozen=True)
class Fact:
    """One event to be written: where, what happened, who did it, and the particulars."""

    chain: str
    type: str
    actor: str
    data: dict[str, Any]


class Configured(Exception):
    """The configuration changed, or something was stopped, after the transaction looked. It did nothing: look again."""


class _Facts(list[Fact]):
    """What a transaction has recorded, and the height of the configuration beyond which none of it may be written."""

    only_at: int | None = None


listeners: list[Callable[[Sequence[Fact]], None]] = []
"""Called with the facts of each transaction that wrote any, once it has committed."""


class Named(str):
    """How somebody who works here is named for what they did. Kept as it is, also if it is a mail address."""

    __slots__ = ()


def actor_of(user: AbstractBaseUser | None, via: str = "") -> Named:
    """The name that events give a person. `via` says how they came, as in 'token CI'; if left out, `coming` knows."""
    if user is None:
        return Named((f"{SYSTEM} ({via})" if via else SYSTEM)[:MAX_ACTOR])
    came = _coming.get() or {}
    name, via = f"user:{user.pk}:{user.get_username()}", via or came.get(user.pk, "")
    return Named((f"{name} ({via})" if via else name)[:MAX_ACTOR])


@contextmanager
def coming() -> Iterator[None]:
    """Until this ends, events by a person record how they came, if `come` has said so."""
    token = _coming.set({})
    try:
        yield
    finally:
        _coming.reset(token)


def come(user: AbstractBaseUser, via: str) -> None:
    """Record that somebody acts through something else. Only counts within `coming`."""
    came = _coming.get()
    if came is not None:
        came[user.pk] = via


@contextmanager
def transaction() -> Iterator[None]:
    """A database transaction whose recorded facts are written as events just before it commits.

    Transitions that happen together thus cost one look at the end of the chain and one insert. A nested transaction
    joins the outer one. An exception drops the facts with the changes they record.
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
    facts = _Facts()
    ends: dict[str, End] = {}
    token = _facts.set(facts)
    kept = _known.get()
    passing = _known.set({}) if kept is None else None
    try:
        with db_transaction.atomic():
            yield
            if facts:
                ends = _append(facts)
                if listeners:
                    db_transaction.on_commit(partial(_tell, facts), robust=True)
        if kept is not None:
            kept |= ends
    finally:
        _facts.reset(token)
        if passing is not None:
            _known.reset(passing)


@contextmanager
def remembering() -> Iterator[None]:
    """Remember where chains ended, for a caller that writes to the same one repeatedly, such as a worker driving a run.

    Nothing depends on it: if somebody else has moved a head meanwhile, that is noticed and it is read.
    """
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def knows(chain: str, seq: int | None, hash: str | None) -> None:
    """Say where a chain ends, if that was read with the row whose lock guards the chain, so that it is not read again.

    None if the chain has no event yet. Has no effect outside `transaction()`.
    """
    if (known := _known.get()) is not None:
        known[chain] = (seq, hash) if seq is not None and hash is not None else (0, GENESIS)


def record(chain: str, type: str, data: dict[str, Any] | None = None, actor: str = SYSTEM) -> None:
    """Note one fact for the surrounding `ledger.transaction()`. Raises RuntimeError outside one.

    For a run's chain the caller holds the lock on the run's row; the configuration chain is locked when it is written.
    The unique place of an event stops a caller that forgot.
    """
    facts = _facts.get()
    if facts is None:
        raise RuntimeError("An event belongs to the transaction of its change: use ledger.transaction().")
    said = data or {}
    # The configuration names people who work here, and is read back. Run data may name other people.
    said = said if chain == CONFIGURATION else within(said, _kept)
    facts.append(Fact(chain, type, clean(actor) if actor.startswith("customer:") else actor, said))


def _kept(text: str) -> str:
    return text if isinstance(text, Named) else clean(text)


def only_at(height: int) -> None:
    """Make the surrounding `transaction()` raise Configured at its end and do nothing, if the configuration is no
    longer at this height. For a caller that begins a call and records that.

    What is read under a lock is as old as the statement that waited for it, and later locks are waited for later.
    Events are written last, when the transaction no longer waits for anybody.
    """
    facts = _facts.get()
    if facts is None:
        raise RuntimeError("A height belongs to the transaction that relies on it: use ledger.transaction().")
    facts.only_at = height


def _tell(facts: Sequence[Fact]) -> None:
    # What a listener records belongs to a transaction of its own: the one it hears of is over.
    token = _facts.set(None)
    try:
        for listener in tuple(listeners):
            listener(facts)
    finally:
        _facts.reset(token)


def _append(facts: _Facts) -> dict[str, End]:
    """One statement on PostgreSQL if the end of the only chain is known; otherwise three, whatever the number of facts
    and chains. Heads are locked in one order, see `_ends`. Returns where the chains end now.

    One more if the configuration must be `only_at` a height and the end of the chain is not known, or is held by
    somebody. Raises Configured.
    """
    chains = {fact.chain for fact in facts}
    known = (_known.get() or {}).get(facts[0].chain) if len(chains) == 1 else None
    if known is not None:
        events, ends = _events(facts, {facts[0].chain: known})
        if _place(events, known, ends[facts[0].chain], facts.only_at):
            return ends
    ends = _ends(chains)
    if CONFIGURATION in chains - set(ends):
        # There is no head to lock yet.
        _lock_chain(CONFIGURATION)
        ends = _ends(chains)
    _still_at(facts.only_at)
    events, ends = _events(facts, ends)
    Event.objects.bulk_create(events)
    heads = [ChainHead(chain=chain, seq=seq, hash=hash) for chain, (seq, hash) in sorted(ends.items())]
    ChainHead.objects.bulk_create(
        heads, update_conflicts=True, unique_fields=["chain"], update_fields=["seq", "hash", "uncovered"]
    )
    return ends


def _events(facts: Sequence[Fact], ends: dict[str, End]) -> tuple[list[Event], dict[str, End]]:
    """The events of some facts after these ends, and where their chains end then."""
    ends, events = dict(ends), []
    for fact in facts:
        seq, previous = ends.get(fact.chain, (0, GENESIS))
        event = sealed(seq + 1, previous, fact, clock.now(), uuid7())
        ends[fact.chain] = event.seq, event.hash
        events.append(event)
    return events, ends


def _still_at(height: int | None) -> None:
    """Raises Configured. On SQLite nobody can configure anything while a transaction writes."""
    if height is None or connection.vendor != "postgresql":
        return
    beyond = Event.objects.filter(chain=CONFIGURATION, seq__gt=height)
    # Sign-ins and sign-outs, even failed ones, change nothing that a call is judged by. They must not stop it from
    # beginning.
    if beyond.exclude(type="signout").exclude(type__startswith="signin.").exists():
        raise Configured("something was configured or stopped as a call was about to begin")


def _place(events: Sequence[Event], was: End, now: End, only_at: int | None) -> bool:
    """Move the head of a chain on from its expected place, and add the events of the new part.

    False: the head is elsewhere, or the configuration not `only_at` its height, or somebody holds the head and a height
    matters. Nothing is changed.
    """
    is_new = was == (0, GENESIS)
    if connection.vendor != "postgresql" or len(events) > MOST_AT_ONCE or (is_new and only_at is not None):
        moved = _move(events[0].chain, was, now)
        if moved:
            _still_at(only_at)
            Event.objects.bulk_create(events)
        return moved
    head, params = _moving(events[0].chain, was, now, only_at)
    fields = Event._meta.concrete_fields
    params += [field.get_db_prep_save(getattr(each, field.attname), connection) for each in events for field in fields]
    with connection.cursor() as cursor:
        cursor.execute(f"WITH moved AS ({head} RETURNING chain) {_adding(len(events))}", params)
        return bool(cursor.rowcount)


def _move(chain: str, was: End, now: End) -> bool:
    if was == (0, GENESIS):
        # Nobody can lock a missing end: the second to write it has to read it.
        _, made = ChainHead.objects.get_or_create(chain=chain, defaults={"seq": now[0], "hash": now[1]})
        return made
    there = ChainHead.objects.filter(chain=chain, seq=was[0], hash=was[1])
    return bool(there.update(seq=now[0], hash=now[1], uncovered=True))


def _moving(chain: str, was: End, now: End, only_at: int | None) -> tuple[str, list[Any]]:
    """The same as a statement, with its parameters.

    A statement that waits for a row still reads all others as they were when it began. So if the configuration must be
    `only_at` a height, it does not wait for whoever holds the head, such as a checkpoint: it changes nothing.
    """
    table = ChainHead._meta.db_table
    if was == (0, GENESIS):
        made = f"INSERT INTO {table} (chain, seq, hash, covered_seq, uncovered) VALUES (%s, %s, %s, 0, true)"  # noqa: S608
        return f"{made} ON CONFLICT DO NOTHING", [chain, *now]
    moved = f"UPDATE {table} SET seq = %s, hash = %s, uncovered = true"  # noqa: S608
    there, params = "chain = %s AND seq = %s AND hash = %s", [*now, chain, *was]
    if only_at is None:
        return f"{moved} WHERE {there}", params
    free = f"chain = (SELECT chain FROM {table} WHERE {there} FOR NO KEY UPDATE SKIP LOCKED)"  # noqa: S608
    beyond = f"SELECT 1 FROM {table} WHERE chain = %s AND seq > %s"  # noqa: S608
    return f"{moved} WHERE {free} AND NOT EXISTS ({beyond})", [*params, CONFIGURATION, only_at]


@cache
def _adding(count: int) -> str:
    """The statement that adds this many events once their chain's head has moved."""
    fields = Event._meta.concrete_fields
    columns = ", ".join(str(field.column) for field in fields)
    # A VALUES list knows nothing of its columns' types, so its first row states them.
    first = ", ".join(f"%s::{field.db_type(connection)}" for field in fields)
    rows = ", ".join([f"({first})", *[f"({', '.join(['%s'] * len(fields))})"] * (count - 1)])
    return f"INSERT INTO {Event._meta.db_table} ({columns}) SELECT added.* FROM moved, (VALUES {rows}) AS added"  # noqa: S608


def _ends(chains: set[str]) -> dict[str, End]:
    """Configuration last: a caller that found no head of it to lock already holds the others when it looks again."""
    last = ExpressionWrapper(Q(chain=CONFIGURATION), BooleanField())
    heads = ChainHead.objects.filter(chain__in=sorted(chains)).order_by(last, "chain").select_for_update()
    return {chain: (seq, hash) for chain, seq, hash in heads.values_list("chain", "seq", "hash")}


def height(chain: str = CONFIGURATION) -> int:
    """How many events a chain has. For the configuration chain this is the version of the configuration."""
    last = Event.objects.filter(chain=chain).order_by("-seq").values_list("seq", flat=True).first()
    return last or 0


def sealed(seq: int, previous: str, fact: Fact, at: datetime, key: uuid.UUID) -> Event:
    """The event of a fact at its place in a chain, not stored. Storing it must also move the chain's head."""
    body = canonical(
        {
            "id": str(key),
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
        id=key,
        **about(fact.actor, fact.data),
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


def _lock_chain(chain: str) -> None:
    """Let one writer append at a time. SQLite needs nothing: a writing transaction is alone from its start."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"ledger:{chain}"])
