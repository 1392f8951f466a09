"""Sending at the moment of a decision, and two workers at one roundup. On PostgreSQL they truly meet."""

from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db.models import F
from django.utils import timezone

from agentapp import preferences
from approvals import decisions, ledger, notify, people, roundups
from approvals.models import Channel, Notification
from tests.races import few_tries, race
from tests.rows import a_card, take

pytestmark = pytest.mark.django_db(transaction=True)
DESK = {"to": ["desk@example.test"]}


def test_a_message_that_is_sent_while_somebody_decides_is_followed_once(dana: User) -> None:
    channel = Channel.objects.create(name="desk", kind="email", config=DESK)
    seen = set()
    for _ in range(few_tries()):
        with ledger.transaction():
            [approval] = decisions.request([a_card()], timezone.now() - timedelta(seconds=1), [channel])
        first = Notification.objects.get(approval=approval)

        sent, decided = race(partial(notify.send, first.pk), partial(take, approval, dana))

        assert decided.state == "approved"
        first.refresh_from_db()
        assert first.state == ("sent" if sent else "failed")
        assert first.follow_ups.count() == int(sent)
        seen.add(sent)
    assert True in seen


def test_two_workers_send_one_roundup(dana: User) -> None:
    reach = preferences.Reach(rhythm="hourly")
    preferences.set_notifications(dana, {"waiting": ["mail"]}, None, False, reach=reach)
    for number in range(few_tries()):
        card = a_card()
        with ledger.transaction():
            decisions.request([card], timezone.now(), (), people.audience([card]))
        Notification.objects.filter(state="queued").update(created_at=F("created_at") - timedelta(hours=2))
        roundups.Roundup.objects.update(period=F("period") - timedelta(hours=1))

        sent = race(partial(roundups.send, dana.pk), partial(roundups.send, dana.pk))

        assert sorted(sent) == [False, True]
        assert len(mail.outbox) == number + 1
    assert not Notification.objects.exclude(state="sent").exists()
