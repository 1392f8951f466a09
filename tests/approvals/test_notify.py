"""People are told at least once, or the row says why not; the approval goes on either way."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.core import mail
from django.core.mail.backends import locmem
from django.db.models import F
from django.utils import timezone
from kombu.exceptions import OperationalError

from approvals import broker, cards, decisions, ledger, notify, nudges, outgoing, tasks
from approvals.channels.memory import outbox
from approvals.ids import uuid7
from approvals.models import Approval, Channel, Notification
from tests.absent import silent
from tests.rows import a_card

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _empty_outbox() -> None:
    outbox.clear()


@pytest.fixture
def _tasks_run_at_once() -> Iterator[None]:
    """Tasks run in the caller, so that a test sees what a worker would do."""
    current_app.conf.task_always_eager = True
    yield
    current_app.conf.task_always_eager = False


def queued(kind: str = "memory", config: Any = None) -> Notification:
    channel = Channel.objects.create(name="desk", kind=kind, config=config or {})
    card = cards.Card(
        run_id=uuid7(),
        execution_id=uuid7(),
        agent="support",
        tool="pay_out",
        tool_version="1",
        effect_class="irreversible",
        arguments_text="{}",
        title="Pay",
        sentence=[],
        effects=[],
        reason="",
        expires_seconds=3600,
        hold_seconds=0,
    )
    with ledger.transaction():
        decisions.request([card], timezone.now() - timedelta(seconds=1), [channel])
    return Notification.objects.get()


def age(**by: float) -> None:
    """Let time pass for every notification."""
    ago = timedelta(**by)
    Notification.objects.update(created_at=F("created_at") - ago, sending_until=F("sending_until") - ago)


def test_a_notification_is_sent_once_and_says_when() -> None:
    notification = queued()
    assert notify.send(notification.pk) is True
    notification.refresh_from_db()
    assert (notification.state, notification.attempts, notification.error) == ("sent", 1, "")
    assert notification.sent_at is not None
    assert notify.send(notification.pk) is False
    assert [sent.pk for sent in outbox] == [notification.pk]


def test_a_channel_that_fails_for_now_is_tried_again_later_not_at_once() -> None:
    notification = queued(config={"fails": "for_now"})
    assert notify.send(notification.pk) is False
    notification.refresh_from_db()
    assert (notification.state, notification.attempts) == ("queued", 1)
    assert notification.error == "This channel is set to fail."
    assert notify.due_ids(10) == []
    assert notify.send(notification.pk) is False
    notification.refresh_from_db()
    assert notification.attempts == 1
    age(minutes=1)
    assert notify.due_ids(10) == [notification.pk]


def test_a_channel_that_comes_back_gets_its_notification() -> None:
    notification = queued(config={"fails": "for_now"})
    notify.send(notification.pk)
    Channel.objects.update(config={})
    age(minutes=2)
    assert notify.send(notification.pk) is True
    notification.refresh_from_db()
    assert (notification.state, notification.attempts, notification.error) == ("sent", 2, "")


def test_after_the_last_attempt_it_has_failed() -> None:
    notification = queued(config={"fails": "for_now"})
    age(hours=5)
    for _ in notify.DUE_AFTER:
        assert notify.due_ids(10) == [notification.pk]
        notify.send(notification.pk)
        assert notify.due_ids(10) == []
        age(hours=4)
    notification.refresh_from_db()
    assert (notification.state, notification.attempts) == ("failed", len(notify.DUE_AFTER))
    assert notify.due_ids(10) == []


def test_what_was_held_back_for_a_night_is_tried_as_far_apart_as_what_was_not() -> None:
    notification = queued(config={"fails": "for_now"})
    age(hours=9)
    notify.send(notification.pk)
    for minutes in (1, 4, 15):
        age(minutes=minutes - 0.1)
        assert notify.due_ids(10) == []
        age(minutes=0.1)
        assert notify.due_ids(10) == [notification.pk]
        notify.send(notification.pk)


@pytest.mark.parametrize(
    ("kind", "config", "why"),
    [
        ("memory", {"fails": "for_good"}, "set to fail"),
        ("memory", {"no_such_key": 1}, "not set up correctly"),
        ("pigeon", {}, "no channel kind 'pigeon'"),
    ],
)
def test_what_would_not_help_is_not_tried_again(kind: str, config: Any, why: str) -> None:
    notification = queued(kind, config)
    assert notify.send(notification.pk) is False
    notification.refresh_from_db()
    assert (notification.state, notification.attempts) == ("failed", 1)
    assert why in notification.error


def test_nobody_is_told_of_a_request_that_no_longer_waits() -> None:
    notification = queued()
    Approval.objects.update(state=Approval.State.WITHDRAWN)
    assert notify.send(notification.pk) is False
    notification.refresh_from_db()
    assert notification.state == "failed"
    assert "no longer waits" in notification.error
    assert not outbox


def test_a_channel_that_was_switched_off_tells_nobody() -> None:
    notification = queued()
    Channel.objects.update(active=False)
    notify.send(notification.pk)
    notification.refresh_from_db()
    assert "switched off" in notification.error
    assert not outbox


def test_an_error_nobody_foresaw_is_kept_and_tried_again(settings: Any) -> None:
    settings.MAILERS = {"default": {"BACKEND": "no.such.Backend"}}
    notification = queued("email", {"to": ["desk@example.test"]})
    assert notify.send(notification.pk) is False
    notification.refresh_from_db()
    assert notification.state == "queued"
    assert "InvalidMailer" in notification.error


def test_a_failing_channel_never_stops_an_approval() -> None:
    notification = queued(config={"fails": "for_good"})
    notify.send(notification.pk)
    assert Approval.objects.get().state == Approval.State.PENDING
    assert Approval.objects.get().version == 1


def test_an_attempt_whose_worker_died_is_made_again() -> None:
    notification = queued()
    Notification.objects.update(attempts=1)
    assert notify.send(notification.pk) is False, "the dead worker may still be sending"
    age(minutes=2)
    assert notify.send(notification.pk) is True


def test_while_a_slow_server_takes_one_mail_no_other_attempt_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    notification = queued("email", {"to": ["desk@example.test"]})
    again: list[bool] = []

    def slow(backend: locmem.EmailBackend, messages: Any) -> int:
        if not again:
            age(minutes=5)
            again.append(notify.send(notification.pk))
        return taken(backend, messages)

    taken = locmem.EmailBackend.send_messages
    monkeypatch.setattr(locmem.EmailBackend, "send_messages", slow)
    assert notify.send(notification.pk) is True
    notification.refresh_from_db()
    assert (again, len(mail.outbox)) == ([False], 1)
    assert (notification.state, notification.attempts) == ("sent", 1)


def test_an_attempt_whose_worker_died_is_made_again_when_it_cannot_be_under_way_any_more() -> None:
    notification = queued()
    Notification.objects.update(attempts=1, sending_until=timezone.now() + timedelta(minutes=10))
    age(minutes=5)
    assert notify.send(notification.pk) is False
    Notification.objects.update(sending_until=timezone.now() - timedelta(seconds=1))
    assert notify.send(notification.pk) is True


def test_a_last_attempt_that_is_under_way_is_not_given_up() -> None:
    queued()
    age(days=1)
    until = timezone.now() + timedelta(minutes=10)
    Notification.objects.update(attempts=len(notify.DUE_AFTER), sending_until=until)
    assert notify.give_up() == 0


def test_a_last_attempt_whose_worker_died_does_not_stay_queued() -> None:
    queued()
    Notification.objects.update(attempts=len(notify.DUE_AFTER))
    assert notify.give_up() == 0
    age(days=1)
    assert notify.give_up() == 1
    assert "not known" in Notification.objects.get().error


@pytest.mark.usefixtures("_tasks_run_at_once")
def test_the_beat_hands_out_what_is_due() -> None:
    notification = queued()
    assert tasks.send_queued() == 1
    assert [sent.pk for sent in outbox] == [notification.pk]
    assert tasks.send_queued() == 0


@pytest.mark.usefixtures("_tasks_run_at_once")
def test_a_mail_server_that_hangs_is_waited_for_once_in_a_pass(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    smtp, timeout = "django.core.mail.backends.smtp.EmailBackend", 0.2
    monkeypatch.setattr(outgoing, "WAITED_SECONDS", timeout / 2)
    first = queued("email", {"to": ["desk@example.test"]})
    with ledger.transaction():
        decisions.request([a_card() for _ in range(4)], timezone.now(), [first.channel])
    other = Channel.objects.create(name="other", kind="memory")
    with ledger.transaction():
        decisions.request([a_card()], timezone.now(), [other])
    with silent() as server:
        options = {"host": "127.0.0.1", "port": server.port, "timeout": timeout}
        settings.MAILERS = {"default": {"BACKEND": smtp, "OPTIONS": options}}
        assert tasks.send_queued() == 2
        assert server.connections() == 1
    assert sorted(Notification.objects.filter(channel=first.channel).values_list("attempts", flat=True)) == [
        0, 0, 0, 0, 1,
    ]  # fmt: skip
    assert len(outbox) == 1


@pytest.mark.usefixtures("_tasks_run_at_once")
def test_while_a_thread_sends_over_a_channel_no_other_begins() -> None:
    notification = queued()
    with outgoing.turn(str(notification.channel_id)):
        tasks.send_queued()
        assert not outbox
    tasks.send_queued()
    assert [sent.pk for sent in outbox] == [notification.pk]


@pytest.mark.usefixtures("_tasks_run_at_once")
def test_what_a_pass_left_is_sent_by_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(broker, "tell", lambda task, **more: told.append(task))
    monkeypatch.setattr(tasks, "BATCH", 1)
    first = queued()
    with ledger.transaction():
        decisions.request([a_card()], timezone.now(), [first.channel])
    told.clear()
    tasks.send_queued()
    assert (len(outbox), told) == (1, [nudges.SEND_QUEUED])
    tasks.send_queued()
    assert (len(outbox), told) == (2, [nudges.SEND_QUEUED])


def test_a_broker_that_is_not_there_never_stops_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(broker.current_app, "send_task", refused)
    nudges.nudge()


def test_a_nudge_names_the_task_that_sends() -> None:
    assert tasks.send_queued.name == nudges.SEND_QUEUED
