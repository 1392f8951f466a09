"""A chat service is told over a real connection; its address is a secret."""

import pytest

from approvals import notify
from approvals.models import Channel, Notification
from tests.approvals.channels.test_contract import SECRETS, make_notification
from tests.webhook_receiver import Receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def notification() -> Notification:
    channel = Channel.objects.create(name="chat", kind="apprise", config={"credential": "CHAT"})
    return make_notification(channel)


def test_a_service_is_told_what_waits_and_where_and_nothing_private(
    service: Receiver, notification: Notification
) -> None:
    assert notify.send(notification.pk) is True
    [got] = service.received
    text = got.body.decode()
    assert "High risk: pay_out waits for a decision" in text
    assert notification.approval.reference in text
    assert f"/approvals/{notification.approval.pk}/" in text
    assert not any(secret in text for secret in SECRETS)


def test_a_service_that_does_not_take_it_is_tried_again_and_its_address_is_nowhere(
    service: Receiver, notification: Notification, caplog: pytest.LogCaptureFixture
) -> None:
    service.answers = [(500, {}, b"hunter3 was refused")]
    assert notify.send(notification.pk) is False
    notification.refresh_from_db()
    assert (notification.state, notification.error) == ("queued", "The service did not take it.")
    assert "hunter3" not in caplog.text


@pytest.mark.parametrize(
    ("address", "why"), [(None, "CREDENTIAL_CHAT is not set"), ("nosuch://hunter3", "no address of a service")]
)
def test_without_an_address_nothing_is_sent_and_the_row_says_why(
    service: Receiver, notification: Notification, monkeypatch: pytest.MonkeyPatch, address: str | None, why: str
) -> None:
    monkeypatch.delenv("CREDENTIAL_CHAT")
    if address is not None:
        monkeypatch.setenv("CREDENTIAL_CHAT", address)
    assert notify.send(notification.pk) is False
    notification.refresh_from_db()
    assert why in notification.error
    assert "hunter3" not in notification.error
    assert notification.state == "queued"


def test_every_service_that_is_named_is_told(
    service: Receiver, notification: Notification, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = service.url.replace("http://", "json://")
    monkeypatch.setenv("CREDENTIAL_CHAT", f"{one}/a\n{one}/b")
    assert notify.send(notification.pk) is True
    assert sorted(got.path for got in service.received) == ["/hook/a", "/hook/b"]
