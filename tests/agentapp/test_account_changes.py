"""The owner of a changed account is told by mail, after the change."""

from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from celery import current_app
from celery.exceptions import Retry
from django.contrib.auth.models import User
from django.core.mail.backends.locmem import EmailBackend

from agentapp import account_changes, factors, nudges, tasks
from approvals import ledger, outgoing
from approvals.models import Event

pytestmark = pytest.mark.django_db
NOW = "2026-03-02T09:30:00+00:00"


def mailed(user: User, event: str, kind: str = "") -> None:
    tasks.mail_account_change(user.pk, event, kind, NOW)


def test_the_task_has_the_name_it_is_called_by() -> None:
    assert tasks.mail_account_change.name == nudges.MAIL_ACCOUNT_CHANGE


@pytest.mark.parametrize(
    ("event", "kind", "said"),
    [
        (account_changes.PASSWORD_CHANGED, "", "The password of your account was changed."),
        (account_changes.FACTOR_ADDED, "passkey", "A passkey was added to your account."),
        (account_changes.FACTOR_REMOVED, "totp", "An authenticator app was removed from your account."),
        (
            account_changes.FACTORS_FORGOTTEN,
            "",
            "An administrator removed the passkeys and second factors of your account.",
        ),
    ],
)
def test_a_change_is_told_to_whose_account_it_is(
    dana: User, mailoutbox: Any, settings: Any, event: str, kind: str, said: str
) -> None:
    settings.PASSWORD_RESET, settings.BASE_URL = True, "https://countersign.example"

    mailed(dana, event, kind)

    [message] = mailoutbox
    assert message.to == ["dana@example.test"]
    assert said in message.subject
    assert [part in message.body for part in (said, "Account   dana", "2026-03-02 09:30 UTC")] == [True] * 3
    assert "https://countersign.example/login/reset/\n" in message.body


def test_another_address_is_told_to_the_one_that_was_without_a_link_that_would_not_come_there(
    dana: User, mailoutbox: Any, settings: Any
) -> None:
    settings.PASSWORD_RESET, settings.BASE_URL = True, "https://countersign.example"
    User.objects.filter(pk=dana.pk).update(email="me@evil.example")

    mailed(dana, account_changes.ADDRESS_CHANGED, "dana@example.test")

    [message] = mailoutbox
    assert message.to == ["dana@example.test"]
    assert "The mail address of your account was changed." in message.subject
    assert "tell an administrator at once" in message.body
    assert "http" not in message.body
    assert "evil" not in message.body


def test_an_account_that_had_no_address_has_nobody_to_be_told(dana: User, told: list[Any]) -> None:
    account_changes.address_changed(dana, "")
    assert told == []


def test_where_no_password_can_be_chosen_by_mail_an_administrator_is_named(
    dana: User, mailoutbox: Any, settings: Any
) -> None:
    settings.PASSWORD_RESET = False

    mailed(dana, account_changes.PASSWORD_CHANGED)

    assert "tell an administrator at once" in mailoutbox[0].body
    assert "http" not in mailoutbox[0].body


def test_who_has_no_address_or_is_switched_off_is_sent_nothing(dana: User, marco: User, mailoutbox: Any) -> None:
    User.objects.filter(pk=dana.pk).update(email="")
    User.objects.filter(pk=marco.pk).update(is_active=False)

    mailed(dana, account_changes.PASSWORD_CHANGED)
    mailed(marco, account_changes.PASSWORD_CHANGED)

    assert mailoutbox == []


def test_a_mail_server_that_is_down_breaks_nothing(
    dana: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*_: Any) -> int:
        raise OSError("nobody there")

    monkeypatch.setattr(EmailBackend, "send_messages", down)
    mailed(dana, account_changes.PASSWORD_CHANGED)
    assert f"User {dana.pk} could not be told" in caplog.text


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The mails that workers are told to send."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, arguments, **_: found.append((name, *arguments[:3])))
    return found


def test_it_is_told_once_it_is_stored_and_not_before(
    dana: User, told: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True), ledger.transaction():
        account_changes.record(dana, account_changes.FACTOR_ADDED, {"kind": "passkey"}, "test")
        assert told == []
    assert told == [(nudges.MAIL_ACCOUNT_CHANGE, dana.pk, account_changes.FACTOR_ADDED, "passkey")]


def test_codes_that_go_with_what_they_stand_in_for_are_not_told(
    dana: User, told: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True), ledger.transaction():
        account_changes.record(dana, account_changes.FACTOR_REMOVED, {"kind": account_changes.CODES}, "test")
    assert told == []


def test_what_an_administrator_takes_away_is_told(
    dana: User, told: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    Authenticator.objects.create(user=dana, type="totp", data={"secret": "A" * 32})
    with django_capture_on_commit_callbacks(execute=True):
        assert factors.forget(dana, "test") == 1
    assert told == [(nudges.MAIL_ACCOUNT_CHANGE, dana.pk, account_changes.FACTORS_FORGOTTEN, "")]


def test_a_broker_that_is_down_keeps_nobody_from_changing_a_password(
    dana: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*_: Any, **__: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(current_app, "send_task", down)
    nudges.account_changed(dana.pk, account_changes.PASSWORD_CHANGED, "", NOW)
    assert "Could not tell a worker to mail user" in caplog.text


def test_mail_about_accounts_takes_one_thread_and_comes_back_for_its_turn(
    dana: User, mailoutbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_back: list[float] = []

    def retry(countdown: float) -> Retry:
        come_back.append(countdown)
        return Retry()

    for task in (tasks.mail_account_change, tasks.mail_reset_links):
        monkeypatch.setattr(task, "retry", retry)
    asks = lambda: tasks.mail_reset_links("dana@example.test", {})  # noqa: E731
    changes = lambda: mailed(dana, account_changes.PASSWORD_CHANGED)  # noqa: E731
    # Another thread waits for a silent mail server.
    with outgoing.turn(tasks.ACCOUNTS, apart=True) as its:
        assert its
        for mails in (asks, changes):
            with pytest.raises(Retry):
                mails()
    assert come_back == [tasks.MAIL_AGAIN_SECONDS] * 2
    assert mailoutbox == []

    asks()
    changes()
    assert len(mailoutbox) == 2


def test_mail_about_accounts_does_not_wait_for_receivers_that_hang(dana: User, mailoutbox: Any) -> None:
    with outgoing.turn("webhook 1"), outgoing.turn("webhook 2"), outgoing.turn("webhook 3"):
        mailed(dana, account_changes.PASSWORD_CHANGED)

    assert len(mailoutbox) == 1


def test_mail_about_accounts_that_never_had_its_turn_is_noted_and_the_log_does_not_say_whose_it_was(
    dana: User, mailoutbox: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with outgoing.turn(tasks.ACCOUNTS, apart=True):
        tasks.mail_reset_links.apply(("dana@example.test", {}), retries=tasks.MAIL_TRIES)
        tasks.mail_account_change.apply((dana.pk, account_changes.PASSWORD_CHANGED, "", NOW), retries=tasks.MAIL_TRIES)

    assert mailoutbox == []
    assert caplog.text.count("A mail about an account was given up") == 2
    assert "dana@example.test" not in caplog.text
    [asked] = Event.objects.filter(type="signin.reset_asked")
    assert asked.data == {"user": "dana", "known": True, "mailed": False, "reason": "mail_failed"}
