"""Where a figure leads: the audit trail's rows behind it."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from urllib.parse import parse_qs, urlencode, urlsplit

from django.utils import timezone

from agentapp.audit.query import Malformed, parse
from agentapp.insights.periods import DAY, Period, start_of

AUDIT = "/audit/"
_NEEDS_QUOTES = re.compile(r'[\s,"\\]')


def rows(**words: str | Sequence[str]) -> str:
    """The audit trail filtered by all these words. Of several values of one word, any may match."""
    said = ((word, (values,) if isinstance(values, str) else values) for word, values in words.items())
    terms = [f"{word}:{','.join(map(_quoted, values))}" for word, values in said if any(values)]
    return f"{AUDIT}?{urlencode({'q': ' '.join(terms)})}"


def is_askable(href: str) -> bool:
    """Whether the audit trail accepts the query in this link: its length is limited."""
    try:
        parse(parse_qs(urlsplit(href).query)["q"][0])
    except Malformed:
        return False
    return True


def within(period: Period) -> dict[str, str]:
    """The words for a period: days, or for one that begins within a day, the hour."""
    if period.key == "24h":
        return {"since": _moment(period.begin)}
    since = {"since": _since(period.begin)}
    return since | {"until": _until(start_of(period.days[-1] + DAY, period.zone))} if period.key == "custom" else since


def on(day: date) -> dict[str, str]:
    """The words for a UTC day."""
    return {"since": _since(start_of(day, UTC)), "until": _until(start_of(day + DAY, UTC))}


def _since(begin: datetime) -> str:
    """A day if one begins at this moment in the installation's time zone, which the trail uses; else the moment."""
    local = timezone.localtime(begin)
    return local.date().isoformat() if local.time() == time.min else _moment(begin)


def _until(end: datetime) -> str:
    """The same for an end: a day includes all of itself, while a moment is the first one left out."""
    local = timezone.localtime(end)
    return (local.date() - DAY).isoformat() if local.time() == time.min else _moment(end)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def _quoted(value: str) -> str:
    if value and not _NEEDS_QUOTES.search(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
