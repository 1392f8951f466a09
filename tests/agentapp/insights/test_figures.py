"""The figures of a generated month, compared with SQL that shares nothing with the code behind them."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group, User

from agentapp.insights import periods, reading
from agentapp.insights.counting import ALL_TEAMS
from agentapp.insights.periods import Period
from tests.agentapp.insights.sql import (
    FOR_PEOPLE,
    NOW,
    REAL_RUN,
    ask,
    in_team,
    milliseconds,
    nearest_rank,
    requests,
    whole_seconds,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("team", [None, 0, 1])
def test_what_became_of_requests_is_what_the_rows_say(month: Period, teams: list[Group], team: int | None) -> None:
    chosen = ALL_TEAMS if team is None else teams[team].pk
    total = requests(month, chosen).total
    rows = ask(
        f"SELECT a.ended_as, a.final_arguments_text = a.arguments_text, "
        f"(SELECT d.type FROM approvals_decision d WHERE d.approval_id = a.id AND d.undone_at IS NULL "
        f" AND d.decided_at = a.decided_at) "
        f"FROM approvals_approval a WHERE {FOR_PEOPLE} {in_team(chosen)} AND a.ended_at >= %s AND a.ended_at < %s",
        month.begin, month.end,
    )  # fmt: skip
    assert len(rows) > 300
    decided = [(same, how) for ended, same, how in rows if ended == "decided"]
    expected = {
        "approved": sum(how in ("approve", "edit") and bool(same) for same, how in decided),
        "changed": sum(how in ("approve", "edit") and not same for same, how in decided),
        "rejected": sum(how == "reject" for _, how in decided),
        "responded": sum(how == "respond" for _, how in decided),
        **{name: sum(ended == name for ended, _, _ in rows) for name in ("expired", "withdrawn", "superseded")},
    }
    assert {name: getattr(total, name) for name in expected} == expected
    assert all(expected.values())
    yes = expected["approved"] + expected["changed"]
    assert total.approved_share == yes / (yes + expected["rejected"])
    assert total.changed_share == expected["changed"] / yes
    assert total.expired_share == expected["expired"] / len(rows)
    [(asked,)] = ask(
        f"SELECT COUNT(*) FROM approvals_approval a WHERE {FOR_PEOPLE} {in_team(chosen)} "
        "AND a.created_at >= %s AND a.created_at < %s", month.begin, month.end,
    )  # fmt: skip
    assert total.asked == asked


def test_percentiles_are_exact_to_the_second_without_the_pauses_of_the_clock(month: Period) -> None:
    total = requests(month).total
    until = "CASE a.ended_as WHEN 'expired' THEN a.expires_at ELSE a.ended_at END"
    rows = ask(
        f"SELECT {whole_seconds(until, 'a.created_at')} - a.paused_seconds FROM approvals_approval a "
        f"WHERE {FOR_PEOPLE} AND a.ended_as IN ('decided', 'expired') AND a.ended_at >= %s AND a.ended_at < %s",
        month.begin, month.end,
    )  # fmt: skip
    waits = [max(0, int(seconds)) for (seconds,) in rows]
    assert total.timed == len(waits) > 800
    assert total.median == nearest_rank(waits, 50)
    assert total.p95 == nearest_rank(waits, 95)


def test_each_persons_figures_are_those_of_the_decisions_they_did_not_take_back(
    month: Period, people: list[User]
) -> None:
    by_person = requests(month).by_person
    assert set(by_person) == {str(user.pk) for user in people}
    for user in people:
        rows = ask(
            f"SELECT d.type, {whole_seconds('d.decided_at', 'a.created_at')} - a.paused_seconds, a.risk, "
            f"{milliseconds('d.decided_at', 'd.shown_at')} FROM approvals_decision d "
            f"JOIN approvals_approval a ON a.id = d.approval_id "
            f"WHERE {FOR_PEOPLE} AND d.user_id = %s AND d.undone_at IS NULL "
            "AND d.decided_at >= %s AND d.decided_at < %s",
            user.pk, month.begin, month.end,
        )  # fmt: skip
        mine = by_person[str(user.pk)]
        assert mine.decided == len(rows)
        assert mine.rejected == sum(row[0] == "reject" for row in rows)
        assert mine.median == nearest_rank([max(0, int(row[1])) for row in rows], 50)
        seen = [row for row in rows if row[3] is not None]
        high = [row for row in seen if row[2] in ("high", "critical")]
        assert (mine.high_seen, mine.high_fast) == (len(high), sum(row[3] < 3000 for row in high))
        yes = [row for row in seen if row[0] in ("approve", "edit")]
        assert (mine.approvals_seen, mine.approvals_fast) == (len(yes), sum(row[3] < 3000 for row in yes))
        assert 0 < mine.high_fast < mine.high_seen


def test_how_many_waited_at_each_hour_is_told_backwards_without_an_error(month: Period) -> None:
    found = requests(month)
    hours = reading.waiting_by_hour(found, reading.waiting(ALL_TEAMS, NOW).number)
    assert len(hours) == (month.end - month.begin) // timedelta(hours=1) + 2
    for at in list(hours)[::37]:
        [(waited,)] = ask(
            f"SELECT COUNT(*) FROM approvals_approval a WHERE {FOR_PEOPLE} AND a.created_at < %s "
            "AND (a.ended_at IS NULL OR a.ended_at >= %s)", at, at,
        )  # fmt: skip
        assert hours[at] == waited


def test_calls_and_their_errors_are_what_the_rows_say_with_attempts_apart(month: Period) -> None:
    found = reading.calls(month, reading.standing(NOW).kept_until)
    rows = ask(
        "SELECT name, COUNT(*), SUM(CASE WHEN result_status IN ('retryable_error', 'fatal_error') THEN 1 ELSE 0 END), "
        "SUM(attempts) FROM agentapp_toolexecution WHERE attempts > 0 AND NOT mocked "
        "AND finished_at >= %s AND finished_at < %s GROUP BY name", month.begin, month.end,
    )  # fmt: skip
    assert {name: (one.calls, one.failed, one.attempts) for name, one in found.items() if one.calls} == {
        name: (calls, failed, attempts) for name, calls, failed, attempts in rows
    }
    assert all(one.attempts > one.calls for one in found.values())


def test_costs_are_those_of_steps_of_other_replies_and_of_calls_by_day(month: Period) -> None:
    found = reading.costs(month, reading.standing(NOW).kept_until)

    def spent(table: str, moment: str) -> Decimal:
        [(cost,)] = ask(
            f"SELECT SUM(cost) FROM agentapp_{table} WHERE {REAL_RUN} AND {moment} >= %s AND {moment} < %s",
            month.begin, month.end,
        )  # fmt: skip
        return Decimal(str(cost)).quantize(Decimal("0.00000001"))

    steps, uses, tools = spent("step", "finished_at"), spent("modeluse", "at"), spent("toolexecution", "finished_at")
    assert found.total == steps + uses + tools
    assert sum(found.models_by_day.values()) == steps + uses
    assert sum(found.tools_by_day.values()) == tools > 0
    assert found.by_model[""] == uses > 0
    assert sum(found.by_agent.values()) == found.total
    [(unpriced,)] = ask(
        f"SELECT COUNT(*) FROM agentapp_step WHERE {REAL_RUN} AND cost IS NULL "
        "AND finished_at >= %s AND finished_at < %s",
        month.begin, month.end,
    )  # fmt: skip
    assert found.unpriced == unpriced > 0


def test_what_was_spent_before_is_that_of_as_long_a_time(month: Period) -> None:
    late = Period("custom", datetime(2026, 10, 14, tzinfo=UTC), NOW, "")
    found = reading.costs(late, reading.standing(NOW).kept_until)
    expected = sum(
        (
            Decimal(str(cost or 0))
            for table, moment in (("step", "finished_at"), ("modeluse", "at"), ("toolexecution", "finished_at"))
            for (cost,) in ask(
                f"SELECT SUM(cost) FROM agentapp_{table} WHERE {REAL_RUN} AND {moment} >= %s AND {moment} < %s",
                datetime(2026, 10, 7, 10, tzinfo=UTC),
                late.begin,
            )
        ),
        Decimal(0),
    )
    assert found.before == expected.quantize(Decimal("0.00000001")) > 0


def test_any_stretch_adds_up_to_the_same_whether_of_days_hours_or_rows(month: Period) -> None:
    hour = datetime(2026, 10, 3, 7, tzinfo=UTC)
    for length in (timedelta(hours=5), timedelta(days=1), timedelta(days=9, hours=4)):
        period = Period("custom", hour, hour + length, "")
        kept = requests(period)
        live = reading.requests(period, ALL_TEAMS, period.begin)
        assert kept.total == live.total
        assert reading.spent(period, reading.standing(NOW).kept_until) == reading.costs(period, period.begin).total > 0
        assert dict(kept.by_person) == dict(live.by_person)
        assert dict(kept.by_tool) == dict(live.by_tool)


@pytest.mark.parametrize("zone", ["UTC", "Europe/London", "Asia/Kathmandu"])
def test_days_are_the_same_where_the_waits_of_their_hours_were_not_read(month: Period, zone: str) -> None:
    days = ZoneInfo(zone)
    until = reading.standing(NOW).kept_until
    read, left_out = requests(month), reading.requests(month, ALL_TEAMS, until, days)
    assert reading.by_day(left_out, days) == reading.by_day(read, days)
    assert left_out.total == read.total
    assert reading.waiting_by_hour(left_out, 7) == reading.waiting_by_hour(read, 7)
    noon = month.begin + timedelta(days=3, hours=12)
    assert (left_out.hours[noon].median is None) == (zone == "UTC")


def test_the_period_before_is_as_long_and_ends_where_this_begins(month: Period) -> None:
    late = Period("14d", NOW.replace(minute=0, second=0) - timedelta(days=3), NOW, "")
    found = requests(late)
    assert found.before == requests(Period("", late.before.begin, late.before.end, "")).total
    assert found.before.asked > 0


def test_a_range_is_read_in_the_zone_of_the_installation() -> None:
    zone = ZoneInfo("Europe/Berlin")
    chosen = periods.read({"range": "custom", "from": "2026-10-01", "to": "2026-10-02"}, NOW, zone)
    assert chosen.begin == datetime(2026, 9, 30, 22, tzinfo=UTC)
    assert chosen.end == datetime(2026, 10, 2, 22, tzinfo=UTC)
    assert periods.read({"range": "nonsense"}, NOW, zone).key == "14d"
    assert periods.read({"range": "custom", "from": "2026-10-05", "to": "2026-10-02"}, NOW, zone).key == "14d"


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("0001-01-01", "0001-01-02"),
        ("1999-12-31", "2000-01-01"),
        ("9999-12-30", "9999-12-31"),
        ("9000-12-31", "9001-01-01"),
    ],
)
@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Auckland"])
def test_days_at_the_ends_of_the_calendar_are_none(first: str, last: str, zone: str) -> None:
    assert periods.read({"range": "custom", "from": first, "to": last}, NOW, ZoneInfo(zone)).key == "14d"
