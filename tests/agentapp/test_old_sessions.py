"""Expired sessions are removed, however many there are."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from agentapp import old_sessions, tasks

pytestmark = pytest.mark.django_db


def session(**ends_in: float) -> str:
    ends = timezone.now() + timedelta(**ends_in)
    return Session.objects.create(session_key=uuid.uuid4().hex, session_data="", expire_date=ends).pk


def listed(user: User, key: str, **seen_before: float) -> int:
    row = UserSession.objects.create(user=user, session_key=key, ip="203.0.113.7", user_agent="", data={})
    UserSession.objects.filter(pk=row.pk).update(last_seen_at=timezone.now() - timedelta(**seen_before))
    return row.pk


def test_sessions_that_are_over_are_deleted_and_those_that_are_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_sessions, "BATCH", 2)
    stays = session(minutes=1)
    for _ in range(5):
        session(minutes=-1)
    assert old_sessions.forget() == 5
    assert [row.pk for row in Session.objects.all()] == [stays]
    assert old_sessions.forget() == 0


def test_one_pass_deletes_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_sessions, "BATCH", 2)
    monkeypatch.setattr(old_sessions, "MOST", 4)
    for _ in range(7):
        session(minutes=-1)
    assert [old_sessions.forget() for _ in range(3)] == [4, 3, 0]


def test_whose_session_is_gone_is_taken_out_of_the_list_unless_it_has_just_begun(dana: User) -> None:
    goes_on = listed(dana, session(hours=1), hours=7)
    begins = listed(dana, "not-stored-yet", minutes=1)
    listed(dana, session(hours=-1), hours=9)
    listed(dana, "ended", hours=9)
    assert old_sessions.forget() == 3
    assert set(UserSession.objects.values_list("pk", flat=True)) == {goes_on, begins}


def test_the_beat_has_it_done_each_hour(settings: Any) -> None:
    entries = settings.CELERY_BEAT_SCHEDULE.values()
    assert [entry["schedule"] for entry in entries if entry["task"] == tasks.forget_sessions.name] == [3600.0]
    session(minutes=-1)
    tasks.forget_sessions()
    assert not Session.objects.exists()
