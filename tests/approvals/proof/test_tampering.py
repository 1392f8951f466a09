"""A thousand ways to change the ledger directly. Each is found and named, here and by the stand-alone verifier.

Hypothesis draws what is changed and how; the database rolls every change back.
"""

import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import assume, given
from hypothesis import strategies as st

from agentapp import actions
from approvals import append_only, ledger
from approvals.digest import canonical, load, sha256
from approvals.models import ChainHead, CheckpointLeaf, Event
from approvals.proof import anchors, checkpoints, verifying
from tests.approvals.proof.exports import said, written
from tests.conftest import call, calls, says
from tests.examples import examples

RUNS = [ledger.run_chain(uuid.UUID(int=number)) for number in range(1, 6)]
CHAINS = [*RUNS, ledger.CONFIGURATION, ledger.run_chain(uuid.UUID(int=77))]
DRAWN = st.randoms(use_true_random=False)


class Undone(Exception):
    """Raised to roll a change back."""


def tell(*chains: str) -> None:
    with ledger.transaction():
        for number, chain in enumerate(chains):
            about = {"approval": str(uuid.UUID(int=number + 1)), "tool": "pay", "risk": "high", "took_ms": number}
            ledger.record(chain, f"step.{number}", {"amount": 240, **about}, "user:5:dana (token CI)")


@pytest.fixture
def past(transactional_db):
    """Five runs and the configuration, partly covered by two checkpoints; nothing prevents changes."""
    tell(*RUNS, *RUNS, ledger.CONFIGURATION)
    checkpoints.make()
    tell(*RUNS[:3], ledger.CONFIGURATION)
    checkpoints.make()
    tell(*RUNS[2:], RUNS[0], RUNS[0])
    anchors.write_file()
    append_only.remove(connection)
    yield list(Event.objects.order_by("chain", "seq"))
    append_only.install(connection)


def sealed(event: Event, **changes: Any) -> dict[str, str]:
    body = canonical(load(event.body) | changes)
    return {"body": body, "hash": sha256(body)}


def store(event: Event, **changes: Any) -> None:
    Event.objects.filter(pk=event.pk).update(**changes)


# --- Possible changes. Each says which event is named for it: more than one only where it is moved ---------


