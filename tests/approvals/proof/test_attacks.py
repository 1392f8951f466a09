"""What an attacker tries who has the database, or the file of checkpoints, but not the signing key."""

import base64
import hashlib
import uuid
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from approvals import append_only, ledger
from approvals.digest import canonical, load, sha256
from approvals.models import Anchor, Approval, ChainHead, Checkpoint, CheckpointLeaf, Event, LedgerKey, Verification
from approvals.proof import anchors, checkpoints, inclusion, keys, signing_key, status, verifying
from approvals.proof.merkle import Tree, leaf
from tests.approvals.proof.exports import said, said_of_proof, written
from tests.rows import a_request

pytestmark = pytest.mark.django_db

RUNS = [ledger.run_chain(uuid.UUID(int=number)) for number in range(1, 4)]


def tell(*chains: str) -> None:
    with ledger.transaction():
        for number, chain in enumerate(chains):
            ledger.record(chain, "step.recorded", {"number": number, "amount": 240})


@pytest.fixture
def past(transactional_db):
    """Three runs under two checkpoints that are noted outside; nothing prevents changes."""
    tell(*RUNS, *RUNS)
    checkpoints.make()
    tell(*RUNS)
    checkpoints.make()
    anchors.write_file()
    append_only.remove(connection)
    yield
    append_only.install(connection)


