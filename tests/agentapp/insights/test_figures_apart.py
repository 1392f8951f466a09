"""The same month by tool, day, agent and model, and what waits now: compared with SQL, without mocked runs."""

from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group

from agentapp.insights import reading
from agentapp.insights.counting import ALL_TEAMS
from agentapp.insights.periods import Period
from approvals.models import Approval
from tests.agentapp.insights.sql import (
    FOR_PEOPLE,
    NOW,
    REAL_RUN,
    ask,
    in_team,
    nearest_rank,
    requests,
    whole_seconds,
)

pytestmark = pytest.mark.django_db
ENDED = f"FROM approvals_approval a WHERE {FOR_PEOPLE} AND a.ended_at >= %s AND a.ended_at < %s"
HOW = (
    "(SELECT d.type FROM approvals_decision d WHERE d.approval_id = a.id AND d.undone_at IS NULL "
    "AND d.decided_at = a.decided_at)"
)
PRICE = Decimal("0.00000001")


def column(ended: str, same: bool, how: str) -> str:
    """The figure in which a finished request is counted."""
    if ended != "decided":
        return ended
    if how in ("approve", "edit"):
        return "approved" if same else "changed"
    return {"reject": "rejected", "respond": "responded"}[how]


def test_mocked_rows_of_every_kind_are_there_to_be_left_out(month: Period) -> None:
    for table in ("approvals_approval", "approvals_decision", "agentapp_toolexecution"):
        assert ask(f"SELECT COUNT(*) FROM {table} WHERE mocked")[0][0] > 50
    for table in ("step", "modeluse"):
        assert ask(f"SELECT COUNT(*) FROM agentapp_{table} WHERE NOT {REAL_RUN}")[0][0] > 3


@pytest.mark.parametrize("team", [None, 1])
def test_what_became_of_the_requests_of_each_tool(month: Period, teams: list[Group], team: int | None) -> None:
    chosen = ALL_TEAMS if team is None else teams[team].pk
    rows = ask(
        f"SELECT a.tool, a.ended_as, a.final_arguments_text = a.arguments_text, {HOW} {ENDED} {in_team(chosen)}",
        month.begin, month.end,
    )  # fmt: skip
    ended = Counter((tool, column(how_ended, bool(same), how)) for tool, how_ended, same, how in rows)
    asked = ask(
        f"SELECT a.tool, COUNT(*) FROM approvals_approval a WHERE {FOR_PEOPLE} {in_team(chosen)} "
        "AND a.created_at >= %s AND a.created_at < %s GROUP BY a.tool", month.begin, month.end,
    )  # fmt: skip
    by_tool = requests(month, chosen).by_tool
    names = ("approved", "changed", "rejected", "responded", "expired", "withdrawn", "superseded")
    assert {(tool, n): getattr(sums, n) for tool, sums in by_tool.items() for n in names if getattr(sums, n)} == ended
    assert {tool: sums.asked for tool, sums in by_tool.items() if sums.asked} == dict(asked)
    assert len(by_tool) == 5


def test_the_time_since_the_claim_of_whoever_decided(month: Period) -> None:
    claimed = requests(month).total.claimed
    rows = ask(
        f"SELECT {whole_seconds('d.decided_at', 'd.claimed_at')} FROM approvals_decision d "
        f"JOIN approvals_approval a ON a.id = d.approval_id WHERE {FOR_PEOPLE} AND d.user_id IS NOT NULL "
        "AND d.undone_at IS NULL AND d.claimed_at IS NOT NULL AND d.decided_at >= %s AND d.decided_at < %s",
        month.begin, month.end,
    )  # fmt: skip
    waits = [int(seconds) for (seconds,) in rows]
    assert claimed.number == len(waits) > 200
    assert claimed.median == nearest_rank(waits, 50)


