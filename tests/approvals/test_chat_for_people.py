"""Individual people are told by chat, over one channel, under the name they gave there."""

from collections.abc import Callable
from datetime import time, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentapp import preferences
from approvals import absences, claims, comments, decisions, ledger, notify, people
from approvals.models import Approval, Channel, Notification
from tests import rows
from tests.slack_api import Slack
from tests.webhook_receiver import Receiver

pytestmark = pytest.mark.django_db
Kind = Notification.Kind


@pytest.fixture
def chat(slack: Slack) -> Channel:
    return Channel.objects.create(name="people", kind="slack", config={"credential": "SLACK"}, personal=True)


def wants(user: User, *kinds: str, name: str = "U0DANA", ways: tuple[str, ...] = ("chat",), **more: Any) -> None:
    reach = preferences.Reach(chat_name=name, follow_ups=more.pop("follow_ups", False))
    chosen = dict.fromkeys(kinds or (Kind.WAITING,), ways)
    preferences.set_notifications(user, chosen, more.pop("quiet", None), more.pop("shows", False), reach=reach)


def asked(**card: Any) -> Approval:
    made = [rows.a_card(**card)]
    with ledger.transaction():
        channels = list(Channel.objects.filter(active=True))
        [approval] = decisions.request(made, timezone.now(), channels, people.audience(made))
    return rows.read(approval)


def send_all() -> list[str]:
    for pk in notify.due_ids(50):
        notify.send(pk)
    return [row.error or row.state for row in Notification.objects.order_by("created_at", "pk")]


def test_whoever_wants_it_is_told_by_chat_and_nobody_else(slack: Slack, chat: Channel, dana: User, marco: User) -> None:
    wants(dana)
    approval = asked(title="Refund $918273645.00 to Ana Pereira")

    assert send_all() == ["sent"]

    [(_, said)] = slack.asked
    [text] = slack.texts()
    assert said["channel"] == "U0DANA"
    assert f"{approval.reference}: refund_order waits for your team" in text
    assert not [part for part in ("918273645", "Ana") if part in text]
    assert mail.outbox == []


def test_whoever_asked_for_it_reads_there_what_would_happen(slack: Slack, chat: Channel, dana: User) -> None:
    wants(dana, shows=True)
    asked(title="Refund $240.00 to Ana <!channel>")

    send_all()

    assert "Refund $240.00 to Ana <!channel> waits for your team" in slack.texts()[0]
    assert "&lt;!channel&gt;" in slack.asked[0][1]["text"]


def test_what_is_hidden_in_a_text_is_visible_in_messages_as_on_pages(
    slack: Slack, chat: Channel, dana: User, marco: User
) -> None:
    wants(dana, Kind.MENTIONED, ways=("mail", "chat"), shows=True)
    approval = asked(title="Refund \u202e00.01$ to Ana\u200b")

    rows.within_transaction(comments.post, approval, marco, "@dana pay \u2066later\u2069")

    assert send_all() == ["sent", "sent"]
    [told] = mail.outbox
    for said in (str(told.body), slack.texts()[0]):
        assert "@dana pay ⟨U+2066⟩later⟨U+2069⟩" in said
    for title in (told.subject, slack.texts()[0]):
        assert "Refund ⟨U+202E⟩00.01$ to Ana⟨U+200B⟩" in title


def test_mail_and_chat_are_two_sendings_and_one_that_fails_leaves_the_other(
    slack: Slack, chat: Channel, dana: User
) -> None:
    wants(dana, ways=("mail", "chat"))
    slack.answers = [(200, {}, {"ok": False, "error": "channel_not_found"})]
    asked()

    assert sorted(send_all()) == ["Slack has no such channel or person, or the app cannot see it.", "sent"]
    assert len(mail.outbox) == 1


def test_chat_needs_no_address_for_mail(slack: Slack, chat: Channel, dana: User) -> None:
    User.objects.update(email="")
    wants(dana, ways=("mail", "chat"))
    asked()

    assert send_all() == ["sent"]
    assert len(slack.asked) == 1


@pytest.mark.parametrize("name", ["", "U0DANA"])
def test_without_a_name_or_a_channel_nothing_is_queued(dana: User, slack: Slack, name: str) -> None:
    if not name:
        Channel.objects.create(name="people", kind="slack", config={"credential": "SLACK"}, personal=True)
    wants(dana, name=name)
    asked()

    assert send_all() == []


def test_a_channel_for_people_is_told_of_no_request_itself(slack: Slack, chat: Channel) -> None:
    asked()

    assert send_all() == []


