"""The Approvals tab: how many wait, how long decisions take, who decides what. From figures, without queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from agentapp.console import charts, formats
from agentapp.console.insights_links import rows, within
from agentapp.console.insights_parts import (
    DASH,
    MOST_BARS,
    Card,
    Cell,
    Figure,
    Key,
    Person,
    Table,
    Topic,
    at_hour,
    change,
    counted,
    few,
    on_day,
    percent,
    plural,
    seconds,
    share,
    wait,
)
from agentapp.insights import counting
from agentapp.insights.reading import Requests, Sums, Waiting, by_day, waiting_by_hour

# A person's share of quick approvals is shown from this many approvals on: fewer say nothing about anybody.
FEWEST_OF_A_PERSON = 20
FAST = f"<{counting.FAST.total_seconds():g}s"
DECIDED = ("approved", "changed", "rejected", "responded")


@dataclass(frozen=True)
class Told:
    """What the tab is made from. `at_end`: how many waited when the period ended."""

    found: Requests
    waiting: Waiting
    at_end: int
    people: Mapping[str, User]
    team: str
    now: datetime

    @property
    def words(self) -> dict[str, str]:
        """What every link into the audit trail says about the period and the team."""
        return within(self.found.period) | ({"team": self.team} if self.team else {})


def topic(told: Told) -> Topic:
    cards = [waiting_over_time(told), time_to_decide(told), by_tool(told), quick(told), by_person(told)]
    return Topic(figures(told), cards)


def figures(told: Told) -> list[Figure]:
    total, before, waits = told.found.total, told.found.before, told.waiting
    inbox, words = reverse("inbox"), told.words
    ended = rows(did=("decided", "expired"), **words)
    return [
        Figure("Waiting now", f"{waits.number:,}", f"{waits.due} due within 15 min", href=inbox),
        _oldest(told),
        _timed("Time to decide, median", total.median, before.median, ended, total, 1),
        _timed("Time to decide, p95", total.p95, before.p95, ended, total, 20),
        Figure(
            "Approved, incl. changed",
            percent(total.approved_share),
            plural(total.decided, "request"),
            href=rows(did=DECIDED, **words),
            why="" if total.approved_share is not None else "Nothing was decided",
        ),
        _share("Changed", total.changed_share, before.changed_share,
               (total.changed, total.approved + total.changed, "approved requests"), rows(did="changed", **words)),
        _share("Expired", total.expired_share, before.expired_share,
               (total.expired, total.ended, "ended requests"), rows(did="expired", **words)),
        Figure(
            "Fast, high risk",
            f"{total.high_fast:,}" if total.high_seen else DASH,
            "under 3 s after first shown",
            f"of {total.high_seen:,}" if total.high_seen else "",
            href=rows(did="decided", risk=("high", "critical"), seen=FAST, **words),
            why="" if total.high_seen else "None decided in the console",
        ),
    ]  # fmt: skip


def _oldest(told: Told) -> Figure:
    oldest = told.waiting.oldest
    if oldest is None:
        return Figure("Oldest waiting", DASH, why="Nothing waits", href=reverse("inbox"))
    claim = getattr(oldest, "claim", None)
    by = "unclaimed" if claim is None else f"claimed by {claim.user or claim.group}"
    value, _, unit = formats.over(oldest.created_at, told.now).rpartition(" ")
    if unit == "minute":
        value, unit = "under 1", "min"
    return Figure("Oldest waiting", value, f"{oldest.reference}, {by}", unit, reverse("approval", args=[oldest.pk]))


def _timed(name: str, now: int | None, before: int | None, href: str, total: Sums, least: int) -> Figure:
    if now is None:
        why = "Nothing was decided" if not total.timed or least == 1 else few(total.timed)
        return Figure(name, DASH, href=href, why=why)
    since = seconds(abs(now - before)) if before is not None else ""
    said = change(now, before, since)
    about = "vs before" if said else "as before" if before is not None else plural(total.timed, "request")
    return Figure(name, seconds(now), about, href=href, change=said, hue="down" if said.startswith("↓") else "up")


def _share(name: str, now: float | None, before: float | None, of: tuple[int, int, str], href: str) -> Figure:
    if now is None:
        return Figure(name, DASH, href=href, why=f"No {of[2]}")
    points = f"{abs(100 * (now - before)):.0f} pt" if before is not None else ""
    said = change(now, before, points) if not points.startswith("0 ") else ""
    about = "vs before" if said else "as before" if before is not None else of[2]
    return Figure(name, percent(now), about, f"{of[0]:,} of {of[1]:,}", href, said)


def waiting_over_time(told: Told) -> Card:
    period = told.found.period
    hours = waiting_by_hour(told.found, told.at_end)
    is_now = period.end == told.now
    # "Now" is a point of its own: its number falls with each decision, while those at full hours are fixed.
    passed = {at: count for at, count in hours.items() if not is_now or at < period.end}
    if period.by_hour:
        points = [(at_hour(at), count) for at, count in passed.items()]
        head, note = "Hour", "at each full hour"
    else:
        points, head, note = _highest(passed, period.last), "Day", "the most at a full hour of each day"
    if is_now:
        points.append((at_hour(period.end, "now"), told.at_end))
        note += ", and what waits now"
    names, numbers = [name for name, _ in points], [count for _, count in points]
    peak = max(range(len(points) - is_now or 1), key=numbers.__getitem__)
    most = (
        f"At most {numbers[peak]:,}, {'at' if period.by_hour else 'on'} {names[peak]}"
        if numbers[peak]
        else "None before"
    )
    drawn = charts.lines([charts.Series("Waiting", "info", numbers)], charts.counts(max(numbers)), names, filled=True)
    return Card(
        "waiting", "Approvals waiting", Table((head, "Waiting"), [(name, counted(count)) for name, count in points]),
        note=f"{period.words}, {note}",
        sentence=f"Waiting approvals, {note}. {most}; "
        f"{told.at_end:,} {'now' if is_now else 'at the end'}.",
        lines=drawn,
    )  # fmt: skip


def _highest(hours: Mapping[datetime, int], last: datetime) -> list[tuple[Cell, int]]:
    """By day. A period's closing midnight belongs to a day outside it."""
    most: dict[date, int] = {}
    for at, count in hours.items():
        day = timezone.localtime(at).date()
        if day <= timezone.localtime(last).date():
            most[day] = max(count, most.get(day, 0))
    return [(on_day(day), count) for day, count in most.items()]


