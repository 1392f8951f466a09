"""What every channel guarantees, whatever its kind."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone
from pydantic import ValidationError

from approvals import cards, channels, decisions, ledger, sending
from approvals.channels.base import ChannelConfig, ChannelError
from approvals.channels.email import EmailChannel
from approvals.channels.memory import outbox
from approvals.ids import uuid7
from approvals.models import Approval, Channel, Notification
from tests.slack_api import Slack
from tests.webhook_receiver import Receiver

pytestmark = pytest.mark.django_db

CONFIGS: dict[str, Any] = {
    "apprise": {"credential": "CHAT"},
    "email": {"to": ["desk@example.test"]},
    "memory": {},
    "slack": {"credential": "SLACK", "channel": "C0123456789"},
}
SECRETS = ["4111-1111", "Grace Hopper", "hunter2"]


def make_notification(channel: Channel, **card: Any) -> Notification:
    """A queued notification about a call whose every shown text contains something private."""
    private = " ".join(SECRETS)
    values = {
        "run_id": uuid7(),
        "execution_id": uuid7(),
        "agent": "support",
        "run_title": private,
        "tool": "pay_out",
        "tool_version": "1",
        "effect_class": "irreversible",
        "arguments_text": f'{{"account":"{private}"}}',
        "title": f"Pay {private}",
        "sentence": [{"text": private, "value": True}],
        "effects": [{"title": private}],
        "explanation": private,
        "reason": private,
        "button": "hunter2",
        "snapshot_text": private,
        "risk": "high",
        "expires_seconds": 3600,
        "hold_seconds": 0,
        **card,
    }
    with ledger.transaction():
        decisions.request([cards.Card(**values)], timezone.now(), [channel])
    return Notification.objects.get(channel=channel)


@pytest.fixture(params=sorted(channels.CHANNELS))
def kind(request: pytest.FixtureRequest, service: Receiver, slack: Slack) -> str:
    outbox.clear()
    return str(request.param)


def test_every_kind_is_known_to_these_tests() -> None:
    assert set(CONFIGS) == set(channels.CHANNELS)


def test_a_kind_opens_with_its_config_and_sends(kind: str) -> None:
    row = Channel.objects.create(name="desk", kind=kind, config=CONFIGS[kind])
    channels.open_channel(row).send(sending.message_of(make_notification(row)))


def test_a_kind_refuses_a_config_it_does_not_know(kind: str) -> None:
    assert issubclass(channels.kind_of(kind).config_model, ChannelConfig)
    with pytest.raises(ValidationError):
        channels.make(kind, {**CONFIGS[kind], "no_such_key": 1})
    with pytest.raises(ValidationError):
        channels.make(kind, "not an object")


def test_an_unknown_kind_is_refused_naming_those_there_are() -> None:
    with pytest.raises(LookupError, match="email, memory"):
        channels.make("pigeon", {})


def test_mail_leads_to_the_signed_in_page_and_tells_no_argument(mailoutbox: Any, settings: Any) -> None:
    settings.BASE_URL = "https://countersign.example"
    row = Channel.objects.create(name="desk", kind="email", config=CONFIGS["email"])
    notification = make_notification(row)
    channels.open_channel(row).send(sending.message_of(notification))
    [mail] = mailoutbox
    approval = notification.approval
    assert mail.to == ["desk@example.test"]
    assert approval.reference in mail.subject
    assert "pay_out" in mail.subject
    assert re.findall(r"https?://\S+", mail.body) == [f"https://countersign.example/approvals/{approval.pk}/"]
    for secret in SECRETS:
        assert secret not in mail.subject + mail.body


def test_mail_to_deciders_reaches_those_who_may_decide_and_nobody_else(
    mailoutbox: Any, sam: User, dana: User, marco: User, mia: User, roles: dict[str, Group]
) -> None:
    row = Channel.objects.create(name="people", kind="email", config={"deciders": True})
    channels.open_channel(row).send(sending.message_of(make_notification(row, starter_id=marco.pk)))
    [mail] = mailoutbox
    assert mail.to == []
    assert mail.bcc == [dana.email]


def test_mail_to_deciders_of_a_group_stays_in_that_group(
    mailoutbox: Any, dana: User, marco: User, roles: dict[str, Group]
) -> None:
    leads = Group.objects.create(name="leads")
    marco.groups.add(leads)
    row = Channel.objects.create(name="people", kind="email", config={"deciders": True})
    channels.open_channel(row).send(sending.message_of(make_notification(row, groups=(leads.pk,))))
    assert mailoutbox[0].bcc == [marco.email]


def test_mail_that_nobody_could_get_fails_for_good(roles: dict[str, Group]) -> None:
    row = Channel.objects.create(name="people", kind="email", config={"deciders": True})
    with pytest.raises(ChannelError) as caught:
        channels.open_channel(row).send(sending.message_of(make_notification(row)))
    assert caught.value.permanent


@pytest.mark.parametrize("config", [{}, {"to": []}, {"to": ["nobody"]}, {"to": "a@b.example"}, {"deciders": "yes"}])
def test_mail_needs_somebody_to_tell(config: Any) -> None:
    with pytest.raises(ValidationError):
        channels.make("email", config)


def test_a_line_break_in_a_name_starts_no_header(mailoutbox: Any, settings: Any) -> None:
    settings.WORKSPACE_NAME = "Shop\nBcc: thief@example.test"
    row = Channel.objects.create(name="desk", kind="email", config=CONFIGS["email"])
    channels.open_channel(row).send(sending.message_of(make_notification(row, tool="pay\r\nBcc: thief@example.test")))
    assert "\n" not in mailoutbox[0].subject
    assert mailoutbox[0].recipients() == ["desk@example.test"]


def test_a_mail_server_that_is_not_there_is_tried_again(settings: Any) -> None:
    settings.MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.smtp.EmailBackend",
            "OPTIONS": {"host": "127.0.0.1", "port": 1, "timeout": 1},
        }
    }
    row = Channel.objects.create(name="desk", kind="email", config=CONFIGS["email"])
    notification = make_notification(row)
    with pytest.raises(ChannelError, match="mail server") as caught:
        channels.open_channel(row).send(sending.message_of(notification))
    assert not caught.value.permanent
    assert isinstance(channels.open_channel(row), EmailChannel)
    assert Approval.objects.get().state == Approval.State.PENDING