def test_whom_a_request_is_handed_to_is_told_by_chat(slack: Slack, chat: Channel, dana: User, marco: User) -> None:
    wants(dana, Kind.HANDED)
    approval = asked()

    rows.within_transaction(claims.hand_over, approval.pk, marco, dana, "Yours?")

    assert send_all() == ["sent"]
    assert "was handed to you" in slack.texts()[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda user: user.groups.clear(), "Not sent: dana has no say in it. You can view this, not decide it"),
        (lambda user: User.objects.update(is_active=False), "Not sent: dana has no say in it. You can view this"),
        (lambda user: wants(user, name=""), "has not given their name there"),
        (lambda user: Channel.objects.update(active=False), "the channel is switched off"),
        (lambda user: Channel.objects.update(personal=False), "no longer for individual people"),
        (lambda user: Approval.objects.update(state="withdrawn"), "no longer waits"),
    ],
    ids=["right", "account", "name", "channel", "for a team", "request"],
)
def test_what_is_no_longer_for_somebody_is_not_sent(
    slack: Slack, chat: Channel, dana: User, change: Callable[[User], Any], words: str
) -> None:
    wants(dana)
    asked()
    change(dana)

    [said] = send_all()

    assert words in said
    assert slack.asked == []


def test_a_deputy_is_told_where_they_have_a_name_and_else_the_person(
    slack: Slack, chat: Channel, dana: User, marco: User
) -> None:
    wants(dana)
    absences.begin(dana, marco, timezone.now() - timedelta(hours=1), timezone.now() + timedelta(days=1))
    asked()
    send_all()
    wants(marco, Kind.HANDED, name="U0MARCO")
    asked()
    send_all()

    assert [said["channel"] for _, said in slack.asked] == ["U0DANA", "U0MARCO"]
    assert "You stand in for Dana Whitfield, who is away." in slack.texts()[1]


def test_what_was_told_by_chat_is_changed_in_quiet_hours_too_and_for_whoever_decided(
    slack: Slack, chat: Channel, dana: User, marco: User
) -> None:
    wants(dana)
    wants(marco, name="U0MARCO")
    approval = asked()
    send_all()
    for user, name in ((dana, "U0DANA"), (marco, "U0MARCO")):
        wants(user, name=name, quiet=(time(0), time(23, 59, 59)))

    rows.take(approval, dana)
    send_all()

    assert ["Approved by Dana Whitfield" in text for text in slack.texts()] == [True, True]
    assert {said["channel"] for method, said in slack.asked if method == "chat.update"} == {"D0DANA", "D0MARCO"}


def test_one_channel_at_most_is_for_single_people(chat: Channel) -> None:
    other = Channel(name="other", kind="slack", config={"credential": "SLACK"}, personal=True)
    with pytest.raises(IntegrityError), transaction.atomic():
        other.save()
    other.active = False
    other.save()


# --- Over services that Apprise knows --------------------------------------------------------------


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Any:
    running = Receiver()
    monkeypatch.setenv("CREDENTIAL_CHAT", running.url.replace("http://", "json://") + "/{to}")
    Channel.objects.create(name="people", kind="apprise", config={"credential": "CHAT"}, personal=True)
    yield running
    running.close()


def test_the_address_names_the_person(service: Receiver, dana: User) -> None:
    wants(dana, name="@dana#1+a")
    asked()

    assert send_all() == ["sent"]
    assert service.received[0].path in ("/hook/%40dana%231%2Ba", "/hook/@dana%231+a")


def test_there_a_second_message_says_what_became_of_it_to_who_wants_that(
    service: Receiver, dana: User, marco: User
) -> None:
    wants(dana, name="dana")
    wants(marco, name="marco", follow_ups=True)
    approval = asked()
    send_all()
    rows.take(approval, dana)
    send_all()

    *_, last = service.received
    assert len(service.received) == 3
    assert last.path == "/hook/marco"
    assert f"{approval.reference}: refund_order" in last.body.decode()
    assert "Approved by Dana Whitfield" in last.body.decode()


def test_an_address_that_names_nobody_tells_nobody(
    service: Receiver, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIAL_CHAT", service.url.replace("http://", "json://"))
    wants(dana)
    asked()

    assert "has no {to} in its address" in send_all()[0]
    assert service.received == []


def test_an_address_for_people_tells_no_team(service: Receiver, roles: dict[str, Group]) -> None:
    Channel.objects.update(personal=False)
    asked()

    assert "holds an address for individual people" in send_all()[0]
    assert service.received == []
