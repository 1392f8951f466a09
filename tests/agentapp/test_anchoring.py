"""Checkpoints sent to an address outside, and what is reported if it does not accept them."""

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agentapp import anchoring, health, tasks
from approvals import append_only, ledger
from approvals.models import Anchor, Checkpoint, Event, Verification
from approvals.proof import anchors, checkpoints, verifying
from tests.webhook_receiver import Receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def outside(settings: Any) -> Iterator[Receiver]:
    receiver = Receiver()
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.0/24")]
    settings.LEDGER = replace(settings.LEDGER, anchor_url=receiver.url)
    yield receiver
    receiver.close()


def tell() -> None:
    with ledger.transaction():
        ledger.record("shop", "opened")


def a_checkpoint() -> Checkpoint:
    tell()
    [made] = checkpoints.make()
    return made


def test_each_checkpoint_is_told_once_in_its_order(outside: Receiver) -> None:
    made = [a_checkpoint(), a_checkpoint()]
    assert (anchoring.send_due(), anchoring.send_due()) == (2, 0)
    told = [json.loads(received.body) for received in outside.received]
    assert [(one["number"], one["statement"]) for one in told] == [(row.number, row.statement) for row in made]
    assert Anchor.objects.get(pk="url").reached == 2


def test_what_was_not_taken_is_told_again_later(outside: Receiver) -> None:
    a_checkpoint()
    outside.answers = [(503, {}, b"the secret of the day")]
    assert anchoring.send_due() == 0
    row = Anchor.objects.get(pk="url")
    assert (row.reached, row.attempts, row.problem) == (0, 1, "The server answered 503.")
    assert anchoring.send_due() == 0  # not before it is due
    assert len(outside.received) == 1
    Anchor.objects.update(next_at=timezone.now())
    assert anchoring.send_due() == 1
    row.refresh_from_db()
    assert (row.reached, row.problem) == (1, "")


def test_an_inner_address_is_not_asked(outside: Receiver, settings: Any) -> None:
    settings.OUTBOUND_NETWORKS = []
    a_checkpoint()
    assert anchoring.send_due() == 0
    assert outside.received == []
    assert "not a public address" in Anchor.objects.get(pk="url").problem


def test_without_an_address_nothing_is_told(settings: Any) -> None:
    a_checkpoint()
    assert anchoring.send_due() == 0


def test_a_place_that_fails_for_long_is_a_problem_until_it_takes_them(outside: Receiver) -> None:
    a_checkpoint()
    outside.answers = [(503, {}, b"")]
    anchoring.send_due()
    assert health.look() == []
    Anchor.objects.update(failing_since=timezone.now() - anchors.FAILING_LONG - timedelta(seconds=1))
    [problem] = health.look()
    assert (problem.code, problem.details, problem.fatal) == (
        "ledger_not_anchored", "The server answered 503.", False
    )  # fmt: skip
    Anchor.objects.update(next_at=None)
    anchoring.send_due()
    assert health.look() == []


def test_a_ledger_that_does_not_hold_is_a_problem_until_it_does() -> None:
    tell()
    tell()
    append_only.remove(connection)
    Event.objects.filter(chain="shop", seq=1).update(actor="mallory")
    tasks.verify_ledger(str(verifying.start(None).pk))
    [problem] = health.look()
    assert problem.code == "ledger_broken"
    assert problem.details == "The ledger is broken at shop, event 1: its columns do not match its text."
    Event.objects.filter(chain="shop", seq=1).update(actor="system")
    tasks.verify_ledger(str(verifying.start(None).pk))
    assert health.look() == []


def test_a_check_that_does_not_end_for_two_days_is_a_problem_until_one_does(django_assert_num_queries: Any) -> None:
    tell()
    row = verifying.start(None)
    assert health.look() == []
    Verification.objects.update(started_at=timezone.now() - timedelta(hours=49))
    with django_assert_num_queries(1):
        [problem] = health.look()
    assert (problem.code, problem.fatal) == ("ledger_not_checked", False)
    assert problem.message == "No check of the whole ledger has ended for 49 h."
    tasks.verify_ledger(str(row.pk))
    assert health.look() == []
    # The next check starts, and does not end either.
    verifying.start(None)
    Verification.objects.filter(pk=row.pk).update(finished_at=timezone.now() - timedelta(hours=49))
    assert [problem.code for problem in health.look()] == ["ledger_not_checked"]


def test_beat_has_it_signed_noted_and_looked_at(settings: Any, tmp_path: Any, outside: Receiver) -> None:
    settings.LEDGER = replace(settings.LEDGER, anchor_file=tmp_path / "checkpoints.jsonl")
    tell()
    for _ in range(2):
        tasks.look_after_ledger()
    assert Checkpoint.objects.count() == len(outside.received) == 1
    assert len(list(anchors.read_file(tmp_path / "checkpoints.jsonl"))) == 1
    assert Verification.objects.count() == 1
