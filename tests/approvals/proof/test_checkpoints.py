import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals import ledger
from approvals.digest import load, sha256
from approvals.models import ChainHead, Checkpoint, CheckpointLeaf, Event, LedgerKey
from approvals.proof import checkpoints, merkle, verifying
from approvals.proof.signing_key import holds

pytestmark = pytest.mark.django_db

RUNS = [ledger.run_chain(uuid.UUID(int=number)) for number in range(1, 6)]


def tell(*chains: str) -> None:
    with ledger.transaction():
        for number, chain in enumerate(chains):
            ledger.record(chain, "step.recorded", {"number": number})


def only() -> Checkpoint:
    [made] = checkpoints.make()
    return made


def test_a_checkpoint_signs_a_root_over_what_has_happened(key):
    tell(RUNS[0], RUNS[0], RUNS[1])
    made = only()
    said = load(made.statement)
    assert holds(made.statement, made.signature, key.value_b64)
    assert (said["kind"], said["number"], said["previous"]) == ("checkpoint", 1, "0" * 64)
    # The introduction of the signing key is itself an event.
    leaves = list(made.leaves.order_by("position"))
    assert [(part.chain, part.first, part.last) for part in leaves] == [
        ("ledger", 1, 1), (RUNS[0], 1, 2), (RUNS[1], 1, 1)
    ]  # fmt: skip
    assert (said["leaves"], said["events"], said["events_in_all"]) == (3, 4, 4)
    hashes = [bytes.fromhex(event.hash) for event in Event.objects.filter(chain=RUNS[0]).order_by("seq")]
    assert leaves[1].root == merkle.root_of(map(merkle.leaf, hashes)).hex()
    every = [checkpoints.leaf_of(part.chain, part.first, part.last, part.hash, part.root) for part in leaves]
    assert said["root"] == merkle.root_of(every).hex()


def test_the_next_covers_what_came_since_and_names_the_one_before():
    tell(RUNS[0], RUNS[1])
    first = only()
    tell(RUNS[1], RUNS[1], RUNS[2])
    second = only()
    said = load(second.statement)
    assert (said["number"], said["previous"]) == (2, sha256(first.statement))
    assert [(part.chain, part.first, part.last) for part in second.leaves.order_by("position")] == [
        (RUNS[1], 2, 3), (RUNS[2], 1, 1)
    ]  # fmt: skip
    assert said["events"] == 3
    assert second.events == said["events_in_all"] == Event.objects.count()


def test_where_nothing_has_happened_there_is_nothing_to_sign():
    assert checkpoints.make() == []
    tell(RUNS[0])
    only()
    assert checkpoints.make() == []
    assert not ChainHead.objects.filter(uncovered=True).exists()


@pytest.mark.parametrize("minutes", [5, 60])
def test_one_is_made_in_each_period_in_which_something_happened(settings, monkeypatch, minutes):
    settings.LEDGER = replace(settings.LEDGER, checkpoint_seconds=60 * minutes)
    at = datetime(2026, 11, 28, 9, 0, 30, tzinfo=UTC)

    def made(later: timedelta) -> int:
        tell(RUNS[0])
        monkeypatch.setattr(checkpoints, "clock", SimpleNamespace(now=lambda: at + later))
        return len(checkpoints.make_due())

    period = timedelta(minutes=minutes)
    assert made(timedelta()) == 1
    assert made(period - timedelta(minutes=1)) == 0
    assert made(period) == 1
    # After a day without events there is one, not many.
    assert made(timedelta(days=1)) == 1


def test_an_installation_with_many_chains_gets_several(monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_CHAINS", 2)
    tell(*RUNS)
    made = checkpoints.make()
    assert [load(row.statement)["leaves"] for row in made] == [2, 2, 2]
    assert made[-1].events == Event.objects.count() == 6
    assert not ChainHead.objects.filter(uncovered=True).exists()


def test_what_a_checkpoint_costs_does_not_depend_on_what_came_before():
    def cost() -> int:
        with CaptureQueriesContext(connection) as captured:
            only()
        return len(captured)

    tell(*RUNS)
    only()
    tell(RUNS[0])
    first = cost()
    tell(*RUNS, *RUNS)
    assert cost() == first


def test_a_chain_that_is_not_whole_is_not_vouched_for():
    tell(RUNS[0], RUNS[1])
    ChainHead.objects.filter(pk=RUNS[0]).update(seq=2)
    made = only()
    assert RUNS[0] not in made.leaves.values_list("chain", flat=True)
    assert made.leaves.filter(chain=RUNS[1]).exists()
    assert ledger.verify()[1] == ledger.Break(RUNS[0], 2, "event 2 is missing")


def test_without_a_key_nothing_is_signed_and_nothing_counts_as_covered(settings, folder):
    settings.LEDGER = replace(settings.LEDGER, makes_key=False, signing_key_file=folder / "none")
    tell(RUNS[0])
    assert checkpoints.make() == []
    assert ChainHead.objects.filter(uncovered=True).exists()
    assert not LedgerKey.objects.exists()


@pytest.mark.parametrize("table", ["checkpoint", "checkpointleaf", "ledgerkey", "chainhead"])
def test_the_database_refuses_to_take_back_what_was_vouched_for(table):
    tell(RUNS[0])
    only()
    row = {"checkpoint": Checkpoint, "checkpointleaf": CheckpointLeaf, "ledgerkey": LedgerKey, "chainhead": ChainHead}[
        table
    ]
    column = {"checkpoint": "statement", "chainhead": "hash"}.get(table, "hash" if "leaf" in table else "public_key")
    for change in (lambda: row.objects.update(**{column: "x"}), lambda: row.objects.all()._raw_delete("default")):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            change()


def test_the_end_of_a_chain_does_not_go_back():
    tell(RUNS[0], RUNS[0])
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        ChainHead.objects.filter(pk=RUNS[0]).update(seq=1)
    head = ChainHead.objects.get(pk=RUNS[0])
    assert head.seq == 2


def test_of_two_who_make_one_at_once_only_one_covers_what_both_have_read(monkeypatch):
    checkpoints.make()
    tell(ledger.CONFIGURATION)
    read = checkpoints._parts

    def read_and_be_overtaken(after):
        parts = read(after)
        monkeypatch.setattr(checkpoints, "_parts", read)
        tell(ledger.CONFIGURATION)
        assert len(checkpoints.make()) == 1
        return parts

    monkeypatch.setattr(checkpoints, "_parts", read_and_be_overtaken)
    assert checkpoints.make() == []
    assert verifying.look().broken is None
    assert Checkpoint.objects.order_by("-number").first().events == Event.objects.count()
