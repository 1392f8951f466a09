"""How the console writes text from outside, times, durations and money. No HTML."""

from datetime import datetime, timedelta
from decimal import Decimal

from django.utils import timezone

from approvals.amounts import amount_of
from approvals.visible import visible as visible


def duration(value: timedelta | float | None) -> str:
    """A length of time: "0.38 s", "45 s", "6:12" under an hour, "3 h", "2 d". None is a dash."""
    if value is None:
        return "—"
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    seconds = max(seconds, 0)
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)}:{int(seconds % 60):02d}"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h"
    return f"{int(seconds // 86400)} d"


def time_left(until: datetime, now: datetime, over: str = "time is up") -> str:
    """What a waiting person reads: minutes, hours or days; "6:12" in the last quarter of an hour; then `over`."""
    seconds = int((until - now).total_seconds())
    if seconds <= 0:
        return over
    if seconds < 15 * 60:
        return f"{seconds // 60}:{seconds % 60:02d}"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} d"


def over(since: datetime, now: datetime) -> str:
    """How late something is: "under a minute", "12 min", "3 h", "2 d"."""
    seconds = int((now - since).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "under a minute"


def moment(at: datetime) -> str:
    """A date with its year and local time, for a moment that may be long ago: "22 Nov 2026, 02:43"."""
    return timezone.localtime(at).strftime("%-d %b %Y, %H:%M")


def ago(then: datetime, now: datetime | None = None) -> str:
    """How long ago, in words: "just now", "4 s ago", "12 min ago", "3 h ago", "2 d ago"."""
    seconds = int(((now or timezone.now()) - then).total_seconds())
    if seconds < 2:
        return "just now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def money(value: object) -> str:
    """An amount in US dollars. Below a cent it keeps enough digits to mean something. None is a dash."""
    if value is None or value == "":
        return "—"
    amount = amount_of(value)
    if amount is None:
        return str(value)
    if amount and abs(amount) < Decimal("0.01"):
        return f"${amount:.4f}"
    return f"${amount:,.2f}"
