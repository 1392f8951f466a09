"""Where a figure leads: the rows of the audit trail behind it."""

import re
from collections.abc import Sequence
from datetime import UTC, date
from urllib.parse import parse_qs, urlencode, urlsplit

from django.utils import timezone

from agentapp.audit.query import Malformed, parse
from agentapp.insights.periods import Period

AUDIT = "/audit/"
_NEEDS_QUOTES = re.compile(r'[\s,"\\]')


def rows(**words: str | Sequence[str]) -> str:
    """The audit trail, asked for what holds of all these words; of several values of one word, any must hold."""
    said = ((word, (values,) if isinstance(values, str) else values) for word, values in words.items())
    terms = [f"{word}:{','.join(map(_quoted, values))}" for word, values in said if any(values)]
    return f"{AUDIT}?{urlencode({'q': ' '.join(terms)})}"


def is_askable(href: str) -> bool:
    """Whether the line behind a link is one that the trail reads: there are bounds on how long it is."""
    try:
        parse(parse_qs(urlsplit(href).query)["q"][0])
    except Malformed:
        return False
    return True


def within(period: Period) -> dict[str, str]:
    """The words for a period: by days, and one that begins within a day by its hour."""
    if period.key == "24h":
        return {"since": period.begin.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")}
    zone = timezone.get_current_timezone()
    first = period.begin.astimezone(zone).date().isoformat()
    last = period.last.astimezone(zone).date().isoformat()
    return {"since": first, "until": last} if period.key == "custom" else {"since": first}


def on(day: date) -> dict[str, str]:
    return {"since": day.isoformat(), "until": day.isoformat()}


def _quoted(value: str) -> str:
    if value and not _NEEDS_QUOTES.search(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
