"""Slack over real connections: what is posted and changed, and the effect of each of its answers."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from approvals import channels, notify, sending
from approvals.channels.base import ChannelError
from approvals.channels.slack import SlackChannel
from approvals.models import Channel, Notification
from tests.approvals.channels.test_contract import SECRETS, make_notification
from tests.slack_api import TOKEN, Slack

pytestmark = pytest.mark.django_db

CONFIG = {"credential": "SLACK", "channel": "C0123456789"}
# Read as markup, this would call people, link elsewhere or draw.
MARKUP = "<!channel> <https://evil.example|pay> *bold* ~gone~ _it_ `x` & co :fire:"


@pytest.fixture
def notification() -> Notification:
    return make_notification(Channel.objects.create(name="desk", kind="slack", config=CONFIG))


def test_a_channel_is_told_what_waits_and_where_and_nothing_private(slack: Slack, notification: Notification) -> None:
    assert notify.send(notification.pk) is True

    [(method, said)] = slack.asked
    assert (method, said["channel"], slack.tokens) == ("chat.postMessage", "C0123456789", [f"Bearer {TOKEN}"])
    [text] = slack.texts()
    assert "High risk: pay_out waits for a decision" in text
    assert notification.approval.reference in text
    assert text.endswith("[See and decide]")
    [button] = said["blocks"][1]["elements"]
    assert button["url"].endswith(f"/approvals/{notification.approval.pk}/")
    assert not [secret for secret in SECRETS if secret in json.dumps(said)]


def test_the_row_keeps_by_what_name_slack_knows_the_message(slack: Slack, notification: Notification) -> None:
    notify.send(notification.pk)

    notification.refresh_from_db()
    assert notification.receipt == "C0123456789:1700000000.000000"


def test_nothing_from_outside_is_read_as_markup(slack: Slack, settings: Any) -> None:
    settings.WORKSPACE_NAME = MARKUP
    row = Channel.objects.create(name="desk", kind="slack", config=CONFIG)
    channels.open_channel(row).send(sending.message_of(make_notification(row, tool=MARKUP)))

    [(_, said)] = slack.asked
    pieces = [piece for section in said["blocks"][0]["elements"] for piece in section["elements"]]
    # Elements of this type are taken literally: a mention, a link or a style would have another type.
    assert {piece["type"] for piece in pieces} == {"text"}
    assert MARKUP in pieces[0]["text"]
    assert said["text"].startswith("[&lt;!channel&gt; &lt;https://evil.example|pay&gt;")
    assert "&amp; co" in said["text"]
    assert said["mrkdwn"] is False
    assert '"mrkdwn"' not in json.dumps(said["blocks"])


def test_a_message_is_changed_where_it_stands(slack: Slack, notification: Notification) -> None:
    channel = SlackChannel(SlackChannel.config_model.model_validate(CONFIG))
    first = sending.message_of(notification)
    receipt = channel.send(first)

    changed = type(first)(notification, first.title, first.body, first.link, became="Approved by Dana", over=True)
    channel.edit(changed, receipt)

    [text] = slack.texts()
    assert text == f"~{first.title}~\nApproved by Dana [See it]"
    assert slack.asked[1][0] == "chat.update"


@pytest.mark.parametrize(
    ("answer", "words", "permanent"),
    [
        ((200, {}, {"ok": False, "error": "invalid_auth"}), "Slack does not know this token.", True),
        ((200, {}, {"ok": False, "error": "channel_not_found"}), "no such channel or person", True),
        ((200, {}, {"ok": False, "error": "not_in_channel"}), "Invite it there", True),
        ((200, {}, {"ok": False, "error": "internal_error"}), "did not accept the message (internal_error)", False),
        ((200, {}, {"ok": False, "error": "<b>hunter2</b>"}), "did not accept the message (no reason)", False),
        ((200, {}, {"ok": False, "error": "ratelimited"}), "asks for fewer messages", False),
        ((429, {"Retry-After": "30"}, b""), "none for 30 s", False),
        ((429, {"Retry-After": "a while"}, b""), "asks for fewer messages.", False),
        ((500, {}, b"<html>"), "Slack answered 500", False),
        ((200, {}, b"not json"), "which its API never does", False),
        ((200, {}, b"[]"), "which its API never does", False),
        ((302, {"Location": "http://127.0.0.1:9/"}, b"{}"), "Slack answered 302", False),
        ((200, {}, b" " * 70_000), "more than 65536 bytes", False),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_what_slack_refuses_is_said_in_words(
    slack: Slack, notification: Notification, answer: Any, words: str, permanent: bool
) -> None:
    slack.answers = [answer]

    assert notify.send(notification.pk) is False

    notification.refresh_from_db()
    assert words in notification.error
    assert notification.state == ("failed" if permanent else "queued")
    assert "hunter" not in notification.error
    assert len(slack.asked) == 1


@pytest.mark.parametrize("token", [None, "", "two words", "schlüssel"])
def test_without_a_token_nothing_is_sent(
    slack: Slack, notification: Notification, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.delenv("CREDENTIAL_SLACK")
    if token is not None:
        monkeypatch.setenv("CREDENTIAL_SLACK", token)

    assert notify.send(notification.pk) is False

    notification.refresh_from_db()
    assert "CREDENTIAL_SLACK" in notification.error
    assert slack.asked == []


def test_a_slack_that_is_not_there_is_tried_again_and_the_token_is_nowhere(
    slack: Slack, notification: Notification, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SlackChannel, "api", "http://127.0.0.1:9/api")

    assert notify.send(notification.pk) is False

    notification.refresh_from_db()
    assert (notification.state, notification.error) == ("queued", "Slack could not be reached (ConnectError).")
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("config", "personal"),
    [
        ({"credential": "SLACK"}, False),
        ({"credential": "SLACK", "channel": "#general"}, False),
        ({"credential": "SLACK", "channel": "C0123456789"}, True),
        ({"credential": TOKEN, "channel": "C0123456789"}, False),
    ],
)
def test_a_config_that_leads_nowhere_is_refused(config: Any, personal: bool) -> None:
    with pytest.raises(ValidationError):
        channels.make("slack", config, personal)


@pytest.mark.parametrize("kind", ["email", "memory"])
def test_only_what_can_name_a_person_is_for_single_people(kind: str) -> None:
    with pytest.raises(ValidationError, match="cannot be for individual people"):
        channels.make(kind, {"to": ["a@b.example"]} if kind == "email" else {}, personal=True)


def test_a_message_that_somebody_took_away_is_nobody_s_fault(slack: Slack, notification: Notification) -> None:
    channel = channels.open_channel(notification.channel)  # type: ignore[arg-type]

    with pytest.raises(ChannelError, match="Not sent: the message no longer exists") as error:
        channel.edit(sending.message_of(notification), "C0123456789:1.5")

    assert error.value.permanent