def edit_column(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    event, other = chance.sample(events, 2)
    values = {
        "id": uuid.uuid5(uuid.NAMESPACE_OID, event.hash), "chain": "other", "seq": event.seq + 100, "type": "forged",
        "actor": "user:1:mallory", "at": event.at + timedelta(microseconds=chance.randint(1, 10**9)),
        "run_id": chance.choice([None, uuid.UUID(int=99)]), "actor_key": "user:1",
        "approval_id": chance.choice([None, uuid.UUID(int=99)]), "execution_id": uuid.UUID(int=99),
        "tool": chance.choice(["", "buy"]), "risk": "low", "took_ms": chance.choice([None, 0, 10**6]),
        "body": event.body.replace("240", str(chance.randint(0, 239))), "previous_hash": other.previous_hash,
        "hash": other.hash,
    }  # fmt: skip
    column = chance.choice([field.attname for field in Event._meta.concrete_fields])
    if values[column] == getattr(event, column):
        return set()
    store(event, **{column: values[column]})
    named = {(event.chain, event.seq)}
    if column in ("chain", "seq"):
        named |= {(event.chain, event.seq + 1), (event.chain, event.seq + 100), ("other", event.seq), ("other", 1)}
    return named


def edit_with_its_hash(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    """Everything its own columns can show is consistent; the next event, or the end of its chain, gives it away."""
    event = chance.choice(events)
    store(event, **sealed(event, data={**event.data, "amount": chance.randint(0, 239)}))
    return vouched_to(event) or {(event.chain, event.seq if is_last(event, events) else event.seq + 1)}


def delete(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    """The first event out of place is named: the one behind the gap, or at the end the missing one."""
    event = chance.choice(events)
    Event.objects.filter(pk=event.pk).delete()
    return {(event.chain, event.seq if is_last(event, events) else event.seq + 1)}


def is_last(event: Event, events: list[Event]) -> bool:
    return event.seq == max(one.seq for one in events if one.chain == event.chain)


def cut(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    event = chance.choice(events)
    Event.objects.filter(chain=event.chain, seq__gte=event.seq).delete()
    return {(event.chain, event.seq)}


def delete_everything(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    Event.objects.all().delete()
    return {(first_chain(events), 1)}


def truncate(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    """As the owner of the tables can after removing the triggers; where there is no TRUNCATE, with plain SQL."""
    table = Event._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # Deferred constraints would block it.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
            cursor.execute(f"TRUNCATE {table} CASCADE")
        else:
            cursor.execute(f"DELETE FROM {table}")
    return {(first_chain(events), 1)}


def first_chain(events: list[Event]) -> str:
    """The chain that is checked first."""
    return min(event.chain for event in events)


def insert(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    """A forged event in the middle; later ones make room."""
    event = chance.choice(events)
    for later in sorted((one for one in events if one.chain == event.chain), key=lambda one: -one.seq):
        if later.seq >= event.seq:
            store(later, seq=later.seq + 1)
    key = uuid.uuid4()
    seal = sealed(event, id=str(key), type="forged")
    about = {name: getattr(event, name) for name in ("run_id", "actor", "at", "previous_hash", "seq", "chain")}
    about |= {name: getattr(event, name) for name in ("actor_key", "approval_id", "tool", "risk", "took_ms")}
    Event.objects.create(id=key, type="forged", **about, **seal)
    return vouched_to(event) or {(event.chain, event.seq + 1)}


def append(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    """A forged event at the end, properly sealed."""
    chain = chance.choice([*RUNS, "run:" + str(uuid.uuid4()), "other"])
    last = max((one for one in events if one.chain == chain), key=lambda one: one.seq, default=None)
    fact = ledger.Fact(chain, "approval.approved", "user:1:mallory", {"amount": 1})
    seq, previous = (last.seq, last.hash) if last else (0, ledger.GENESIS)
    ledger.sealed(seq + 1, previous, fact, events[0].at, uuid.uuid4()).save(force_insert=True)
    return {(chain, seq + 1)}


def swap(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    one, other = chance.sample(events, 2)
    store(one, chain="between", seq=1)
    store(other, chain=one.chain, seq=one.seq)
    store(one, chain=other.chain, seq=other.seq)
    return {min((one.chain, one.seq), (other.chain, other.seq))}


def rewrite(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    """From one event on, with hashes and the chain's end: as somebody would who has everything but the signing key."""
    first = chance.choice([event for event in events if covered_with(event)])
    previous = first.previous_hash
    for event in (one for one in events if one.chain == first.chain and one.seq >= first.seq):
        data = {**event.data, "amount": 1} if event.pk == first.pk else event.data
        seal = sealed(event, data=data, previous=previous)
        store(event, previous_hash=previous, **seal)
        previous = seal["hash"]
    ChainHead.objects.filter(pk=first.chain).update(hash=previous)
    return covered_with(first)


def drop_a_chain(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    """With its end, and nothing else: what a checkpoint says of it stays."""
    chain = chance.choice(events).chain
    Event.objects.filter(chain=chain).delete()
    ChainHead.objects.filter(pk=chain).delete()
    return {(chain, 1)}


def move_a_head(events: list[Event], chance: Random) -> set[tuple[str, int]]:
    event = chance.choice(events)
    last = max(one.seq for one in events if one.chain == event.chain)
    if event.seq == last:
        ChainHead.objects.filter(pk=event.chain).update(hash=sha256("x"))
        return {(event.chain, last)}
    ChainHead.objects.filter(pk=event.chain).update(seq=event.seq, hash=event.hash)
    return {(event.chain, event.seq + 1)}


WAYS: list[Callable[[list[Event], Random], set[tuple[str, int]]]] = [
    edit_column, edit_column, edit_column, edit_with_its_hash, delete, cut, insert, append, swap, rewrite, drop_a_chain,
    move_a_head, delete_everything, truncate,
]  # fmt: skip


def covered_with(event: Event) -> set[tuple[str, int]]:
    """The first of the events that one checkpoint covers together with this one."""
    parts = CheckpointLeaf.objects.filter(chain=event.chain, first__lte=event.seq, last__gte=event.seq)
    return {(part.chain, part.first) for part in parts}


def vouched_to(event: Event) -> set[tuple[str, int]]:
    """The first of those a checkpoint covers up to this one: they are compared with it before what follows."""
    parts = CheckpointLeaf.objects.filter(chain=event.chain, last=event.seq)
    return {(part.chain, part.first) for part in parts}


def looks(folder, key) -> tuple[verifying.Verification, int, str]:
    return verifying.look(), *said(
        written(folder / "ledger.jsonl"), key.key_id, "--anchor", str(folder / "checkpoints.jsonl")
    )


def check(way, events, chance, folder, key) -> None:
    """Make the change, check with both, roll it back."""
    with suppress(Undone), transaction.atomic():
        may_be_named = way(events, chance)
        assume(may_be_named)  # otherwise there was nothing to do
        found, code, told = looks(folder, key)
        assert found.broken is not None, way.__name__
        assert (found.broken["chain"], found.broken["seq"]) in may_be_named, (way.__name__, found.broken)
        assert code == 1, (way.__name__, told)
        assert f"{found.broken['chain']}, event {found.broken['seq']}:" in told, (way.__name__, told)
        raise Undone


@pytest.mark.parametrize("way", WAYS[2:], ids=lambda way: way.__name__)
@examples(5)
@given(chance=DRAWN)
def test_every_kind_of_change_is_found_and_named(past, folder, key, way, chance):
    check(way, past, chance, folder, key)


@examples(1000)
@given(way=st.sampled_from(WAYS), chance=DRAWN)
def test_no_change_of_a_thousand_is_missed(past, folder, key, way, chance):
    check(way, past, chance, folder, key)


@examples(1000)
@given(deeds=st.lists(st.tuples(st.lists(st.sampled_from(CHAINS), min_size=1, max_size=5), st.booleans()), max_size=2))
def test_a_ledger_that_grows_is_never_called_broken(past, folder, key, deeds):
    """A thousand continuations: events in any chains, with or without a checkpoint."""
    with suppress(Undone), transaction.atomic():
        for chains, signed in deeds:
            tell(*chains)
            if signed:
                checkpoints.make()
        found, code, told = looks(folder, key)
        assert (found.broken, code, told.startswith("OK")) == (None, 0, True), told
        raise Undone


PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")
LOOK = calls(call("l", "look_up", what="shelf"))
ENDS = ("approve", "edit", "reject", "ask", "cancel", "wait", "look")


@examples(4)
@given(chance=DRAWN)
def test_runs_of_the_product_itself_are_never_called_broken(clerk, dana, folder, key, chance):
    """Approved, changed, rejected, asked about, cancelled, or still waiting, with checkpoints in between."""
    checkpoints.make()
    for way in chance.choices(ENDS, k=4):
        if chance.random() < 0.5:
            checkpoints.make()
        run = clerk.run(LOOK if way == "look" else PAY, says("Done."))
        if way == "ask":
            actions.ask_agent(clerk.open(run)[0].pk, "Why is that?", dana)
        elif way == "cancel":
            actions.cancel_run(run.pk, clerk.starter)
        elif way in ("approve", "edit", "reject"):
            more = {"arguments_text": canonical({"account": "ana", "amount": 4})} if way == "edit" else {}
            clerk.decide(clerk.open(run)[0], dana, way, message="So it is.", **more)
            clerk.drive(run)
    anchors.write_file()
    found, code, told = looks(folder, key)
    assert (found.broken, code, told.startswith("OK")) == (None, 0, True), told
