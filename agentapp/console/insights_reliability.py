"""The Reliability tab: which tools fail how often, and which are not called for now. From rows already read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from agentapp.console import charts, formats
from agentapp.console.insights_links import is_askable, rows, within
from agentapp.console.insights_parts import (
    DASH,
    MOST_BARS,
    Card,
    Figure,
    Key,
    Table,
    Topic,
    counted,
    percent,
    plural,
    share,
)
from agentapp.insights import adding
from agentapp.insights.periods import Period
from agentapp.insights.reading import Calls
from agentapp.models import Breaker

# A larger share of failed calls than this is more than occasional.
LIMIT = 0.05


@dataclass(frozen=True)
class Stopped:
    """A breaker as it stands, in words."""

    breaker: Breaker
    hue: str
    state: str
    words: str
    can_reset: bool


def topic(
    found: Mapping[str, Calls], before: Mapping[str, Calls], breakers: Sequence[Breaker], period: Period
) -> Topic:
    return Topic(figures(found, before, breakers, period), [errors(found, period), tries(found, period)])


def figures(
    found: Mapping[str, Calls], before: Mapping[str, Calls], breakers: Sequence[Breaker], period: Period
) -> list[Figure]:
    words, now, then = within(period), _all(found), _all(before)
    per_call = adding.share(now.attempts, now.calls)
    over = sorted(tool for tool, one in found.items() if (one.error_rate or 0) > LIMIT)
    is_open = sum(one.state != Breaker.State.CLOSED for one in breakers)
    was = f"{percent(then.error_rate)} before" if then.calls else ""
    return [
        Figure("Calls carried out", f"{now.calls:,}", plural(len(found), "tool"),
               href=rows(did=("ran", "failed"), **words)),
        Figure("Error rate", percent(now.error_rate), f"{now.failed:,} failed{', ' if was else ''}{was}",
               href=rows(did="failed", **words), why="" if now.calls else "No call was carried out"),
        Figure("Tools over the limit", f"{len(over)}", f"more than {percent(LIMIT)} failed",
               href=_failed_of(over, words)),
        Figure("Attempts per call", DASH if per_call is None else f"{per_call:.2f}", f"{now.attempts:,} attempts",
               href=rows(did="attempt-failed", **words),
               why="" if now.calls else "No call was carried out"),
        Figure("Breakers not closed", f"{is_open}", f"of {len(breakers)}", href=rows(did="opened-breaker", **words)),
    ]  # fmt: skip


def _failed_of(tools: Sequence[str], words: Mapping[str, str]) -> str:
    """The failed calls of these tools, or the table below if one query cannot name them all. Empty without tools."""
    if not tools:
        return ""
    href = rows(did="failed", tool=tools, **words)
    return href if is_askable(href) else "#card-errors"


def _all(found: Mapping[str, Calls]) -> Calls:
    total = Calls()
    for one in found.values():
        total.calls, total.failed = total.calls + one.calls, total.failed + one.failed
        total.attempts += one.attempts
    return total


def errors(found: Mapping[str, Calls], period: Period) -> Card:
    made = [(tool, one) for tool, one in found.items() if one.calls]
    made.sort(key=lambda one: (-(one[1].error_rate or 0), -one[1].calls, one[0]))
    most = max([3 * LIMIT, *(one.error_rate or 0 for _, one in made)])
    bars = []
    for tool, one in made[:MOST_BARS]:
        rate = one.error_rate or 0.0
        is_over = rate > LIMIT
        bars.append(
            charts.bar(
                tool, (("bad" if is_over else "gray", rate),), most,
                f"{percent(rate)} errors, {one.failed} of {plural(one.calls, 'call')}",
                f"{percent(rate)}{' over' if is_over else ''}",
                href=rows(did="failed", tool=tool, **within(period)), mark=f"{100 * LIMIT / most:.1f}",
            )
        )  # fmt: skip
    return Card(
        "errors", "Error rate by tool",
        Table(
            ("Tool", "Calls", "Failed", "Error rate", "Attempts"),
            [(tool, counted(one.calls), counted(one.failed), share(one.error_rate), counted(one.attempts))
             for tool, one in made],
            [rows(did="failed", tool=tool, **within(period)) for tool, _ in made],
        ),
        note=period.words, bars=bars,
        legend=[Key(f"Over the {percent(LIMIT)} limit", "bad"), Key("Under", "gray")],
        empty="No call of a tool was carried out in this time.",
    )  # fmt: skip


def tries(found: Mapping[str, Calls], period: Period) -> Card:
    """Attempts are not calls: one call tried three times is one call."""
    made = [(tool, one) for tool, one in found.items() if one.attempts > one.calls and one.calls]
    made.sort(key=lambda one: (-(one[1].attempts - one[1].calls), one[0]))
    most = max((one.attempts for _, one in made), default=0)
    return Card(
        "attempts", "Calls tried again",
        table=Table(("Tool", "Calls", "Attempts"),
                    [(tool, counted(one.calls), counted(one.attempts)) for tool, one in made],
                    [rows(did="attempt-failed", tool=tool, **within(period)) for tool, _ in made]),
        bars=[
            charts.bar(tool, (("gray", one.calls), ("wait", one.attempts - one.calls)), most,
                       f"{plural(one.calls, 'call')}, {plural(one.attempts, 'attempt')}",
                       f"{one.attempts} for {one.calls}",
                       href=rows(did="attempt-failed", tool=tool, **within(period)))
            for tool, one in made[:MOST_BARS]
        ],
        legend=[Key("First attempts", "gray"), Key("Further ones", "wait")] if made else (),
        empty="No call took more than one attempt.",
    )  # fmt: skip


def stopped(breakers: Sequence[Breaker], now: datetime) -> list[Stopped]:
    """Every breaker, those that stop something first."""
    order: list[str] = [Breaker.State.OPEN, Breaker.State.HALF_OPEN, Breaker.State.CLOSED]
    return [_told(one, now) for one in sorted(breakers, key=lambda one: (order.index(one.state), one.key))]


def _told(one: Breaker, now: datetime) -> Stopped:
    failed = f"{plural(one.failures, 'failure')} in a row"
    error = f": {formats.visible(one.last_error[:160]).rstrip('.')}" if one.last_error and one.failures else ""
    if one.state == Breaker.State.OPEN and one.opened_at is not None:
        again = one.opened_at + timedelta(seconds=one.cooldown_seconds)
        when = f"in {formats.time_left(again, now)}" if again > now else "with the next call"
        return Stopped(one, "bad", "Open", f"{failed}{error}. Tries again {when}.", True)
    if one.state == Breaker.State.HALF_OPEN:
        since = formats.ago(one.opened_at, now) if one.opened_at else DASH
        return Stopped(one, "info", "Testing", f"One call probes. Opened {since}, {failed}{error}.", True)
    return Stopped(one, "ok", "Closed", f"{failed} of {one.threshold}{error}.", bool(one.failures))
