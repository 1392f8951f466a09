"""The hours in which people work, as in "mon-fri 09:00-17:00". Pure: the moment is given."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from django.utils import timezone

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PART = re.compile(r"([a-z]{3})(?:\s*-\s*([a-z]{3}))?\s+(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_DAY_ENDS = 24 * 60
_EXAMPLE = "mon-fri 09:00-17:00, sat 10:00-14:00"

# No time counted in business hours ends later than this, however few the hours.
LONGEST = timedelta(days=3653)

# Minutes of the day by the wall clock: from, and until (exclusive).
Opening = tuple[int, int]


@dataclass(frozen=True)
class BusinessHours:
    """The openings of each day of the week, Monday first. With none at all, every hour is a business hour."""

    week: tuple[tuple[Opening, ...], ...] = ()
    zone: tzinfo | None = None
    """Whose clock it is. None: the installation's TIME_ZONE."""
    text: str = field(default="", compare=False)
    """As people wrote them."""

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str, zone: tzinfo | None = None) -> "BusinessHours":
        """Read hours as people write them. An empty text means every hour. Raises ValueError saying what is wrong."""
        if not text.strip():
            return cls(zone=zone)
        week: list[list[Opening]] = [[] for _ in DAYS]
        for part in text.lower().split(","):
            days, opening = _read(part.strip())
            for day in days:
                week[day].append(opening)
        return cls(tuple(_merged(openings) for openings in week), zone, text.strip())

    def contains(self, moment: datetime) -> bool:
        """Whether people are at work then."""
        if not self.week:
            return True
        return any(start <= moment < end for start, end in self._openings_on(self._local(moment).date()))

    def add(self, moment: datetime, seconds: float) -> datetime:
        """The moment when this many seconds of business hours have passed, at most ten years later.

        For no seconds it is the given moment. Without business hours, every second counts and there is no such bound.
        """
        if seconds <= 0:
            return moment
        if not self.week:
            return moment + timedelta(seconds=seconds)
        left, last = timedelta(seconds=seconds), moment.astimezone(UTC) + LONGEST
        for start, end in self._openings_from(moment):
            begins = max(start, moment)
            if begins >= last:
                return last.astimezone(moment.tzinfo)
            if end > begins and left <= end - begins:
                return (begins + left).astimezone(moment.tzinfo)
            left -= max(end - begins, timedelta(0))
        raise AssertionError("openings have no end")

    def between(self, begin: datetime, end: datetime) -> float:
        """How many seconds of business hours lie between two moments."""
        if end <= begin:
            return 0.0
        if not self.week:
            return (end - begin).total_seconds()
        found = timedelta(0)
        for opens, closes in self._openings_from(begin):
            if opens >= end:
                return found.total_seconds()
            found += max(min(closes, end) - max(opens, begin), timedelta(0))
        raise AssertionError("openings have no end")

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone or timezone.get_default_timezone())

    def _openings_from(self, moment: datetime) -> Iterator[tuple[datetime, datetime]]:
        day = self._local(moment).date()
        while True:
            yield from self._openings_on(day)
            day += timedelta(days=1)

    def _openings_on(self, day: date) -> Iterator[tuple[datetime, datetime]]:
        """The openings of one day as exact moments, so that an hour the clock skips or repeats is counted as it is.

        A time that the clock shows twice belongs to an opening both times, but not to one that ends where it begins.
        """
        for start, end in self.week[day.weekday()]:
            yield self._at(day, start, fold=0), self._at(day, end, fold=int(self._comes_twice(day, end - 1)))

    def _comes_twice(self, day: date, minutes: int) -> bool:
        return self._at(day, minutes, fold=0) != self._at(day, minutes, fold=1)

    def _at(self, day: date, minutes: int, fold: int) -> datetime:
        days, minute = divmod(minutes, _DAY_ENDS)
        wall = datetime.combine(day + timedelta(days=days), time(minute // 60, minute % 60, fold=fold))
        zone = self.zone or timezone.get_default_timezone()
        # Only differences between UTC moments are real time.
        moment = wall.replace(tzinfo=zone).astimezone(UTC)
        return moment if moment.astimezone(zone).replace(tzinfo=None) == wall.replace(fold=0) else _jump(wall, zone)


def _jump(wall: datetime, zone: tzinfo) -> datetime:
    """When the clock skips this time: an opening that begins or ends in the skipped time does so at that moment."""
    before, after = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    seconds = range(int((after - before).total_seconds()) + 1)

    def has_jumped(passed: int) -> bool:
        return (before + timedelta(seconds=passed)).astimezone(zone).utcoffset() != before.astimezone(zone).utcoffset()

    return before + timedelta(seconds=bisect_left(seconds, True, key=has_jumped))


def _read(part: str) -> tuple[list[int], Opening]:
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"{part!r} is not business hours; write them as in {_EXAMPLE!r}.")
    first, last = found[1], found[2] or found[1]
    for name in (first, last):
        if name not in DAYS:
            raise ValueError(f"{name!r} is not a day of the week: {', '.join(DAYS)}.")
    start, end = _minutes(found[3], found[4]), _minutes(found[5], found[6])
    if start >= end:
        raise ValueError(f"{part!r} ends before it begins; write hours past midnight as two openings on two days.")
    begin = DAYS.index(first)
    return [(begin + n) % 7 for n in range((DAYS.index(last) - begin) % 7 + 1)], (start, end)


def _minutes(hour: str, minute: str) -> int:
    minutes = int(hour) * 60 + int(minute)
    if int(minute) > 59 or minutes > _DAY_ENDS:
        raise ValueError(f"{hour}:{minute} is not a time of day.")
    return minutes


def _merged(openings: list[Opening]) -> tuple[Opening, ...]:
    """The openings in order; those that touch or overlap become one."""
    merged: list[Opening] = []
    for start, end in sorted(openings):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
