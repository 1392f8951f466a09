import os
import stat
import threading
import uuid
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from approvals import append_only, ledger, signatures, streaming
from approvals.digest import canonical, load, sha256
from approvals.models import Anchor, Checkpoint, Event, Verification
from approvals.proof import anchors, chains, checkpoints, status, verifying
from approvals.proof.chains import Scope
from tests.approvals.decisions.test_assurance import signed
from tests.passkeys import Passkey
from tests.races import race
from tests.rows import a_request, decide

pytestmark = pytest.mark.django_db

RUNS = [ledger.run_chain(uuid.UUID(int=number)) for number in range(1, 8)]


def tell(*chains: str) -> None:
    with ledger.transaction():
        for number, chain in enumerate(chains):
            ledger.record(chain, "step.recorded", {"number": number})


@pytest.fixture
def past():
    tell(*RUNS, *RUNS, *[RUNS[0]] * 10)
    checkpoints.make()
    tell(*RUNS[:3])


def finished(row: Verification, seconds: float = 0) -> Verification:
    """As workers do it: slice after slice. With zero seconds, a slice is one step."""
    while verifying.go_on(row.pk, seconds):
        pass
    row.refresh_from_db()
    return row


def test_the_whole_is_looked_at_step_by_step_and_says_how_far_it_is(past, monkeypatch, dana):
    monkeypatch.setattr(chains.Walk.go_on, "__defaults__", (4,))
    row = verifying.start(dana)
    assert (row.state, row.events_total, verifying.latest()) == ("running", Event.objects.count(), row)
    seen = []
    while verifying.go_on(row.pk, 0):
        row.refresh_from_db()
        seen.append(row.events)
    row.refresh_from_db()
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert (row.state, row.holds, row.events, row.checkpoints) == ("done", True, Event.objects.count(), 1)
    assert verifying.status(row.pk).started_by == dana


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 1000])
def test_where_slices_are_cut_changes_nothing(past, size):
    """Each slice as if another worker continued it: from the cursor alone."""
    walk, held, more = chains.Walk(), 0, True
    while more:
        more = walk.go_on(size)
        held += walk.held
        assert walk.broken is None, walk.broken
        walk = chains.Walk(cursor=chains.Cursor(**vars(walk.cursor)))
    assert held == Event.objects.count()


def test_a_checkpoint_made_while_a_long_chain_is_read_is_no_break(transactional_db):
    tell(*[RUNS[0]] * 9)
    walk = chains.Walk()
    walk.go_on(4)
    checkpoints.make()
    while walk.go_on(4):
        pass
    assert (walk.broken, walk.held) == (None, Event.objects.filter(chain__gte="ledger").count())


def test_events_written_meanwhile_are_no_break(transactional_db):
    tell(*RUNS)
    walk = chains.Walk()
    while walk.go_on(2):
        tell(*RUNS)
    assert walk.broken is None


def test_what_a_dead_worker_left_another_goes_on_with(past):
    row = verifying.start(None)
    Verification.objects.update(claimed_until=timezone.now() + timedelta(minutes=1))
    assert verifying.due() == []
    assert verifying.go_on(row.pk) is False
    Verification.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert verifying.due() == [row.pk]
    assert finished(row).holds is True


def test_asking_again_while_it_is_looked_at_is_one_look(past, dana, marco):
    assert verifying.start(dana) == verifying.start(marco)
    other = verifying.start(dana, Scope(chain=RUNS[0]))
    assert finished(other).events == 13
    assert Verification.objects.count() == 2


def test_a_day_after_the_last_it_is_looked_at_anew(past):
    [first] = verifying.due()
    assert verifying.due() == [first]
    finished(verifying.status(first))
    assert verifying.due() == []
    later = timezone.now() + timedelta(days=1, seconds=1)
    assert len(verifying.due(later)) == 1


def test_an_empty_ledger_is_not_looked_at():
    assert verifying.due() == []


def test_only_chains_that_something_happened_in_are_looked_at(past):
    since = timezone.now()
    tell(RUNS[4])
    row = finished(verifying.start(None, Scope(since=since)))
    assert (row.holds, row.events) == (True, 3)


def test_a_break_is_kept_with_its_neighbours_and_stands_until_it_holds_again(past):
    append_only.remove(connection)
    Event.objects.filter(chain=RUNS[3], seq=2).update(actor="user:1:mallory")
    row = finished(verifying.start(None))
    assert (row.holds, row.broken["chain"], row.broken["seq"]) == (False, RUNS[3], 2)
    assert (row.broken["before"]["seq"], row.broken["found"]["seq"]) == (1, 2)
    assert verifying.named(row.broken) == (
        f"The ledger is broken at {RUNS[3]}, event 2: its columns do not match its text."
    )
    assert status.standing().holds is False


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"id": 5}, "its key does not match its text"),
        ({"id": None}, "its key does not match its text"),
        ({"chain": ["x"]}, "its columns do not match its text"),
        ({"data": 5}, ""),
        ({"at": {}}, "its columns do not match its text"),
    ],
    ids=str,
)
def test_whatever_a_text_with_the_right_hash_says_a_check_names_it_and_ends(past, told, problem):
    append_only.remove(connection)
    event = Event.objects.get(chain=RUNS[0], seq=2)
    text = canonical(load(event.body) | told)
    Event.objects.filter(pk=event.pk).update(body=text, hash=sha256(text))
    row = finished(verifying.start(None))
    # A field that may have this value is given away by what follows.
    seq, problem = (2, problem) if problem else (3, "it does not follow the event before it")
    assert (row.state, row.broken["chain"], row.broken["seq"], row.broken["problem"]) == ("done", RUNS[0], seq, problem)


