"""People told that a request waits are told its outcome: once, and only if they were told before."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import preferences
from approvals import absences, broker, clock, comments, decisions, follow_ups, ledger, notify, people
from approvals.channels import slack as slack_channel
from approvals.channels.memory import outbox
from approvals.models import Approval, Channel, Notification
from tests import rows
from tests.conftest import make_user
from tests.slack_api import Slack

pytestmark = pytest.mark.django_db
Kind = Notification.Kind


@pytest.fixture(autouse=True)
def _empty_outbox() -> Iterator[None]:
    outbox.clear()
    yield
    outbox.clear()


def asked(**card: Any) -> Approval:
    """A pending request, with notifications to its channels and audience queued."""
    made = [rows.a_card(**card)]
    with ledger.transaction():
        [approval] = decisions.request(
            made, timezone.now(), list(Channel.objects.filter(active=True)), people.audience(made)
        )
    return rows.read(approval)


def send_all() -> None:
    for pk in notify.due_ids(50):
        notify.send(pk)


def followed() -> list[tuple[str, str]]:
    """Each follow-up: the outcome it tells of, and what became of it."""
    found = Notification.objects.filter(kind=Kind.FOLLOWED).order_by("created_at", "pk")
    return [(row.outcome, row.error or row.state) for row in found]


@pytest.fixture
def desk() -> Channel:
    return Channel.objects.create(name="desk", kind="email", config={"to": ["desk@example.test"]})


@pytest.fixture
def room(slack: Slack) -> Channel:
    config = {"credential": "SLACK", "channel": "C0123456789"}
    return Channel.objects.create(name="room", kind="slack", config=config)


def wants(user: User, *kinds: str, ways: tuple[str, ...] = ("mail",), follow_ups: bool = True, **reach: Any) -> None:
    quiet = reach.pop("quiet", None)
    shows = reach.pop("shows", False)
    given = preferences.Reach(follow_ups=follow_ups, **reach)
    preferences.set_notifications(user, dict.fromkeys(kinds or (Kind.WAITING,), ways), quiet, shows, reach=given)


# --- Every outcome ---------------------------------------------------------------------------------


def approve(approval: Approval, dana: User) -> None:
    rows.take(approval, dana)


def change(approval: Approval, dana: User) -> None:
    rows.take(approval, dana, "edit", arguments=rows.ARGUMENTS | {"amount": 5})


def reject(approval: Approval, dana: User) -> None:
    rows.take(approval, dana, "reject")


def respond(approval: Approval, dana: User) -> None:
    rows.take(approval, dana, "respond")


def expire(approval: Approval, dana: User) -> None:
    assert rows.within_transaction(decisions.expire, rows.a_moment_ago(approval, "expires_at").pk)


def leave_unused(approval: Approval, dana: User) -> None:
    rows.take(approval, dana)
    send_all()
    assert rows.within_transaction(decisions.expire, rows.a_moment_ago(approval, "use_by").pk)


def withdraw(approval: Approval, dana: User) -> None:
    assert rows.within_transaction(decisions.withdraw, approval.run_id, "The run was cancelled.") == 1


def supersede(approval: Approval, dana: User) -> None:
    assert rows.within_transaction(decisions.supersede, approval, "The order has changed.")


def undo(approval: Approval, dana: User) -> None:
    rows.take(approval, dana)
    send_all()
    assert isinstance(rows.undo(approval, dana), Approval)


OUTCOMES: list[tuple[Callable[[Approval, User], None], str]] = [
    (approve, "Approved by Dana Whitfield, "),
    (change, "Approved with changes by Dana Whitfield, "),
    (reject, "Rejected by Dana Whitfield, "),
    (respond, "Answered in the tool's place by Dana Whitfield, "),
    (expire, "Expired: nobody decided in time, "),
    (leave_unused, "Expired: approved, but not used in time, "),
    (withdraw, "Withdrawn: its run has ended, "),
    (supersede, "Set aside: what it asked about has changed, "),
    (undo, "Waits again: Dana Whitfield took the decision back, "),
]
every_outcome = pytest.mark.parametrize(("become", "words"), OUTCOMES, ids=lambda value: getattr(value, "__name__", ""))


@every_outcome
def test_a_message_that_can_be_changed_says_what_became_of_its_request(
    slack: Slack, room: Channel, dana: User, become: Any, words: str
) -> None:
    approval = asked(hold_seconds=5)
    send_all()
    [before] = slack.texts()

    become(approval, dana)
    send_all()

    [text] = slack.texts()
    title, became, *rest = text.split("\n")
    assert became.startswith(words)
    assert len([each for each in slack.asked if each[0] == "chat.postMessage"]) == 1
    if become is undo:
        assert title == before.split("\n")[0]
        assert rest[-1].endswith("[See and decide]")
    else:
        assert title == f"~{before.split(chr(10))[0]}~"
        assert became.endswith(" UTC [See it]")
    assert all(said == "sent" for _, said in followed())


def test_what_is_hidden_in_the_name_of_who_decided_is_visible_in_chat(slack: Slack, room: Channel, dana: User) -> None:
    User.objects.filter(pk=dana.pk).update(first_name="Dana\u202e", last_name="dleiftihW\u200b")
    approval = asked()
    send_all()

    rows.take(approval, User.objects.get(pk=dana.pk))
    send_all()

    assert "Approved by Dana⟨U+202E⟩ dleiftihW⟨U+200B⟩, " in slack.texts()[0]


@every_outcome
def test_a_message_that_cannot_be_changed_is_followed_in_its_thread(
    desk: Channel, dana: User, become: Any, words: str
) -> None:
    approval = asked(hold_seconds=5)
    send_all()

    become(approval, dana)
    send_all()

    first, *_, last = mail.outbox
    assert last.subject == f"Re: {first.subject}"
    assert last.extra_headers["In-Reply-To"] == last.extra_headers["References"] == first.extra_headers["Message-ID"]
    assert last.extra_headers["Message-ID"] != first.extra_headers["Message-ID"]
    assert last.body.startswith(words)
    assert f"/approvals/{approval.pk}/" in last.body
    assert "240.00" not in last.body
    assert last.to == ["desk@example.test"]


@every_outcome
def test_where_nothing_was_sent_nothing_follows(desk: Channel, dana: User, become: Any, words: str) -> None:
    approval = asked(hold_seconds=5)
    Notification.objects.update(state="failed")

    become(approval, dana)
    send_all()

    assert followed() == []
    assert mail.outbox == []


def test_of_two_decisions_the_one_that_closes_it_is_told_with_both_names(
    slack: Slack, room: Channel, dana: User, marco: User
) -> None:
    approval = asked(approvals_needed=2)
    send_all()
    rows.take(approval, marco)
    assert followed() == []

    rows.take(approval, dana)
    send_all()

    assert "\nApproved by Marco Reyes and Dana Whitfield, " in slack.texts()[0]


def test_what_was_used_is_no_news_of_its_own(slack: Slack, room: Channel, dana: User) -> None:
    approval = asked()
    send_all()
    rows.take(approval, dana)
    send_all()

    assert rows.consume(rows.a_moment_ago(approval, "runs_at"))

    assert followed() == [("approved", "sent")]


def test_whoever_had_not_been_told_yet_is_told_when_it_waits_again(desk: Channel, dana: User) -> None:
    approval = asked(hold_seconds=5)
    rows.take(approval, dana)
    send_all()
    assert mail.outbox == []
    rows.undo(approval, dana)

    send_all()

    [message] = mail.outbox
    assert "waits for a decision" in message.subject
    assert followed() == []


# --- Once ------------------------------------------------------------------------------------------


def test_one_outcome_is_told_once_however_often_it_is_noticed(desk: Channel, dana: User) -> None:
    approval = asked()
    send_all()
    rows.take(approval, dana)

    assert follow_ups.catch_up(approval.pk) == 1
    send_all()
    send_all()

    assert followed() == [("approved", "sent")]
    assert len(mail.outbox) == 2


def test_the_database_takes_one_row_for_each_outcome_of_a_message(desk: Channel, dana: User) -> None:
    approval = asked()
    send_all()
    rows.take(approval, dana)
    row = Notification.objects.get(kind=Kind.FOLLOWED)

    again = Notification(
        approval=approval, channel=desk, kind=Kind.FOLLOWED, follows=row.follows, outcome="rejected",
        version=row.version, created_at=timezone.now(),
    )  # fmt: skip

    assert Notification.objects.bulk_create([again], ignore_conflicts=True)
    assert Notification.objects.filter(kind=Kind.FOLLOWED).count() == 1


def test_what_was_taken_back_before_anybody_was_told_is_not_told(desk: Channel, dana: User) -> None:
    approval = asked(hold_seconds=5)
    send_all()
    rows.take(approval, dana)
    rows.undo(approval, dana)

    send_all()

    assert len(mail.outbox) == 1
    assert [said.split(":")[0] for _, said in followed()] == ["Not sent", "Not sent"]


def test_after_going_there_and_back_only_where_it_ended_is_told(desk: Channel, dana: User) -> None:
    approval = asked(hold_seconds=5)
    send_all()
    rows.take(approval, dana)
    rows.undo(approval, dana)
    rows.take(approval, dana)

    send_all()

    assert [message.body.split(" by ")[0] for message in mail.outbox[1:]] == ["Approved"]


def test_a_changed_message_says_what_is_so_now_whichever_change_is_sent_last(
    slack: Slack, room: Channel, dana: User
) -> None:
    approval = asked(hold_seconds=5)
    send_all()
    rows.take(approval, dana)
    rows.undo(approval, dana)

    for pk in reversed(notify.due_ids(50)):
        notify.send(pk)

    assert "Waits again" in slack.texts()[0]


def test_a_request_that_changes_while_its_message_is_changed_is_told_anew(
    slack: Slack, room: Channel, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = asked(hold_seconds=5)
    send_all()
    rows.take(approval, dana)
    edit = slack_channel.SlackChannel.edit

    def late(self: Any, *arguments: Any) -> None:
        edit(self, *arguments)
        monkeypatch.setattr(slack_channel.SlackChannel, "edit", edit)
        rows.undo(approval, dana)

    monkeypatch.setattr(slack_channel.SlackChannel, "edit", late)
    [first] = notify.due_ids(50)
    assert notify.send(first) is False
    assert "has changed again" in Notification.objects.get(pk=first).error
    send_all()

    assert "Waits again" in slack.texts()[0]


def test_a_message_that_was_on_its_way_when_somebody_decided_is_followed_too(
    slack: Slack, room: Channel, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = asked()
    send = slack_channel.SlackChannel.send

    def slow(self: Any, message: Any) -> str:
        rows.take(approval, dana)
        return send(self, message)

    monkeypatch.setattr(slack_channel.SlackChannel, "send", slow)
    send_all()
    send_all()

    assert followed() == [("approved", "sent")]
    assert "Approved by Dana" in slack.texts()[0]


def test_reminders_that_can_be_changed_are_changed_and_others_are_followed_once(
    slack: Slack, room: Channel, desk: Channel, dana: User
) -> None:
    approval = asked()
    for channel in (room, desk):
        Notification.objects.create(
            approval=approval, channel=channel, kind=Kind.REMINDED, step=1, created_at=timezone.now()
        )
    send_all()

    rows.take(approval, dana)
    send_all()

    assert ["Approved by" in text for text in slack.texts()] == [True, True]
    assert [message.subject.startswith("Re:") for message in mail.outbox] == [False, False, True]


# --- Not wanted ------------------------------------------------------------------------------------


def test_a_channel_can_do_without(desk: Channel, dana: User) -> None:
    Channel.objects.update(follows_up=False)
    approval = asked()
    send_all()

    rows.take(approval, dana)

    assert followed() == []


def test_a_channel_that_changes_its_messages_does_so_all_the_same(slack: Slack, room: Channel, dana: User) -> None:
    Channel.objects.update(follows_up=False)
    approval = asked()
    send_all()

    rows.take(approval, dana)
    send_all()

    assert "Approved by" in slack.texts()[0]


def test_a_channel_that_was_switched_off_meanwhile_says_nothing_more(desk: Channel, dana: User) -> None:
    approval = asked()
    send_all()
    rows.take(approval, dana)
    Channel.objects.update(active=False)

    send_all()

    assert followed() == [("approved", "Not sent: the channel is switched off.")]


def test_mail_to_deciders_is_followed_for_all_but_those_who_decided(
    roles: dict[str, Group], dana: User, marco: User
) -> None:
    Channel.objects.create(name="people", kind="email", config={"deciders": True})
    approval = asked()
    send_all()

    rows.take(approval, dana)
    send_all()

    assert [sorted(message.bcc) for message in mail.outbox] == [sorted([dana.email, marco.email]), [marco.email]]


# --- Individual people -----------------------------------------------------------------------------


def test_by_themselves_people_are_not_mailed_a_second_time(dana: User, marco: User) -> None:
    wants(marco, follow_ups=False)
    approval = asked()
    send_all()

    rows.take(approval, dana)

    assert followed() == []


def test_whoever_wants_it_is_mailed_what_others_decided_with_whose_right(
    roles: dict[str, Group], dana: User, marco: User
) -> None:
    wants(marco, shows=True)
    approval = asked(title="Refund $240.00 to Ana Pereira")
    send_all()
    rows.take(approval, dana, "edit", arguments=rows.ARGUMENTS | {"amount": 5})
    send_all()

    first, last = mail.outbox
    assert last.to == ["marco@example.test"]
    assert last.subject == f"Re: {first.subject}"
    assert last.extra_headers["References"] == first.extra_headers["Message-ID"]
    assert last.body.startswith("Approved with changes by Dana Whitfield, ")
    assert "240.00" not in last.body


def test_what_somebody_decided_themselves_is_no_news_to_them(dana: User, marco: User) -> None:
    wants(dana)
    wants(marco)
    approval = asked()
    send_all()

    rows.take(approval, dana)
    send_all()

    assert [message.to for message in mail.outbox[2:]] == [["marco@example.test"]]


def test_nor_to_the_deputy_who_decided_it(dana: User, marco: User) -> None:
    wants(marco)
    approval = asked()
    absences.begin(marco, dana, timezone.now() - timedelta(hours=1), timezone.now() + timedelta(days=1))
    send_all()
    assert mail.outbox[0].to == ["dana@example.test"]

    rows.take(approval, dana)
    send_all()

    assert followed() == [("approved", "Not sent: its reader made the decision.")]


def test_whoever_may_not_see_the_request_any_more_learns_nothing_of_it(dana: User, marco: User) -> None:
    wants(marco)
    approval = asked()
    send_all()
    rows.take(approval, dana)
    marco.groups.clear()

    send_all()

    assert followed() == [("approved", "Not sent: marco may no longer see the request.")]
    assert len(mail.outbox) == 1


def test_quiet_hours_hold_it_back(dana: User, marco: User, monkeypatch: pytest.MonkeyPatch) -> None:
    wants(marco, quiet=(time(22), time(7)))
    approval = asked()
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 11, 21, 12, tzinfo=UTC))
    send_all()
    rows.take(approval, dana)
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 11, 21, 23, tzinfo=UTC))
    send_all()
    assert followed() == [("approved", "queued")]

    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 11, 22, 7, tzinfo=UTC))
    send_all()

    assert followed() == [("approved", "sent")]


@pytest.mark.parametrize("kind", [Kind.MENTIONED, Kind.FAILED])
def test_news_that_stays_true_is_not_followed(dana: User, marco: User, kind: str) -> None:
    wants(marco, kind)
    approval = asked()
    if kind == Kind.FAILED:
        people.tell([(approval.pk, marco.pk)], kind)
    else:
        with ledger.transaction():
            comments.post(approval, dana, "@marco?")
    send_all()

    rows.take(approval, dana)

    assert Notification.objects.filter(state="sent").count() == 1
    assert followed() == []


@pytest.mark.parametrize("wanted", [True, False])
def test_news_is_sent_at_once_and_no_worker_is_told_of_none(
    dana: User, wanted: bool, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    told: list[str] = []
    monkeypatch.setattr(broker, "tell", lambda task, **more: told.append(task))
    wants(dana, Kind.FAILED, ways=("mail",) if wanted else ())
    approval = asked()
    told.clear()
    with django_capture_on_commit_callbacks(execute=True):
        people.tell([(approval.pk, dana.pk)], Kind.FAILED)
    assert told == (["approvals.tasks.send_queued"] if wanted else [])


# --- What it costs ---------------------------------------------------------------------------------


def looks(write: Callable[[], Any]) -> list[str]:
    """The statements about notifications that a transition runs."""
    with CaptureQueriesContext(connection) as captured:
        write()
    found = [query["sql"] for query in captured if '"approvals_notification"' in query["sql"]]
    return [text.split()[0] for text in found]


@pytest.mark.parametrize("number", [1, 5])
def test_it_takes_one_look_where_nothing_was_sent_and_two_statements_however_much_was(
    slack: Slack, dana: User, number: int
) -> None:
    for place in range(number):
        config = {"credential": "SLACK", "channel": f"C00000000{place}"}
        Channel.objects.create(name=f"room-{place}", kind="slack", config=config)
    first, second = asked(), asked()
    assert looks(lambda: rows.take(first, dana)) == ["SELECT"]
    send_all()

    assert looks(lambda: rows.take(second, dana)) == ["SELECT", "INSERT"]

    assert len(followed()) == number


def test_a_decision_that_closes_nothing_looks_for_nothing(dana: User) -> None:
    approval = asked(approvals_needed=2)
    assert looks(lambda: rows.take(approval, dana)) == []


def test_a_second_decider_who_was_told_by_mail_costs_one_look_at_what_they_want(dana: User) -> None:
    for number in range(3):
        wants(make_user(f"Ben{number} Third", "approver"))
    approval = asked()
    send_all()

    with CaptureQueriesContext(connection) as captured:
        rows.take(approval, dana)

    assert len([query for query in captured if '"agentapp_preferences"' in query["sql"]]) == 1
    assert len(followed()) == 3
