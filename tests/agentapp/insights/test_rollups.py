"""Stored figures: when they are rolled up, rolled up again, and what pages do until then."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.utils import timezone

from agentapp import tasks
from agentapp.insights import back_fill, catch_up, reading
from agentapp.insights.counting import ALL_TEAMS, hour_of
from agentapp.insights.periods import Period
from agentapp.models import CallFigures, ModelFigures, RequestFigures, RollUp, Span
from approvals import decisions
from approvals.escalation import Step
from approvals.models import Approval, Decision, Question
from tests.rows import a_decision, a_moment_ago, a_request, decide, in_state, read, take, undo, within_transaction
from tests.traffic import generate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_hour")]
HOUR = timedelta(hours=1)


def kept() -> list[dict[str, Any]]:
    """Everything that is stored, without the keys of its rows."""
    return [
        {name: value for name, value in row.items() if name != "id"}
        for table in (RequestFigures, CallFigures, ModelFigures)
        for row in table.objects.order_by("span", "at", *_keys(table)).values()
    ]


def _keys(table: Any) -> tuple[str, ...]:
    return {RequestFigures: ("team", "by", "key"), CallFigures: ("agent", "tool")}.get(table, ("agent", "model"))


@pytest.fixture
def people(dana: User, marco: User) -> list[User]:
    return [dana, marco]


def back_by(approval: Approval, by: timedelta) -> Approval:
    """Move a request's asking and deciding this much earlier."""
    row = read(approval)
    moved = {
        name: value - by
        for name in ("created_at", "expires_at", "ended_at", "decided_at", "runs_at", "use_by")
        if (value := getattr(row, name)) is not None
    }
    Approval.objects.filter(pk=row.pk).update(**moved)
    for decision in row.decisions.all():
        Decision.objects.filter(pk=decision.pk).update(decided_at=decision.decided_at - by)
    return read(approval)


def hourly(**about: Any) -> RequestFigures | None:
    return RequestFigures.objects.filter(span=Span.HOUR, by="all", team=ALL_TEAMS, **about).first()


def test_adding_up_again_changes_nothing(people: list[User]) -> None:
    now = timezone.now()
    generate(now - timedelta(days=3), now, 60, people, [Group.objects.create(name="payments")]).write()
    catch_up(now)
    first = kept()
    assert first
    catch_up(now)
    back_fill(now=now)
    assert kept() == first


def test_catching_up_after_days_takes_several_passes_and_ends_the_same(people: list[User]) -> None:
    now = timezone.now()
    generate(now - timedelta(days=5), now, 60, people, []).write()
    catch_up(now, most=timedelta(days=60))
    whole = kept()
    RollUp.objects.all().delete()
    RequestFigures.objects.all().delete()
    passes = 0
    while (state := catch_up(now, most=timedelta(hours=30))) is not None and state.until < hour_of(now):
        passes += 1
    assert passes >= 3
    assert kept() == whole


def test_a_decision_that_is_taken_back_has_its_hour_added_up_again(dana: User) -> None:
    approval = back_by(take(a_request(), dana), 5 * HOUR)
    hour = hour_of(read(approval).ended_at)  # type: ignore[arg-type]
    catch_up()
    row = hourly(at=hour)
    assert row is not None
    assert (row.approved, sum(row.waits.values())) == (1, 1)
    undo(approval, dana)
    assert read(approval).ended_at is None
    catch_up()
    again = hourly(at=hour)
    assert again is None or (again.approved, again.waits) == (0, {})
    assert not RequestFigures.objects.filter(by="person").exists()


