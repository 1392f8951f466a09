"""The period that figures are for. Plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from agentapp.insights.counting import HOUR, hour_of

DAY = timedelta(days=1)
# Nobody reads longer periods hour by hour.
BY_HOUR = timedelta(hours=48)
LONGEST = 366
FIRST_YEAR, LAST_YEAR = 2000, 9000
# The choices, as key, days, words.
CHOICES = (("24h", 1, "24 h"), ("14d", 14, "14 days"), ("90d", 90, "90 days"))
_USUAL = CHOICES[1]


@dataclass(frozen=True)
class Period:
    """From `begin`, a full hour, up to `end`, the first moment outside the period."""

    key: str
    begin: datetime
    end: datetime
    words: str
    zone: tzinfo = UTC
    """The time zone whose days it covers."""

    @property
    def last(self) -> datetime:
        """A moment in its last day. If the period ends with a day, `end` is in the next one."""
        return max(self.begin, self.end - timedelta(microseconds=1))

    @property
    def days(self) -> list[date]:
        """Its days, without gaps."""
        first, last = self.begin.astimezone(self.zone).date(), self.last.astimezone(self.zone).date()
        return [first + DAY * number for number in range((last - first).days + 1)]

    @property
    def by_hour(self) -> bool:
        return self.end - self.begin <= BY_HOUR

    @property
    def before(self) -> "Period":
        """The period of the same length directly before this one."""
        begin = hour_of(self.begin - (self.end - self.begin))
        return replace(self, begin=begin, end=self.begin, words="before")

    def up_to(self, end: datetime) -> "Period":
        return replace(self, end=max(self.begin, min(end, self.end)))


def read(asked: Mapping[str, str], now: datetime, zone: tzinfo) -> Period:
    """The period an address asks for, by the days of a time zone. The usual one if it names no valid period."""
    key = asked.get("range", "")
    if key == "custom":
        chosen = _custom(asked, now, zone)
        if isinstance(chosen, Period):
            return chosen
    name, days, words = next((one for one in CHOICES if one[0] == key), _USUAL)
    today = now.astimezone(zone).date()
    begin = hour_of(now) - 24 * HOUR if days == 1 else _first_hour(today - (days - 1) * DAY, zone)
    return Period(name, begin, now, words, zone)


def why_not(asked: Mapping[str, str], now: datetime, zone: tzinfo) -> str:
    """Why the period is not the days that an address names, as a sentence. Empty if it is."""
    chosen = _custom(asked, now, zone) if asked.get("range", "") == "custom" else ""
    return chosen if isinstance(chosen, str) else ""


def _custom(asked: Mapping[str, str], now: datetime, zone: tzinfo) -> Period | str:
    """The days an address names, or why there can be no figures for them."""
    first, last = _day(asked.get("from", "")), _day(asked.get("to", ""))
    if first is None or last is None:
        return "A range needs two days, as in 2026-11-01 and 2026-11-14."
    if last < first:
        return "The range ends before it begins."
    if last - first >= timedelta(days=LONGEST):
        return f"The range is longer than {LONGEST} days."
    # A link made in another time zone may name a day that has not begun in this one.
    today = now.astimezone(zone).date()
    first, last = (today if today < day <= today + DAY else day for day in (first, last))
    end = min(start_of(last + DAY, zone), now)
    if start_of(first, zone) >= end:
        return "The range has not begun yet."
    begin = min(_first_hour(first, zone), end)
    return Period("custom", begin, end, f"{first:%-d %b %Y} to {last:%-d %b %Y}", zone)


def start_of(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _day(text: str) -> date | None:
    """A day given in an address. None if it is not a day, or is at the ends of the calendar, where there is nothing to
    count.
    """
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if FIRST_YEAR <= day.year <= LAST_YEAR else None


def _first_hour(day: date, zone: tzinfo) -> datetime:
    """The first full hour of a day. Figures are kept by UTC hours, and in some zones a day begins within one."""
    start = start_of(day, zone)
    return start if start == hour_of(start) else hour_of(start) + HOUR