def time_to_decide(told: Told) -> Card:
    period = told.found.period
    points = _stretches(told)
    medians, high = [sums.median for _, sums in points], [sums.p95 for _, sums in points]
    values = [value for value in (*medians, *high) if value is not None]
    claimed = told.found.total.claimed.median
    table = Table(
        ("Hour" if period.by_hour else "Day", "Median, seconds", "95th percentile, seconds", "Requests"),
        [(name, _number(s.median), _number(s.p95), counted(s.timed)) for name, s in points],
    )
    about = "" if claimed is None else f"From the decider's claim: {seconds(claimed)} at the median."
    if not values:
        return Card("time-to-decide", "Time to decide", table, wide=False,
                    empty="No request was decided in this time. Waits are drawn here once one is.")  # fmt: skip
    scale = charts.doubling(min(values), max(values), _tick)
    note = "each line doubles" if scale.factor == 2 else f"each line is {scale.factor} times the one below"
    series = [charts.Series("Median", "info", medians)]
    legend = [Key("Median", "info", "line")]
    if any(value is not None for value in high):
        series.insert(0, charts.Series("95th percentile", "wait", high, dashed=True))
        legend.append(Key("95th percentile", "wait", "dash"))
    total = told.found.total
    return Card(
        "time-to-decide", "Time to decide", table, note=note, wide=False, about=about,
        sentence=f"Half of {plural(total.timed, 'request')} took at most {seconds(total.median)}"
        + (f", 95 of 100 at most {seconds(total.p95)}." if total.p95 is not None else f". {few(total.timed)}."),
        lines=charts.lines(series, scale, [name for name, _ in points]), legend=legend,
    )  # fmt: skip


def _stretches(told: Told) -> list[tuple[Cell, Sums]]:
    if told.found.period.by_hour:
        hours = waiting_by_hour(told.found, 0)
        return [(at_hour(at), told.found.hours.get(at, Sums())) for at in hours if at != told.found.period.end]
    days = by_day(told.found, timezone.get_current_timezone())
    return [(on_day(day), sums) for day, sums in days.items()]


