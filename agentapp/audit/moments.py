"""Times as people write them: `7d`, `24h`, `today`, `2026-11-01`, `2026-11-01T14:00`, two with dots between. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

_AGO = re.compile(r"(\d{1,4})(min|m|h|d|w)", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)t(\d\d:\d\d)(z?)", re.ASCII)
_UNITS = {
    "min": timedelta(minutes=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}  # fmt: skip
_NAMED = {"today": 0, "yesterday": 1}
_EARLIEST, _LATEST = date(1971, 1, 1), date(9000, 1, 1)


@dataclass(frozen=True)
class Span:
    """A span of time as it was written: `first` to `last`, which are the same if only one was written."""

    first: str
    last: str
    is_range: bool = False

    def begins(self, now: datetime, zone: tzinfo) -> datetime:
        return _moment(self.first, now, zone)

    def ends(self, now: datetime, zone: tzinfo) -> datetime:
        """When it ends. A day ends when the next begins; "7d", that long ago, is a moment."""
        day = _day(self.last, now, zone)
        return _midnight(day + timedelta(days=1), zone) if day is not None else _moment(self.last, now, zone)


def read(text: str) -> Span | None:
    """A moment, a day, or two of them with two dots between. None if it is none of these."""
    first, dots, last = text.lower().partition("..")
    span = Span(first, last if dots else first, bool(dots))
    return span if all(map(_is_written, (span.first, span.last))) else None


def _is_written(text: str) -> bool:
    exact = _MINUTE.fullmatch(text)
    if exact or _DAY.fullmatch(text):
        try:
            return _EARLIEST <= datetime.fromisoformat(text.upper()).date() <= _LATEST
        except ValueError:
            return False
    return text in _NAMED or _AGO.fullmatch(text) is not None


def _day(text: str, now: datetime, zone: tzinfo) -> date | None:
    if text in _NAMED:
        return now.astimezone(zone).date() - timedelta(days=_NAMED[text])
    return date.fromisoformat(text) if _DAY.fullmatch(text) else None


def _moment(text: str, now: datetime, zone: tzinfo) -> datetime:
    day = _day(text, now, zone)
    if day is not None:
        return _midnight(day, zone)
    if exact := _MINUTE.fullmatch(text):
        return datetime.fromisoformat(f"{exact[1]}T{exact[2]}").replace(tzinfo=UTC if exact[3] else zone)
    found = _AGO.fullmatch(text)
    assert found is not None
    return now - int(found[1]) * _UNITS[found[2]]


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), tzinfo=zone)