class Mallory:
    """Has a key of their own, and write access to all tables."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        raw = self._key.public_key().public_bytes_raw()
        self.public_key, self.key_id = base64.b64encode(raw).decode(), hashlib.sha256(raw).hexdigest()

    def sign(self, text: str) -> str:
        return base64.b64encode(self._key.sign(text.encode())).decode()

    def adds_a_key(self, number: int, previous: str = "", endorsement: str = "") -> None:
        told = {"kind": "key", "version": 1, "key_id": self.key_id, "public_key": self.public_key}
        statement = canonical({**told, "previous": previous, "at": timezone.now().isoformat()})
        LedgerKey.objects.create(
            key_id=self.key_id,
            public_key=self.public_key,
            number=number,
            statement=statement,
            signature=self.sign(statement),
            endorsement=endorsement and self.sign(statement),
            introduced_at=timezone.now(),
        )

    def rewrites_everything(self) -> None:
        """Every event, head, leaf and checkpoint, all consistent and signed."""
        for head in ChainHead.objects.all():
            previous = ledger.GENESIS
            for event in Event.objects.filter(chain=head.chain).order_by("seq"):
                body = load(event.body) | {"previous": previous}
                if head.chain in RUNS:
                    body["data"]["amount"] = 1
                text = canonical(body)
                Event.objects.filter(pk=event.pk).update(body=text, previous_hash=previous, hash=sha256(text))
                previous = sha256(text)
            ChainHead.objects.filter(pk=head.chain).update(hash=previous)
        before = ledger.GENESIS
        for row in Checkpoint.objects.order_by("number"):
            statement = canonical(load(row.statement) | {"root": _root(row), "previous": before, "key_id": self.key_id})
            before = sha256(statement)
            Checkpoint.objects.filter(pk=row.pk).update(
                statement=statement, digest=before, key_id=self.key_id, signature=self.sign(statement)
            )


def _root(checkpoint: Checkpoint) -> str:
    whole = Tree()
    for part in checkpoint.leaves.order_by("position"):
        events = Event.objects.filter(chain=part.chain, seq__gte=part.first, seq__lte=part.last).order_by("seq")
        tree, hashes = Tree(), list(events.values_list("hash", flat=True))
        for hash in hashes:
            tree.add(leaf(bytes.fromhex(hash)))
        CheckpointLeaf.objects.filter(pk=part.pk).update(hash=hashes[-1], root=tree.root.hex())
        whole.add(checkpoints.leaf_of(part.chain, part.first, part.last, hashes[-1], tree.root.hex()))
    return whole.root.hex()


def found() -> str:
    """The problem found in the whole ledger. Empty: it holds."""
    broken = verifying.look().broken
    return broken["problem"] if broken else ""


def finished(row: Verification) -> Verification:
    while verifying.go_on(row.pk):
        pass
    row.refresh_from_db()
    return row


def take_away(*rows: type[Checkpoint | CheckpointLeaf | Anchor]) -> None:
    for row in rows:
        row.objects.all()._raw_delete("default")
    ChainHead.objects.update(covered_seq=0, uncovered=True)


# --- Keys ----------------------------------------------------------------------------------------


def test_the_worker_does_not_vouch_for_a_key_that_somebody_put_before_its_own(past, folder, key):
    mallory = Mallory()
    LedgerKey.objects.all()._raw_delete("default")
    mallory.adds_a_key(number=1)
    tell(RUNS[0])
    checkpoints.make()
    own = LedgerKey.objects.get(pk=key.key_id)
    assert load(own.statement)["previous"] == ""
    mallory.rewrites_everything()
    (folder / "checkpoints.jsonl").unlink()
    Anchor.objects.all().delete()
    assert "a key that no trusted key leads to" in found()
    code, told = said(written(folder / "ledger.jsonl"), key.key_id)
    assert (code, "a key you do not trust" in told) == (1, True)


def test_a_key_that_once_said_that_it_follows_another_leads_to_none(past, folder, key):
    """As keys used to say it: even endorsed by the other key, which the person who made that key can do."""
    mallory = Mallory()
    own = LedgerKey.objects.get(pk=key.key_id)
    mallory.adds_a_key(number=7)
    statement = canonical(load(own.statement) | {"previous": mallory.key_id})
    LedgerKey.objects.filter(pk=key.key_id).update(
        statement=statement, signature=signing_key.sign(statement).value_b64, endorsement=mallory.sign(statement)
    )
    assert set(keys.trusted(LedgerKey.objects.all(), [key.key_id])) == {key.key_id}
    event = Event.objects.get(chain=RUNS[0], seq=1)
    mallory.rewrites_everything()
    assert said(written(folder / "ledger.jsonl"), key.key_id)[0] == 1
    (folder / "proof.json").write_text(canonical(inclusion.inclusion(event.pk)))
    assert said_of_proof(folder / "proof.json", key.key_id)[0] == 1
    assert said_of_proof(folder / "proof.json", mallory.key_id)[0] == 0


def test_an_older_key_is_trusted_by_whoever_says_so(past, folder, key, settings):
    keys.rotate(folder / "new.key")
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "new.key")
    tell(RUNS[0])
    checkpoints.make()
    anchors.write_file()
    assert f"a key that no trusted key leads to ({key.key_id})" in found()
    settings.LEDGER = replace(settings.LEDGER, trusted_keys=(key.key_id,))
    assert found() == ""


def test_a_key_is_not_said_to_follow_when_it_came_by_itself(past, folder, key, settings):
    other = signing_key.generate(folder / "other.key")
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "other.key")
    keys.introduce()
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "ledger.key")
    with pytest.raises(signing_key.NoKey, match="already known"):
        keys.rotate(folder / "other.key")
    with pytest.raises(signing_key.NoKey, match="already in use"):
        keys.rotate(folder / "ledger.key")
    assert keys.trusted(LedgerKey.objects.all(), [other.key_id]) == {other.key_id: other.value_b64}


def test_without_a_key_nothing_is_vouched_for_whatever_the_table_says(past, folder, settings):
    mallory = Mallory()
    mallory.adds_a_key(number=9)
    mallory.rewrites_everything()
    (folder / "checkpoints.jsonl").unlink()
    Anchor.objects.all().delete()
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "none", makes_key=False)
    row = finished(verifying.start(None))
    assert (row.holds, row.checkpoints) == (True, 0)
    now = status.standing()
    assert (now.holds, now.anchored_at, now.anchored, now.noted_outside) == (True, None, "", False)
    assert now.not_anchored


def test_without_a_key_of_its_own_a_place_may_check_with_those_it_is_told_of(past, folder, key, settings):
    settings.LEDGER = replace(
        settings.LEDGER, signing_key_file=folder / "none", makes_key=False, trusted_keys=(key.key_id,)
    )
    row = finished(verifying.start(None))
    assert (row.holds, row.checkpoints, status.standing().anchored_events) == (
        True,
        2,
        Checkpoint.objects.get(pk=2).events,
    )


# --- What is noted outside -------------------------------------------------------------------------


def test_a_place_that_is_said_to_know_more_than_there_is_is_found(past):
    Anchor.objects.update(reached=10**9)
    tell(RUNS[0])
    checkpoints.make()
    assert found() == "it was noted outside the database but is not here"
    assert status.standing().noted_outside is False


@pytest.mark.parametrize("lose", [lambda file: file.unlink(), lambda file: file.write_text("")], ids=["gone", "empty"])
def test_a_file_that_has_lost_what_was_noted_in_it_is_found_and_not_filled_again(past, folder, lose):
    file = folder / "checkpoints.jsonl"
    lose(file)
    assert "no longer has it" in found()
    tell(RUNS[0])
    checkpoints.make()
    assert anchors.write_file() == 0
    assert "Restore the file" in Anchor.objects.get().problem
    assert not file.exists() or not file.read_text()


def test_a_file_is_begun_anew_by_whoever_says_so_and_that_is_on_record(past, folder):
    file = folder / "checkpoints.jsonl"
    file.write_text("")
    call_command("begin_anchor_file")
    assert [one.number for one in anchors.read_file(file)] == [1, 2]
    assert found() == ""
    assert Event.objects.filter(chain=ledger.LEDGER, type="ledger.anchor_begun_anew").count() == 1
    assert len(list(folder.glob("checkpoints.jsonl.until-*"))) == 1


def test_a_file_that_moves_with_the_machine_goes_on(past, folder, settings):
    (folder / "there").mkdir()
    (folder / "checkpoints.jsonl").rename(folder / "there" / "checkpoints.jsonl")
    settings.LEDGER = replace(settings.LEDGER, anchor_file=folder / "there" / "checkpoints.jsonl")
    tell(RUNS[0])
    checkpoints.make()
    assert (anchors.write_file(), found()) == (1, "")


def test_checkpoints_cannot_be_taken_away_with_the_row_that_says_what_is_noted(past):
    take_away(CheckpointLeaf, Checkpoint, Anchor)
    assert "noted outside" in found()


def test_a_place_cannot_be_made_to_wait_for_ever(past, settings):
    tell(RUNS[0])
    checkpoints.make()
    Anchor.objects.update(next_at=timezone.now() + timedelta(days=365))
    assert anchors.write_file() == 1


# --- Moments that are in the future ------------------------------------------------------------------


@contextmanager
def a_clock(monkeypatch: pytest.MonkeyPatch, at: datetime):
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "clock", SimpleNamespace(now=lambda: at))
        yield


def test_a_clock_that_was_ahead_stops_no_checkpoint_and_is_reported(past, monkeypatch, caplog):
    ahead = datetime.now(UTC) + timedelta(days=365)
    tell(RUNS[0])
    with a_clock(monkeypatch, ahead):
        checkpoints.make()
    assert status.standing().not_anchored == f"The last checkpoint is dated {ahead:%Y-%m-%d}, which is in the future."
    tell(RUNS[0])
    assert len(checkpoints.make_due()) == 1
    assert "in the future" in caplog.text
    assert status.standing().not_anchored == ""
    assert checkpoints.make_due() == []


def test_a_verification_that_is_yet_to_come_stops_none_and_says_nothing(past, caplog):
    ahead = timezone.now() + timedelta(days=365)
    Verification.objects.create(
        started_at=ahead, seen_at=ahead, finished_at=ahead, state="done", holds=True, events=10, checkpoints=2
    )
    Event.objects.filter(chain=RUNS[0], seq=1).update(actor="user:1:mallory")
    [due] = verifying.due()
    assert "in the future" in caplog.text
    finished(verifying.status(due))
    now = status.standing()
    assert (now.holds, verifying.latest().pk) == (False, due)


def test_a_claim_until_next_year_keeps_nobody_away(past):
    row = verifying.start(None)
    Verification.objects.update(claimed_until=timezone.now() + timedelta(days=365))
    assert verifying.due() == [row.pk]
    assert finished(row).holds is True


# --- Chains that are gone --------------------------------------------------------------------------


def gone(chain: str) -> None:
    Event.objects.filter(chain=chain).delete()
    ChainHead.objects.filter(pk=chain).delete()


def test_a_request_whose_chain_was_taken_away_whole_is_missed(roles, past):
    approval: Approval = a_request()
    chain = ledger.run_chain(approval.run_id)
    assert found() == ""
    gone(chain)
    row = finished(verifying.start(None))
    assert (row.holds, row.broken["chain"], row.broken["seq"]) == (False, chain, 1)
    assert "its chain is missing" in row.broken["problem"]


def test_what_is_looked_for_in_slices_is_all_looked_for(roles, past, monkeypatch):
    monkeypatch.setattr(verifying, "_ROWS", 2)
    made = [a_request() for _ in range(5)]
    assert found() == ""
    gone(ledger.run_chain(made[4].run_id))
    assert "its chain is missing" in found()