@pytest.mark.parametrize("team", [None, 0])
def test_what_waits_now_the_oldest_and_what_is_due(month: Period, teams: list[Group], team: int | None) -> None:
    chosen = ALL_TEAMS if team is None else teams[team].pk
    waits = f"FROM approvals_approval a WHERE {FOR_PEOPLE} AND a.state IN ('pending', 'asked') {in_team(chosen)}"
    [due, later] = Approval.objects.filter(pk__in=[row[0] for row in ask(f"SELECT a.id {waits} LIMIT 2")])
    Approval.objects.filter(pk=due.pk).update(expires_at=NOW + timedelta(minutes=15))
    Approval.objects.filter(pk=later.pk).update(expires_at=NOW + timedelta(minutes=16))

    shown = reading.waiting(chosen, NOW)
    [(number, oldest)] = ask(f"SELECT COUNT(*), MIN(a.created_at) {waits}")
    [(soon,)] = ask(f"SELECT COUNT(*) {waits} AND a.expires_at <= %s", NOW + timedelta(minutes=15))
    [(first,)] = ask(f"SELECT a.title || ' ' || a.tool {waits} ORDER BY a.created_at LIMIT 1")
    assert (shown.number, shown.due) == (number, soon)
    assert soon > 0
    assert shown.oldest is not None
    assert ask("SELECT a.created_at FROM approvals_approval a WHERE a.created_at = %s", shown.oldest.created_at)
    assert ask(f"SELECT COUNT(*) {waits} AND a.created_at < %s", shown.oldest.created_at) == [(0,)]
    assert f"{shown.oldest.title} {shown.oldest.tool}" == first
    assert oldest is not None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_each_day_has_what_ended_between_its_midnights_and_how_long_that_took(month: Period, zone: str) -> None:
    days, until = ZoneInfo(zone), "CASE a.ended_as WHEN 'expired' THEN a.expires_at ELSE a.ended_at END"
    shown = reading.by_day(requests(month), days)
    assert len(shown) == 26
    for day, sums in shown.items():
        begin, end = (max(month.begin, min(month.end, _midnight(at, days))) for at in (day, day + timedelta(days=1)))
        rows = ask(
            f"SELECT a.ended_as, a.final_arguments_text = a.arguments_text, {HOW}, "
            f"{whole_seconds(until, 'a.created_at')} - a.paused_seconds {ENDED}", begin, end,
        )  # fmt: skip
        ended = Counter(column(how_ended, bool(same), how) for how_ended, same, how, _ in rows)
        waits = [max(0, int(row[3])) for row in rows if row[0] in ("decided", "expired")]
        [(asked,)] = ask(
            f"SELECT COUNT(*) FROM approvals_approval a WHERE {FOR_PEOPLE} "
            "AND a.created_at >= %s AND a.created_at < %s", begin, end,
        )  # fmt: skip
        assert sums.asked == asked
        assert {name: getattr(sums, name) for name in ended} == dict(ended)
        assert sums.ended == len(rows)
        assert sums.median == (nearest_rank(waits, 50) if waits else None)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone)


def test_what_each_agent_cost_by_steps_other_replies_and_calls(month: Period) -> None:
    expected = Counter[str]()
    for table, moment in (("step", "finished_at"), ("modeluse", "at"), ("toolexecution", "finished_at")):
        rows = ask(
            f"SELECT g.name, SUM(x.cost) FROM agentapp_{table} x JOIN agentapp_run r ON r.id = x.run_id "
            f"JOIN agentapp_agent g ON g.id = r.agent_id WHERE r.mocks IS NULL "
            f"AND x.{moment} >= %s AND x.{moment} < %s GROUP BY g.name", month.begin, month.end,
        )  # fmt: skip
        for agent, cost in rows:
            expected[agent] += Decimal(str(cost)).quantize(PRICE)
    found = reading.costs(month, reading.standing(NOW).kept_until)
    assert found.by_agent == expected
    assert set(expected) == {"support", "billing"}


def test_what_each_model_cost_how_often_it_replied_and_with_how_many_tokens(month: Period) -> None:
    found = reading.costs(month, reading.standing(NOW).kept_until)
    rows = ask(
        "SELECT model, COUNT(*), SUM(COALESCE(cost, 0)), SUM(input_tokens + output_tokens) FROM agentapp_step "
        f"WHERE {REAL_RUN} AND (model <> '' OR cost IS NULL OR cost <> 0) "
        "AND finished_at >= %s AND finished_at < %s GROUP BY model", month.begin, month.end,
    )  # fmt: skip
    rows = [(model or "(not named)", *more) for model, *more in rows]
    rows += [
        ("", *more)
        for more in ask(
            "SELECT COUNT(*), SUM(COALESCE(cost, 0)), SUM(input_tokens + output_tokens) FROM agentapp_modeluse "
            f"WHERE {REAL_RUN} AND at >= %s AND at < %s", month.begin, month.end,
        )
    ]  # fmt: skip
    assert len(rows) == 4
    for model, replies, cost, tokens in rows:
        assert found.by_model[model] == Decimal(str(cost)).quantize(PRICE)
        assert (found.replies[model], found.tokens[model]) == (replies, tokens)
