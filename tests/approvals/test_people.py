"""Who is told of what concerns them, when, and what they get to read."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, preferences, sweep
from approvals import absences, claims, clock, decisions, ledger, notify, people, tasks
from approvals.manners import Manners, quiet_until
from approvals.models import Absence, Approval, Claim, Notification
from tests import rows
from tests.conftest import call, calls, make_user, says

pytestmark = pytest.mark.django_db
Kind = Notification.Kind


def wants(
    user: User, *kinds: str, quiet: tuple[time, time] | None = None, shows: bool = False, least: str = "low"
) -> None:
    preferences.set_notifications(user, {kind: ["mail"] for kind in kinds}, quiet, shows, least)


def asked(**card: Any) -> Approval:
    """A pending request, with its audience found as a parking run finds it."""
    made = [rows.a_card(**card)]
    with ledger.transaction():
        [approval] = decisions.request(made, timezone.now(), (), people.audience(made))
    return rows.read(approval)


def told() -> list[tuple[str, str]]:
    found = Notification.objects.filter(user__isnull=False).order_by("created_at", "user__username")
    return [(row.user.username, row.kind) for row in found if row.user]


def send_all() -> list[str]:
    """Send what is due; returns the outcome of each row."""
    for pk in notify.due_ids(50):
        notify.send(pk)
    return [row.error or row.state for row in Notification.objects.filter(user__isnull=False).order_by("created_at")]


# --- A request waits -----------------------------------------------------------------------------


def test_those_are_told_who_want_it_and_may_decide(
    roles: dict[str, Group], dana: User, marco: User, mia: User, sam: User
) -> None:
    for user in (dana, mia, sam):
        wants(user, Kind.WAITING)

    asked(groups=(roles["approver"].pk,))

    assert told() == [("dana", "waiting")]


def test_by_itself_a_request_that_waits_mails_nobody(roles: dict[str, Group], dana: User) -> None:
    asked(groups=(roles["approver"].pk,))

    assert told() == []


def test_a_request_for_everybody_reaches_all_deciders_but_the_starter(dana: User, marco: User) -> None:
    wants(dana, Kind.WAITING)
    wants(marco, Kind.WAITING)

    asked(starter_id=marco.pk)

    assert told() == [("dana", "waiting")]


@pytest.mark.parametrize(("risk", "told_of"), [("low", []), ("medium", []), ("high", ["dana"]), ("critical", ["dana"])])
def test_below_the_risk_that_somebody_named_a_request_waits_without_a_word(
    dana: User, risk: str, told_of: list[str]
) -> None:
    wants(dana, Kind.WAITING, least="high")

    asked(risk=risk)

    assert [name for name, _ in told()] == told_of


def test_another_team_is_not_told(roles: dict[str, Group], dana: User) -> None:
    wants(dana, Kind.WAITING)
    payments = Group.objects.create(name="payments")

    asked(groups=(payments.pk,))

    assert told() == []


def test_a_run_that_parks_tells_them(clerk: Any, dana: User) -> None:
    wants(dana, Kind.WAITING)

    run = clerk.run(calls(call("p", "pay", account="ana", amount=1)))

    assert run.state == "waiting"
    assert told() == [("dana", "waiting")]


# --- What is sent --------------------------------------------------------------------------------


def test_mail_leads_to_the_page_and_says_nothing_of_the_arguments(dana: User) -> None:
    wants(dana, Kind.WAITING)
    approval = asked(title="Refund $918273645.00 to Ana Pereira")

    assert send_all() == ["sent"]

    [message] = mail.outbox
    assert message.to == ["dana@example.test"]
    assert f"/approvals/{approval.pk}/\n" in message.body
    assert "decide/" not in message.body
    assert not [part for part in ("918273645", "Ana") if part in message.subject + message.body]


def test_whoever_asked_for_it_reads_what_would_happen(dana: User) -> None:
    wants(dana, Kind.WAITING, shows=True)
    asked(title="Refund $240.00 to Ana\r\nBcc: evil@example.test <b>")

    send_all()

    [message] = mail.outbox
    assert "Refund $240.00 to Ana" in message.body
    assert message.subject == (
        f"[Countersign] {Approval.objects.get().reference}: Refund $240.00 to Ana Bcc: •••••• <b> waits for your team"
    )
    assert message.bcc == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda user: user.groups.clear(), "Not sent: dana has no say in it. You can view this, not decide it"),
        (lambda user: User.objects.update(email=""), "has no address"),
        (lambda user: Approval.objects.update(state="withdrawn"), "no longer waits"),
    ],
    ids=["right", "address", "request"],
)
def test_what_is_no_longer_for_somebody_is_not_sent(dana: User, change: Callable[[User], Any], words: str) -> None:
    wants(dana, Kind.WAITING)
    asked()
    change(dana)

    [said] = send_all()

    assert words in said
    assert mail.outbox == []


def test_a_mail_server_that_is_away_is_tried_again(dana: User, settings: Any) -> None:
    wants(dana, Kind.WAITING)
    asked()
    smtp = "django.core.mail.backends.smtp.EmailBackend"
    settings.MAILERS = {"default": {"BACKEND": smtp, "OPTIONS": {"host": "127.0.0.1", "port": 9, "timeout": 2}}}

    [said] = send_all()

    row = Notification.objects.get()
    assert said.startswith("The mail server did not accept the message")
    assert (row.state, row.attempts) == ("queued", 1)


# --- Quiet hours ---------------------------------------------------------------------------------


def test_in_quiet_hours_mail_waits_and_no_attempt_is_counted(dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    wants(dana, Kind.WAITING, quiet=(time(22), time(7)))
    asked()
    at = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: at)
    assert send_all() == ["queued"]
    assert Notification.objects.get().attempts == 0

    at = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)

    assert send_all() == ["sent"]


def test_the_quiet_hours_of_one_are_not_those_of_another(
    dana: User, marco: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants(dana, Kind.WAITING, quiet=(time(0), time(23, 59)))
    wants(marco, Kind.WAITING)
    asked()
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 11, 21, 12, tzinfo=UTC))

    send_all()

    assert [message.to for message in mail.outbox] == [["marco@example.test"]]


@pytest.mark.parametrize(
    ("quiet", "now", "until"),
    [
        ((time(22), time(7)), (21, 22, 0), (22, 7)),
        ((time(22), time(7)), (22, 6, 59), (22, 7)),
        ((time(22), time(7)), (22, 7, 0), None),
        ((time(22), time(7)), (22, 21, 59), None),
        ((time(12), time(13)), (22, 12, 30), (22, 13)),
        ((time(12), time(13)), (22, 13, 0), None),
        (None, (22, 3, 0), None),
    ],
)
def test_quiet_hours_end_when_they_say(quiet: Any, now: tuple[int, int, int], until: tuple[int, int] | None) -> None:
    at = datetime(2026, 11, *now, tzinfo=UTC)
    expected = datetime(2026, 11, *until, tzinfo=UTC) if until else None
    assert quiet_until(Manners(quiet=quiet), at) == expected


def test_quiet_hours_are_those_of_the_workspace(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    one = Manners(quiet=(time(22), time(7)))
    assert quiet_until(one, datetime(2026, 11, 21, 21, 30, tzinfo=UTC)) == datetime(2026, 11, 22, 6, tzinfo=UTC)


# --- Somebody is away ----------------------------------------------------------------------------


def away(user: User, deputy: User) -> None:
    absences.begin(user, deputy, timezone.now() - timedelta(hours=1), timezone.now() + timedelta(days=1))


def test_a_deputy_is_told_instead_and_why(dana: User, marco: User) -> None:
    wants(dana, Kind.WAITING)
    asked()
    away(dana, marco)

    assert send_all() == ["sent"]

    [message] = mail.outbox
    assert message.to == ["marco@example.test"]
    assert message.body.startswith("You stand in for Dana Whitfield, who is away.")


def test_a_deputy_who_may_not_decide_about_it_is_told_nothing(roles: dict[str, Group], dana: User, marco: User) -> None:
    payments = Group.objects.create(name="payments")
    dana.groups.add(payments)
    wants(dana, Kind.WAITING)
    asked(groups=(payments.pk,))
    away(dana, marco)

    send_all()

    assert [message.to for message in mail.outbox] == [["dana@example.test"]]


def test_where_a_deputy_is_away_as_well_theirs_is_told_and_gets_what_is_handed_over(
    dana: User, marco: User, mia: User
) -> None:
    ben, cleo = make_user("Ben Third", "approver"), make_user("Cleo Fourth", "approver")
    wants(dana, Kind.WAITING)
    approval = asked()
    away(dana, marco)
    away(marco, ben)
    away(ben, cleo)

    assert send_all() == ["sent"]
    rows.within_transaction(claims.hand_over, approval.pk, make_user("Eve Fifth", "approver"), dana, "")

    assert [message.to for message in mail.outbox] == [[cleo.email]]
    assert mail.outbox[0].body.startswith("You stand in for Dana Whitfield, who is away.")
    assert Claim.objects.get().user == cleo


def test_deputies_who_stand_in_for_each_other_stand_in_for_nobody(dana: User, marco: User) -> None:
    ben = make_user("Ben Third", "approver")
    wants(dana, Kind.WAITING)
    asked()
    times = {"since": timezone.now() - timedelta(hours=1), "until": timezone.now() + timedelta(hours=1)}
    for user, deputy in ((dana, marco), (marco, ben), (ben, marco)):
        Absence.objects.create(user=user, deputy=deputy, **times)

    assert absences.standing_in([dana.pk, marco.pk, ben.pk]) == {}
    assert send_all() == ["sent"]
    assert [message.to for message in mail.outbox] == [["dana@example.test"]]


ALWAYS = (time(0), time(23, 59, 59, 999999))


@pytest.mark.parametrize("kind", [Kind.WAITING, Kind.FAILED])
def test_what_a_deputy_reads_waits_in_their_quiet_hours_and_arrives_afterwards(
    dana: User, marco: User, kind: Notification.Kind
) -> None:
    wants(dana, kind)
    wants(marco, quiet=ALWAYS)
    approval = asked()
    if kind != Kind.WAITING:
        rows.within_transaction(people.tell, [(approval.pk, dana.pk)], kind)
    away(dana, marco)
    assert send_all() == ["queued"]
    assert Notification.objects.get().attempts == 0

    wants(marco)

    assert send_all() == ["sent"]
    assert [message.to for message in mail.outbox] == [["marco@example.test"]]


def test_quiet_hours_of_who_is_away_hold_back_nothing_that_their_deputy_reads(
    roles: dict[str, Group], dana: User, marco: User
) -> None:
    payments = Group.objects.create(name="payments")
    dana.groups.add(payments)
    wants(dana, Kind.WAITING, quiet=ALWAYS)
    theirs, own = asked(), asked(groups=(payments.pk,))
    away(dana, marco)

    send_all()

    assert Notification.objects.get(approval=theirs).state == "sent"
    assert Notification.objects.get(approval=own).state == "queued", "Marco may not decide about it, so Dana reads it"
    assert [message.to for message in mail.outbox] == [["marco@example.test"]]


def test_who_reads_what_is_asked_of_the_database_once_for_all(
    dana: User, marco: User, django_assert_max_num_queries: Any
) -> None:
    wants(dana, Kind.WAITING)
    wants(marco, quiet=ALWAYS)
    away(dana, marco)
    asked()
    with CaptureQueriesContext(connection) as for_one:
        assert notify.ways_due() == []
    for _ in range(5):
        asked()

    with django_assert_max_num_queries(len(for_one)):
        assert notify.ways_due() == []


# --- Failed, handed, due soon --------------------------------------------------------------------


def test_whoever_approved_a_call_is_told_that_it_failed(clerk: Any, dana: User) -> None:
    run = clerk.run(calls(call("b", "send", to="ana", how="refused")))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)

    clerk.drive(run)

    assert clerk.execution(run, "b").result_status == "fatal_error"
    assert told() == [("dana", "call_failed")]
    assert send_all() == ["sent"]
    assert "A call that you approved has failed" in mail.outbox[0].body


def test_of_a_call_that_failed_nobody_is_told_who_may_not_see_the_request_any_more(clerk: Any, dana: User) -> None:
    wants(dana, Kind.FAILED, shows=True)
    clerk.run(calls(call("w", "pay", account="ana", amount=1)), says("ok"))
    approval = Approval.objects.get()
    clerk.decide(approval, dana)
    rows.within_transaction(people.tell_of_failures, [approval.pk])

    dana.groups.clear()

    assert send_all() == ["Not sent: dana may no longer see the request."]
    assert mail.outbox == []


def test_a_call_that_went_well_or_was_rejected_tells_nobody(clerk: Any, dana: User) -> None:
    run = clerk.run(calls(call("p", "pay", account="ana", amount=1), call("q", "pay", account="bo", amount=1)))
    first, second = clerk.open(run)
    clerk.decide(first, dana)
    clerk.decide(second, dana, "reject", message="No.")

    clerk.drive(run)

    assert told() == []


def test_whom_a_request_is_handed_to_is_told(dana: User, marco: User) -> None:
    approval = asked()

    rows.within_transaction(claims.hand_over, approval.pk, marco, dana, "Yours?")

    assert told() == [("dana", "handed")]
    assert send_all() == ["sent"]
    assert "A request was handed to you" in mail.outbox[0].body


def test_while_somebody_is_away_it_is_handed_to_who_stands_in_and_only_they_are_told(dana: User, marco: User) -> None:
    approval = asked()
    away(dana, marco)

    rows.within_transaction(claims.hand_over, approval.pk, make_user("Ben Third", "approver"), dana, "")

    assert told() == [("marco", "handed")]


def test_whoever_asked_is_told_of_the_answer(clerk: Any, dana: User) -> None:
    wants(dana, Kind.ANSWERED)
    proposal = calls(call("p", "pay", account="ana", amount=5)) | {"answer": {"text": "The invoice says 5."}}
    run = clerk.run(proposal, says("done"))
    actions.ask_agent(clerk.open(run)[0].pk, "Why five?", dana)

    clerk.drive(run)

    assert told() == [("dana", "answered")]
    assert send_all() == ["sent"]
    assert "was answered" in mail.outbox[0].body
    assert "invoice" not in mail.outbox[0].body


# --- Going away with claimed requests ------------------------------------------------------------


def held(clerk: Any, by: User, to: User) -> Approval:
    """A request of a run that was handed to somebody."""
    [approval] = clerk.open(clerk.run(calls(call("p", "pay", account="ana", amount=5))))
    rows.within_transaction(claims.hand_over, approval.pk, by, to, "Please look.")
    return rows.read(approval)


def test_what_was_handed_to_somebody_goes_on_when_they_have_gone(clerk: Any, dana: User, marco: User) -> None:
    approval = held(clerk, make_user("Ben Third", "approver"), dana)
    absences.begin(dana, marco, timezone.now() + timedelta(hours=1), timezone.now() + timedelta(days=1))
    sweep.sweep()
    assert claims.of(approval.pk).user == dana
    away(dana, marco)

    sweep.sweep()
    sweep.sweep()

    claim = claims.of(approval.pk)
    assert (claim.user, claim.handed_by, claim.note) == (marco, dana, "Please look.")
    assert rows.events(f"run:{approval.run_id}").count("approval.handed_over") == 2


def test_it_stays_where_it_is_when_who_stands_in_may_not_decide_about_it(clerk: Any, dana: User, marco: User) -> None:
    approval = held(clerk, make_user("Ben Third", "approver"), dana)
    approval.groups.set([Group.objects.create(name="payments")])
    dana.groups.add(*approval.groups.all())
    away(dana, marco)

    sweep.sweep()

    assert claims.of(approval.pk).user == dana


def test_what_somebody_claimed_themselves_runs_out_instead(clerk: Any, dana: User, marco: User) -> None:
    [approval] = clerk.open(clerk.run(calls(call("p", "pay", account="ana", amount=5))))
    actions.claim_request(approval.pk, dana)
    away(dana, marco)

    sweep.sweep()

    assert claims.of(approval.pk).user == dana


def test_nobody_is_told_twice_of_one_thing(dana: User) -> None:
    approval = asked()
    for _ in range(2):
        with ledger.transaction():
            people.tell([(approval.pk, dana.pk)], Kind.HANDED)

    assert told() == [("dana", "handed")]


def test_each_time_that_a_request_is_handed_to_somebody_they_are_told(dana: User, marco: User) -> None:
    approval = asked()
    wants(marco)
    for giver, taker in ((marco, dana), (dana, marco), (marco, dana)):
        actions.hand_over(approval.pk, taker, "", giver)

    assert told() == [("dana", "handed"), ("dana", "handed")]


def test_what_somebody_does_not_want_is_not_queued(dana: User) -> None:
    wants(dana)
    approval = asked()
    people.tell([(approval.pk, dana.pk)], Kind.HANDED)

    assert told() == []


def test_whoever_claimed_a_request_is_told_when_its_time_is_nearly_up(dana: User, marco: User) -> None:
    wants(dana, Kind.DUE_SOON)
    approval = asked(expires_seconds=3600)
    Claim.objects.create(
        approval=approval, user=dana, until=timezone.now() + timedelta(hours=1), claimed_at=timezone.now()
    )
    tasks.send_queued()
    assert told() == []
    Approval.objects.update(expires_at=timezone.now() + timedelta(minutes=10))

    tasks.send_queued()
    tasks.send_queued()

    assert told() == [("dana", "due_soon")]


@pytest.mark.parametrize("ways", [["browser"], ["chat"]])
def test_whoever_is_not_told_that_a_time_is_nearly_up_keeps_it_from_nobody(
    dana: User, marco: User, ways: list[str]
) -> None:
    """A pass looks at a limited number. Chat reaches nobody without a channel for individual people."""
    preferences.set_notifications(marco, {Kind.DUE_SOON: ways}, None, False, reach=preferences.Reach("@marco"))
    wants(dana, Kind.DUE_SOON)
    now = timezone.now()
    for user in (marco, marco, dana):
        Claim.objects.create(approval=asked(), user=user, until=now + timedelta(hours=1), claimed_at=now)
    Approval.objects.update(expires_at=now + timedelta(minutes=10))
    for _ in range(2):
        people.tell_of_due(2)
    assert told() == [("dana", "due_soon")]


def test_to_whom_it_is_handed_after_somebody_was_told_is_told_as_well(dana: User, marco: User) -> None:
    for user in (dana, marco):
        wants(user, Kind.DUE_SOON)
    now = timezone.now()
    Claim.objects.create(approval=asked(), user=dana, until=now + timedelta(hours=1), claimed_at=now)
    Approval.objects.update(expires_at=now + timedelta(minutes=10))
    people.tell_of_due(10)
    for holder in (marco, dana):
        Claim.objects.update(user=holder)
        people.tell_of_due(10)
    assert told() == [("dana", "due_soon"), ("marco", "due_soon")]
    assert people.tell_of_due(10) == 0
