"""One mail about all pending requests, for people who want it: once a period, about what still waits and is theirs."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db.models import F
from django.utils import timezone

from agentapp import preferences
from approvals import absences, decisions, ledger, notify, people, roundups, tasks
from approvals.manners import Manners, last_due
from approvals.models import Approval, Notification, Roundup
from tests import rows

pytestmark = pytest.mark.django_db
Kind = Notification.Kind
ALWAYS = (time(0), time(23, 59, 59, 999999))


def wants(user: User, rhythm: str = "hourly", at: time | None = None, **more: Any) -> None:
    reach = preferences.Reach(rhythm=rhythm, rhythm_at=at, follow_ups=more.pop("follow_ups", False))
    chosen = dict.fromkeys((Kind.WAITING, Kind.HANDED), ("mail",))
    preferences.set_notifications(user, chosen, more.pop("quiet", None), more.pop("shows", False), reach=reach)


def asked(**card: Any) -> Approval:
    made = [rows.a_card(**card)]
    with ledger.transaction():
        [approval] = decisions.request(made, timezone.now(), (), people.audience(made))
    return rows.read(approval)


def an_hour_later() -> None:
    """As if everything queued and sent had been so an hour earlier."""
    hour = timedelta(hours=1)
    Notification.objects.update(created_at=F("created_at") - hour)
    Roundup.objects.update(period=F("period") - hour)


def states() -> list[str]:
    return [row.error or row.state for row in Notification.objects.order_by("created_at", "pk")]


def send_due() -> list[bool]:
    return [roundups.send(user_id) for user_id in roundups.due_people(50)]


# --- When ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rhythm", "at", "now", "due"),
    [
        ("at_once", None, (22, 10, 30), None),
        ("hourly", None, (22, 10, 30), (22, 10, 0)),
        ("hourly", None, (22, 10, 0), (22, 10, 0)),
        ("daily", time(8), (22, 10, 30), (22, 8, 0)),
        ("daily", time(8), (22, 8, 0), (22, 8, 0)),
        ("daily", time(8), (22, 7, 59), (21, 8, 0)),
    ],
)
def test_it_is_due_when_it_says(rhythm: str, at: time | None, now: Any, due: Any) -> None:
    found = last_due(Manners(rhythm=rhythm, rhythm_at=at), datetime(2026, 11, *now, tzinfo=UTC))
    assert found == (datetime(2026, 11, *due, tzinfo=UTC) if due else None)


def test_the_time_of_day_is_that_of_the_workspace(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    found = last_due(Manners(rhythm="daily", rhythm_at=time(8)), datetime(2026, 7, 22, 6, 30, tzinfo=UTC))
    assert found == datetime(2026, 7, 22, 6, 0, tzinfo=UTC)


def test_until_then_it_waits_without_an_attempt(dana: User) -> None:
    later = (timezone.now() + timedelta(hours=2)).time()
    wants(dana, "daily", later)
    asked()

    assert notify.due_ids(10) == []
    assert send_due() == []
    assert states() == ["queued"]
    assert Notification.objects.get().attempts == 0


@pytest.mark.parametrize("risk", ["high", "critical"])
def test_what_is_of_high_risk_is_told_at_once(dana: User, risk: str) -> None:
    wants(dana)
    asked(risk=risk)

    assert len(notify.due_ids(10)) == 1


def test_what_is_somebody_s_own_is_told_at_once(dana: User) -> None:
    wants(dana)
    approval = asked()
    people.tell([(approval.pk, dana.pk)], Kind.HANDED)

    [pk] = notify.due_ids(10)
    assert Notification.objects.get(pk=pk).kind == Kind.HANDED


def test_whoever_wants_all_at_once_again_gets_what_waited(dana: User) -> None:
    wants(dana)
    asked()
    wants(dana, "at_once")

    assert len(notify.due_ids(10)) == 1


def test_in_quiet_hours_it_waits(dana: User) -> None:
    wants(dana, quiet=ALWAYS)
    asked()
    an_hour_later()

    assert send_due() == []
    assert roundups.send(dana.pk) is False
    assert states() == ["queued"]


# --- What ------------------------------------------------------------------------------------------


def test_it_lists_what_still_waits_and_counts_what_was_decided_meanwhile(dana: User, marco: User) -> None:
    wants(dana)
    one, two, three = (asked(title="Refund $240.00 to Ana") for _ in range(3))
    rows.take(two, marco)
    an_hour_later()

    assert send_due() == [True]

    [message] = mail.outbox
    assert message.to == ["dana@example.test"]
    assert message.subject == "[Countersign] 2 requests wait for your team"
    assert "1 more was decided meanwhile" in message.body
    assert [approval.reference in message.body for approval in (one, two, three)] == [True, False, True]
    assert message.body.count(f"/approvals/{one.pk}/") == 1
    assert "240.00" not in message.body
    assert sorted(states()) == ["Not sent: the request no longer waits.", "sent", "sent"]


def test_what_was_decided_takes_no_place_of_what_waits(
    dana: User, marco: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roundups, "_LOOKED_AT", 2)
    wants(dana)
    for _ in range(4):
        rows.take(asked(expires_seconds=600), marco)
    waits = asked(expires_seconds=7200)
    an_hour_later()

    assert send_due() == [True]

    [message] = mail.outbox
    assert waits.reference in message.body
    assert "4 more were decided meanwhile" in message.body
    assert sorted(states()) == ["Not sent: the request no longer waits."] * 4 + ["sent"]


def test_whoever_asked_for_it_reads_what_would_happen(dana: User) -> None:
    wants(dana, shows=True)
    asked(title="Refund $240.00 to Ana")
    an_hour_later()
    send_due()

    assert "Refund $240.00 to Ana" in mail.outbox[0].body
    assert mail.outbox[0].subject == "[Countersign] 1 request waits for your team"


def test_where_nothing_waits_any_more_nothing_is_sent(dana: User, marco: User) -> None:
    wants(dana)
    rows.take(asked(), marco)
    an_hour_later()

    assert send_due() == [False]

    assert mail.outbox == []
    assert states() == ["Not sent: the request no longer waits."]


def test_what_somebody_may_not_decide_any_more_is_not_in_it(dana: User) -> None:
    wants(dana)
    payments = Group.objects.create(name="payments")
    dana.groups.add(payments)
    asked(groups=(payments.pk,))
    asked()
    dana.groups.remove(payments)
    an_hour_later()
    send_due()

    assert mail.outbox[0].subject == "[Countersign] 1 request waits for your team"
    assert "Not sent: they may no longer decide about it." in states()


def test_a_deputy_reads_it_where_they_may_decide_and_the_person_the_rest(dana: User, marco: User) -> None:
    wants(dana)
    payments = Group.objects.create(name="payments")
    dana.groups.add(payments)
    asked(groups=(payments.pk,))
    asked()
    absences.begin(dana, marco, timezone.now() - timedelta(hours=1), timezone.now() + timedelta(days=1))
    an_hour_later()
    send_due()

    assert sorted(message.to[0] for message in mail.outbox) == ["dana@example.test", "marco@example.test"]
    assert [m.body.startswith("You stand in for Dana") for m in mail.outbox if m.to == ["marco@example.test"]] == [True]


def test_it_waits_in_the_quiet_hours_of_the_deputy_who_reads_it_and_not_in_those_of_who_is_away(
    dana: User, marco: User
) -> None:
    wants(dana, quiet=ALWAYS)
    preferences.set_notifications(marco, {}, ALWAYS, False)
    asked()
    absences.begin(dana, marco, timezone.now() - timedelta(hours=1), timezone.now() + timedelta(days=1))
    an_hour_later()
    send_due()
    assert mail.outbox == []

    preferences.set_notifications(marco, {}, None, False)
    Roundup.objects.update(sending_until=timezone.now() - timedelta(seconds=1))
    send_due()

    assert [message.to for message in mail.outbox] == [["marco@example.test"]]


def test_what_it_told_is_followed_like_any_other(dana: User, marco: User) -> None:
    wants(dana, follow_ups=True)
    approval = asked()
    an_hour_later()
    send_due()

    rows.take(approval, marco)
    for pk in notify.due_ids(10):
        notify.send(pk)

    first, last = mail.outbox
    assert last.extra_headers["In-Reply-To"] == first.extra_headers["Message-ID"]
    assert last.body.startswith("Approved by Marco Reyes")


# --- Once ------------------------------------------------------------------------------------------


def test_two_workers_send_one(dana: User) -> None:
    wants(dana)
    asked()
    an_hour_later()

    assert [roundups.send(dana.pk), roundups.send(dana.pk)] == [True, False]
    assert len(mail.outbox) == 1


def test_while_one_worker_is_at_it_another_sends_none(dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    wants(dana)
    asked()
    an_hour_later()
    seen: list[bool] = []
    send = roundups.mail.send

    def slow(*arguments: Any, **named: Any) -> str:
        seen.append(roundups.send(dana.pk))
        return send(*arguments, **named)

    monkeypatch.setattr(roundups.mail, "send", slow)

    assert roundups.send(dana.pk) is True
    assert seen == [False]
    assert len(mail.outbox) == 1


def test_in_one_period_there_is_one_and_what_comes_after_waits_for_the_next(dana: User) -> None:
    wants(dana)
    asked()
    an_hour_later()
    send_due()
    asked()
    # As if it had arrived before the period began, with its worker late.
    Notification.objects.filter(state="queued").update(created_at=F("created_at") - timedelta(hours=1))

    assert send_due() == []
    assert roundups.send(dana.pk) is False

    an_hour_later()
    assert send_due() == [True]
    assert len(mail.outbox) == 2


def test_a_worker_that_dies_leaves_it_for_the_next(dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    wants(dana)
    asked()
    an_hour_later()

    def dies(*arguments: Any, **named: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(roundups.mail, "send", dies)
        with pytest.raises(KeyboardInterrupt):
            roundups.send(dana.pk)
    assert states() == ["queued"]
    assert roundups.send(dana.pk) is False, "the dead worker may still be sending"
    Roundup.objects.update(sending_until=timezone.now() - timedelta(seconds=1))

    assert send_due() == [True]
    assert states() == ["sent"]


def test_a_mail_server_that_is_away_is_tried_again_until_it_has_been_tried_enough(dana: User, settings: Any) -> None:
    wants(dana)
    asked()
    an_hour_later()
    smtp = "django.core.mail.backends.smtp.EmailBackend"
    settings.MAILERS = {"default": {"BACKEND": smtp, "OPTIONS": {"host": "127.0.0.1", "port": 9, "timeout": 2}}}

    for attempts in range(1, roundups.ATTEMPTS + 1):
        assert send_due() == [False]
        row = Notification.objects.get()
        assert row.attempts == attempts
        assert row.error.startswith("The mail server did not accept the message")
        Roundup.objects.update(sending_until=None)

    assert row.state == "failed"
    assert send_due() == []


def test_the_beat_sends_what_is_due(dana: User) -> None:
    wants(dana)
    asked()
    an_hour_later()
    current_app.conf.task_always_eager = True
    try:
        tasks.send_queued()
        tasks.send_queued()
    finally:
        current_app.conf.task_always_eager = False

    assert len(mail.outbox) == 1
    assert states() == ["sent"]