def test_a_decision_that_is_taken_back_takes_the_end_away_that_another_made_in_a_later_hour(
    dana: User, marco: User
) -> None:
    asked = a_request(approvals_needed=2)
    assert not isinstance(decide(asked, a_decision(asked, dana)), str)
    back_by(asked, 3 * HOUR)
    Approval.objects.filter(pk=asked.pk).update(expires_at=timezone.now() + HOUR)
    approval = back_by(take(asked, marco), 2 * HOUR)
    ended_at = approval.ended_at
    assert ended_at is not None
    catch_up()
    assert RequestFigures.objects.filter(span=Span.HOUR, by="all", at=hour_of(ended_at), approved=1).exists()

    undo(approval, dana)
    catch_up()
    assert read(approval).ended_at is None
    assert not RequestFigures.objects.filter(by="all", approved__gt=0).exists()
    now = timezone.now()
    period = Period("24h", hour_of(now) - 8 * HOUR, now, "")
    found = reading.requests(period, ALL_TEAMS, reading.standing(now).kept_until)
    hours = reading.waiting_by_hour(found, reading.waiting(ALL_TEAMS, now).number)
    assert hours == {at: int(approval.created_at < at) for at in hours}
    assert set(found.by_person) == {str(marco.pk)}
    again = kept()
    back_fill()
    assert kept() == again


@pytest.mark.parametrize(
    ("asked_after", "took"),
    [(timedelta(hours=2), 3600), (timedelta(minutes=20), 1200)],
    ids=["after the decision", "before the decision"],
)
def test_of_a_question_as_much_of_the_pause_is_a_persons_as_was_before_their_decision(
    dana: User, marco: User, asked_after: timedelta, took: int
) -> None:
    approval = a_request(approvals_needed=2)
    assert not isinstance(decide(approval, a_decision(approval, dana)), str)
    created_at = approval.created_at - 6 * HOUR
    Approval.objects.filter(pk=approval.pk).update(created_at=created_at)
    Decision.objects.update(decided_at=created_at + HOUR)
    question = within_transaction(decisions.ask, approval.pk, marco, "Why?", 9 * HOUR)
    Question.objects.filter(pk=question.pk).update(asked_at=created_at + asked_after)
    catch_up()
    assert within_transaction(decisions.answer, question.pk, "Because.")
    assert read(approval).paused_seconds > 3 * 3600
    catch_up()

    row = RequestFigures.objects.get(span=Span.HOUR, by="person", team=ALL_TEAMS, key=str(dana.pk))
    assert row.waits == {str(took): 1}
    again = kept()
    back_fill()
    assert kept() == again


def test_a_request_that_another_team_is_asked_later_waits_for_it_from_the_beginning_until_its_end(
    dana: User, marco: User, roles: dict[str, Group]
) -> None:
    leads = Group.objects.create(name="leads")
    asked = a_request(groups=(roles["approver"].pk,), approvals_needed=2, escalation=(Step(60, "leads"),))
    assert not isinstance(decide(asked, a_decision(asked, dana)), str)
    approval = back_by(asked, 5 * HOUR)
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() + HOUR)
    catch_up()
    assert not RequestFigures.objects.filter(team=leads.pk).exists()
    assert within_transaction(decisions.escalate, a_moment_ago(approval, "escalates_at").pk)
    take(approval, marco)
    catch_up()

    now = timezone.now()
    found = reading.requests(
        Period("24h", hour_of(now) - 8 * HOUR, now, ""), leads.pk, reading.standing(now).kept_until
    )
    assert (found.total.asked, found.total.approved) == (1, 1)
    assert found.by_person[str(dana.pk)].approved == 1
    hours = reading.waiting_by_hour(found, reading.waiting(leads.pk, now).number)
    ended_at = read(approval).ended_at
    assert ended_at is not None
    assert hours == {at: int(approval.created_at < at <= ended_at) for at in hours}
    again = kept()
    back_fill()
    assert kept() == again


def test_a_day_is_what_its_hours_are_also_after_one_of_them_has_changed(dana: User) -> None:
    approval = back_by(take(a_request(), dana), timedelta(days=2))
    catch_up()
    day = RequestFigures.objects.get(span=Span.DAY, by="all")
    assert day.approved == 1
    undo(approval, dana)
    catch_up()
    assert not RequestFigures.objects.filter(span=Span.DAY, approved__gt=0).exists()


def test_the_hour_that_is_not_over_is_counted_from_rows(dana: User) -> None:
    catch_up()
    take(a_request(), dana, "reject")
    now = timezone.now()
    standing = reading.standing(now)
    found = reading.requests(Period("24h", hour_of(now) - 24 * HOUR, now, ""), ALL_TEAMS, standing.kept_until)
    assert (found.total.asked, found.total.rejected) == (1, 1)
    assert not RequestFigures.objects.exists()