def by_tool(told: Told) -> Card:
    found = sorted(told.found.by_tool.items(), key=lambda one: (-one[1].decided, one[0]))
    found = [(tool, sums) for tool, sums in found if sums.ended]
    most = max((sums.approved + sums.changed + sums.rejected for _, sums in found), default=0)
    decided = [(tool, sums) for tool, sums in found if sums.approved + sums.changed + sums.rejected][:MOST_BARS]
    return Card(
        "by-tool", "Decided by tool",
        Table(
            ("Tool", "Approved", "Changed", "Rejected", "Responded", "Expired", "Withdrawn", "Replaced"),
            [(tool, *map(str, (s.approved, s.changed, s.rejected, s.responded, s.expired, s.withdrawn, s.superseded)))
             for tool, s in found],
            [rows(did="decided", tool=tool, **told.words) for tool, _ in found],
        ),
        note=f"{plural(told.found.total.decided, 'request')} in {told.found.period.words}",
        bars=[
            charts.bar(
                tool, (("ok", s.approved), ("info", s.changed), ("bad", s.rejected)), most,
                f"{s.approved} approved, {s.changed} changed, {s.rejected} rejected",
                f"{s.approved + s.changed + s.rejected}, {percent(s.approved_share)} approved",
                href=rows(did=("approved", "changed", "rejected"), tool=tool, **told.words),
            )
            for tool, s in decided
        ],
        legend=[Key("Approved", "ok"), Key("Approved with changes", "info"), Key("Rejected", "bad")],
        empty="No request was decided in this time.",
    )  # fmt: skip


def _people(told: Told) -> list[tuple[str, Sums]]:
    return sorted(told.found.by_person.items(), key=lambda one: (-one[1].decided, one[0]))


def by_person(told: Told) -> Card:
    found = _people(told)
    lines = []
    for key, sums in found:
        user = told.people.get(key)
        cells = (
            counted(sums.decided), wait(sums.median), wait(sums.p95), share(sums.approved_share),
            share(sums.changed_share),
        )  # fmt: skip
        name = _name(user)
        href = rows(did="decided", who=user.get_username() if user else "", **told.words)
        lines.append(Person(user, name, cells, sums.high_fast, href))
    return Card(
        "by-person", "Decisions by person",
        Table(
            ("Person", "Decisions", Cell("Median", "Median, seconds"), Cell("p95", "p95, seconds"), "Approved",
             "Changed", "Under 3 s on high risk"),
            [(one.name, *one.cells, str(one.fast_high)) for one in lines],
            [one.href for one in lines],
        ),
        note=told.found.period.words, people=lines, empty="Nobody has decided anything in this time.",
    )  # fmt: skip


def quick(told: Told) -> Card:
    """How often approvals came faster than anybody can read. A reason to look, never a verdict."""
    found = [(key, sums) for key, sums in _people(told) if sums.approvals_seen]
    table = Table(
        ("Person", Cell("Approvals seen", "Approvals seen in the console"), "Under 3 s", "Share", "Approved"),
        [
            (_name(told.people.get(key)), str(s.approvals_seen), str(s.approvals_fast), share(s.fast_share),
             share(s.approved_share))
            for key, s in found
        ],
        [_quick_of(told, key) for key, _ in found],
    )  # fmt: skip
    enough = [(key, sums) for key, sums in found if sums.approvals_seen >= FEWEST_OF_A_PERSON]
    return Card(
        "quick-approvals", "Quick approvals", table, wide=False, gauge=True, note="under 3 s after first shown",
        bars=[
            charts.bar(
                _name(told.people.get(key)), (("gray", s.fast_share or 0),), 1,
                f"{s.approvals_fast} of {s.approvals_seen} approvals within 3 seconds; {percent(s.approved_share)} "
                "of decisions approved",
                percent(s.fast_share),
                href=_quick_of(told, key),
            )
            for key, s in enough[:MOST_BARS]
        ],
        empty=f"Nobody has approved {FEWEST_OF_A_PERSON} requests here in this time. Fewer say nothing.",
        about="The person may have read the request elsewhere before, as in a message, a plan or a similar request; "
        "simple requests take little time. It is a reason to ask, and to look at the rules, not a verdict.",
    )  # fmt: skip


def _quick_of(told: Told, key: str) -> str:
    """The link to one person's quick approvals."""
    user = told.people.get(key)
    who = user.get_username() if user else f"user:{key}"
    return rows(did=("approved", "changed"), seen=FAST, who=who, **told.words)


def _name(user: User | None) -> str:
    return "Somebody who is gone" if user is None else formats.visible(user.get_full_name() or user.get_username())


def _number(value: int | None) -> Cell:
    return Cell(DASH if value is None else str(value), value)


def _tick(value: float) -> str:
    if value < 60:
        return f"{value:g} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"