def test_how_it_stands_costs_two_queries(past, django_assert_num_queries):
    anchors.write_file()
    row = finished(verifying.start(None))
    verifying.start(None)
    with django_assert_num_queries(2):
        now = status.standing()
    last = Checkpoint.objects.get()
    assert (now.holds, now.events, now.verified_at) == (True, row.events, row.finished_at)
    assert (now.anchored, now.anchored_events, now.noted_outside) == (last.digest, last.events, True)
    assert now.running is not None


def test_how_an_installation_stands_that_has_done_nothing_yet():
    now = status.standing()
    assert (now.holds, now.anchored_at, now.running, now.not_anchored) == (None, None, None, "")


# --- What is noted outside ---------------------------------------------------------------------


def test_checkpoints_are_added_to_a_file_once(past, settings):
    file = settings.LEDGER.anchor_file
    mask = os.umask(0o077)  # as in a command that root types
    try:
        assert (anchors.write_file(), anchors.write_file()) == (1, 0)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    file.chmod(0o640)  # the administrator's choice of who may read it stays
    tell(RUNS[0])
    checkpoints.make()
    assert anchors.write_file() == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    noted = list(anchors.read_file(file))
    assert [one.number for one in noted] == [1, 2]
    assert [one.statement for one in noted] == [row.statement for row in Checkpoint.objects.order_by("number")]


def test_a_line_that_a_dead_worker_began_is_written_anew(past, settings):
    anchors.write_file()
    tell(RUNS[0])
    checkpoints.make()
    with settings.LEDGER.anchor_file.open("a") as file:
        file.write('{"kind":"checkpoint","num')
    assert anchors.write_file() == 1
    assert [one.number for one in anchors.read_file(settings.LEDGER.anchor_file)] == [1, 2]


def test_a_file_that_cannot_be_written_is_tried_again_later(past, settings, folder):
    settings.LEDGER.anchor_file.mkdir()
    assert anchors.write_file() == 0
    row = Anchor.objects.get(pk="file")
    assert (row.attempts, row.reached) == (1, 0)
    assert "cannot be written" in row.problem
    assert row.failing_since is not None
    settings.LEDGER.anchor_file.rmdir()
    assert anchors.write_file() == 0  # not before it is due
    Anchor.objects.update(next_at=timezone.now())
    assert anchors.write_file() == 1
    row.refresh_from_db()
    assert (row.problem, row.failing_since, row.attempts) == ("", None, 0)


@pytest.mark.parametrize("change", ["statement", "gone"])
def test_checkpoints_that_are_not_those_that_were_noted_are_found(past, settings, change):
    anchors.write_file()
    append_only.remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM approvals_checkpointleaf")
        cursor.execute("DELETE FROM approvals_checkpoint")
        cursor.execute("UPDATE approvals_chainhead SET covered_seq = 0, uncovered = %s", [True])
    if change == "statement":
        checkpoints.make()
    row = finished(verifying.start(None))
    assert (row.holds, row.broken["chain"], row.broken["seq"]) == (False, "checkpoints", 1)
    assert "noted outside" in row.broken["problem"]


# --- Races -------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_decision_signed_while_decisions_are_looked_at_is_no_break(dana, monkeypatch):
    first, second = (a_request(assurance_needed="signed") for _ in range(2))
    decide(first, signed(first, dana, Passkey()))

    @contextmanager
    def slowly(rows, *most):
        with streaming.streamed(rows, *most) as found:
            yield found
        if rows.model is Event:
            [taken] = race(lambda: decide(second, signed(second, dana, Passkey())))
            assert taken.decision.signature

    with monkeypatch.context() as patched:
        patched.setattr(signatures, "streamed", slowly)
        row = finished(verifying.start(None))
    assert (row.signed, row.holds, row.broken) == (1, True, None)
    assert signatures.verify_all() == (2, None)


@pytest.mark.django_db(transaction=True)
def test_writers_checkpoints_and_looks_do_not_get_in_each_others_way(past):
    failures: list[BaseException] = []
    together = threading.Barrier(5)

    def repeatedly(what, times: int) -> None:
        try:
            together.wait(timeout=30)
            for _ in range(times):
                what()
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    def look() -> None:
        walk = chains.Walk()
        while walk.go_on(7):
            pass
        assert walk.broken is None, walk.broken

    def write() -> None:
        tell(ledger.CONFIGURATION, ledger.LEDGER)

    ways = [(write, 40), (write, 40), (checkpoints.make, 10), (checkpoints.make, 10), (look, 10)]
    threads = [threading.Thread(target=repeatedly, args=way) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert failures == []
    checkpoints.make()
    found = verifying.look()
    assert (found.broken, found.events) == (None, Event.objects.count())
    assert Checkpoint.objects.order_by("-number").first().events == Event.objects.count()
