"""A chat service is told over a real connection; its address is a secret."""

import json

import pytest
from apprise import Apprise

from approvals import channels, notify
from approvals.channels.base import Message
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
    assert (notification.state, notification.error) == ("queued", "The service did not accept the message.")
    assert "hunter3" not in caplog.text


@pytest.mark.parametrize(
    ("address", "why"), [(None, "CREDENTIAL_CHAT is not set"), ("nosuch://hunter3", "no address that Apprise knows")]
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


@pytest.mark.parametrize(
    ("kind", "query", "title", "words"),
    [
        ("json", "", "<a href='https://e.example'>Ok</a>", "[Approve](https://e.example) <!channel> @all *now*"),
        (
            "json",
            "?format=html",
            "<a href='https://e.example'>Ok</a>",
            "[Approve](https://e.example)&nbsp;&lt;!channel&gt;&nbsp;@all&nbsp;*now*",
        ),
        (
            "json",
            "?format=markdown",
            "\\<a href='https://e.example'\\>Ok\\</a\\>",
            "\\[Approve\\](https://e.example) \\<!channel\\> @\u200ball \\*now\\*",
        ),
        (
            "mmost",
            "",
            "\\<a href='https://e.example'\\>Ok\\</a\\>",
            "\\[Approve\\](https://e.example) \\<!channel\\> @\u200ball \\*now\\*",
        ),
    ],
)
def test_nothing_that_is_said_is_markup_for_a_service_and_the_link_stays_one(
    service: Receiver,
    notification: Notification,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    query: str,
    title: str,
    words: str,
) -> None:
    address = service.url.replace("http://", f"{kind}://")
    service.answers = [(200, {}, b"ok")]
    monkeypatch.setenv("CREDENTIAL_CHAT", f"{address}/3ccdd113474722377935511fc85d3dd4{query}")
    said = Message(
        notification,
        "<a href='https://e.example'>Ok</a>",
        "[Approve](https://e.example) <!channel> @all *now*",
        "https://countersign.example/approvals/0199-ab_c/",
    )
    assert notification.channel is not None

    channels.open_channel(notification.channel).send(said)

    [got] = service.received
    told = json.loads(got.body)
    text = told["text"] if kind == "mmost" else f"{told['title']}\n{told['message']}"
    assert title in text
    assert words in text
    assert text.endswith("https://countersign.example/approvals/0199-ab_c/")


@pytest.mark.parametrize(
    "address",
    [
        f"discord://123456789012345678/{'c' * 64}",
        f"fluxer://123456789012345678/{'c' * 64}",
        f"guilded://123456789012345678/{'c' * 64}",
        "mmost://chat.example/3ccdd113474722377935511fc85d3dd4",
        "ryver://team/ckhrjW8w672m6HG",
        f"zulip://desk@team/{'c' * 32}/desk",
    ],
)
def test_services_that_read_markdown_in_plain_text_are_told_none(
    notification: Notification, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    told: list[str] = []

    def send(self: object, body: str, title: str = "", **more: object) -> bool:
        told.append(f"{title} {body}")
        return True

    monkeypatch.setattr(type(Apprise.instantiate(address)), "send", send)
    monkeypatch.setenv("CREDENTIAL_CHAT", address)
    assert notification.channel is not None
    link = "https://countersign.example/approvals/0199-ab_c/"
    said = Message(notification, "*Ok*", "[Approve](https://e.example)", link)

    channels.open_channel(notification.channel).send(said)

    assert [" ".join(each.split()) for each in told] == [rf"\*Ok\* \[Approve\](https://e.example) {link}"]