def test_figures_end_where_adding_up_has_come_to_when_that_is_late() -> None:
    now = timezone.now()
    assert reading.standing(now).is_first
    until = hour_of(now) - 7 * HOUR
    RollUp.objects.create(until=until, looked_at=until)
    assert reading.standing(now) == reading.Standing(until, until)
    catch_up()
    assert reading.standing(now).shown_until == now


@pytest.mark.parametrize("how", ["expired", "withdrawn", "superseded"])
def test_a_request_that_nobody_decided_is_counted_as_it_ended(dana: User, how: str) -> None:
    approval = in_state(how, dana)
    back_by(approval, 2 * HOUR)
    catch_up()
    row = RequestFigures.objects.get(span=Span.HOUR, by="all", **{how: 1})
    assert row.approved + row.rejected == 0
    assert sum(row.waits.values()) == (how == "expired")


def test_what_expired_stays_so_when_people_are_asked_anew(dana: User, sam: User) -> None:
    approval = in_state("expired", dana)
    assert within_transaction(decisions.ask_again, approval, "user:1 sam")
    again = read(approval)
    assert (again.state, again.ended_as) == ("superseded", "expired")


def test_an_approval_that_nobody_used_was_decided_all_the_same(dana: User) -> None:
    approval = take(a_request(), dana)
    Approval.objects.filter(pk=approval.pk).update(use_by=timezone.now() - HOUR)
    assert within_transaction(decisions.expire, approval.pk)
    ended = read(approval)
    assert (ended.state, ended.ended_as, ended.ended_at) == ("expired", "decided", approval.decided_at)


def test_a_team_has_the_figures_of_what_it_was_asked(dana: User, roles: dict[str, Group]) -> None:
    group = roles["approver"]
    back_by(take(a_request(groups=(group.pk,)), dana), 2 * HOUR)
    back_by(take(a_request(), dana, "reject"), 2 * HOUR)
    catch_up()
    now = timezone.now()
    period = Period("24h", hour_of(now) - 24 * HOUR, now, "")
    until = reading.standing(now).kept_until
    assert reading.requests(period, group.pk, until).total.decided == 1
    assert reading.requests(period, ALL_TEAMS, until).total.decided == 2


def test_of_two_approvals_that_were_needed_each_is_its_persons_and_the_request_is_one(dana: User, marco: User) -> None:
    approval = a_request(approvals_needed=2)
    assert not isinstance(decide(approval, a_decision(approval, dana)), str)
    take(approval, marco)
    now = timezone.now()
    found = reading.requests(Period("24h", hour_of(now) - HOUR, now + HOUR, ""), ALL_TEAMS, hour_of(now) - HOUR)
    assert found.total.approved == 1
    assert {key: sums.approved for key, sums in found.by_person.items()} == {str(dana.pk): 1, str(marco.pk): 1}


def test_the_beat_adds_up_and_the_command_begins_anew(dana: User, capsys: Any) -> None:
    back_by(take(a_request(), dana), 30 * HOUR)
    tasks.roll_up()
    first = kept()
    assert first
    RequestFigures.objects.update(approved=77)
    call_command("back_fill_insights", since=f"{datetime.now(UTC) - timedelta(days=3):%Y-%m-%d}")
    assert kept() == first
    assert "Figures until" in capsys.readouterr().out
    with pytest.raises(CommandError, match="is not a day"):
        call_command("back_fill_insights", since="yesterday")


def test_a_year_that_was_typed_wrong_begins_with_the_first_row(dana: User) -> None:
    back_by(take(a_request(), dana), 30 * HOUR)
    tasks.roll_up()
    first = kept()

    call_command("back_fill_insights", since="0001-01-01")

    assert kept() == first
    assert RollUp.objects.get().until > datetime.now(UTC) - 2 * HOUR


def test_figures_that_were_asked_for_from_the_first_year_on_are_computed_again(dana: User) -> None:
    back_by(take(a_request(), dana), 30 * HOUR)
    tasks.roll_up()
    first = kept()
    RollUp.objects.update(until=datetime(1, 1, 1, tzinfo=UTC))

    back_fill()

    assert kept() == first
