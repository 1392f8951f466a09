"""SQL that shares nothing with the code behind the figures: plain, row by row, in the database's own dialect."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from agentapp.insights import reading
from agentapp.insights.counting import ALL_TEAMS
from agentapp.insights.periods import Period

NOW = datetime(2026, 10, 20, 13, 24, 9, tzinfo=UTC)
MONTH = timedelta(days=31)
FOR_PEOPLE = "(a.kind <> 'confirmation' AND NOT a.mocked)"
REAL_RUN = "EXISTS (SELECT 1 FROM agentapp_run r WHERE r.id = run_id AND r.mocks IS NULL)"


def ask(sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, [_moment(value) for value in values])
        return list(cursor.fetchall())


def _moment(value: Any) -> Any:
    if isinstance(value, datetime) and connection.vendor == "sqlite":
        text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        return text.removesuffix(".000000")
    return value


def whole_seconds(later: str, earlier: str) -> str:
    """`earlier` is a whole second, so that both databases can truncate the rest."""
    if connection.vendor == "sqlite":
        return f"(CAST(strftime('%%s', {later}) AS INTEGER) - CAST(strftime('%%s', {earlier}) AS INTEGER))"
    return f"FLOOR(EXTRACT(EPOCH FROM {later} - {earlier}))"


def milliseconds(later: str, earlier: str) -> str:
    if connection.vendor == "sqlite":
        return f"((julianday({later}) - julianday({earlier})) * 86400000.0)"
    return f"(EXTRACT(EPOCH FROM {later} - {earlier}) * 1000.0)"


def nearest_rank(values: Sequence[int], percent: int) -> int:
    """The definition, spelled out: the smallest value that at least this many percent of them do not exceed."""
    ordered = sorted(values)
    return next(one for at, one in enumerate(ordered, 1) if at * 100 >= percent * len(ordered))


def requests(period: Period, team: int = ALL_TEAMS) -> reading.Requests:
    return reading.requests(period, team, reading.standing(NOW).kept_until)


def in_team(team: int) -> str:
    return (
        f"AND EXISTS (SELECT 1 FROM approvals_approval_groups g WHERE g.approval_id = a.id AND g.group_id = {team})"
        if team
        else ""
    )
