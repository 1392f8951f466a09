"""How people want to be told. This app stores none of it: `settings.NOTIFICATION_MANNERS` names the module that does.

That module has `manners` and `wanting` with these signatures.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from importlib import import_module

from django.conf import settings
from django.utils import timezone

# The ways to reach one person that are sent from here.
MAIL, CHAT = "mail", "chat"
AT_ONCE, HOURLY, DAILY = "at_once", "hourly", "daily"


@dataclass(frozen=True)
class Manners:
    """What one person is told of, in which ways, when not, and whether a message names what would happen."""

    mailed: frozenset[str] = field(default_factory=frozenset)
    quiet: tuple[time, time] | None = None
    shows_arguments: bool = False
    least_risk: str = "low"
    """The lowest risk at which they are told of what waits for a team."""
    chatted: frozenset[str] = field(default_factory=frozenset)
    chat_name: str = ""
    """Their name in the service behind the channel for individual people."""
    rhythm: str = AT_ONCE
    """How often mail about what waits for a team is sent and, if daily, at what time."""
    rhythm_at: time | None = None
    follow_ups: bool = False
    """Whether a second message says what became of a request they were told of."""

    def ways(self, kind: str) -> frozenset[str]:
        """The ways they are told of this kind of news."""
        chats = kind in self.chatted and self.chat_name
        return frozenset(way for way, told in ((MAIL, kind in self.mailed), (CHAT, chats)) if told)


@dataclass(frozen=True)
class Wish:
    """How somebody wants to be told of a kind of news, and from which risk on."""

    ways: frozenset[str]
    least_risk: str


def manners(user_ids: Iterable[int]) -> dict[int, Manners]:
    """How each of these people wants to be told."""
    found: dict[int, Manners] = import_module(settings.NOTIFICATION_MANNERS).manners(user_ids)
    return found


def wanting(kind: str) -> dict[int, Wish]:
    """The people who have asked to be told of this kind, by mail or chat."""
    found: dict[int, Wish] = import_module(settings.NOTIFICATION_MANNERS).wanting(kind)
    return found


def last_due(one: Manners, now: datetime) -> datetime | None:
    """The last moment at which their mail about waiting requests was due, in TIME_ZONE. None: it is sent at once."""
    local = timezone.localtime(now)
    if one.rhythm == HOURLY:
        return local.replace(minute=0, second=0, microsecond=0)
    if one.rhythm != DAILY:
        return None
    at = one.rhythm_at or time(8)
    today = timezone.make_aware(datetime.combine(local.date(), at))
    return today if today <= now else timezone.make_aware(datetime.combine(local.date() - timedelta(days=1), at))


def quiet_until(one: Manners, now: datetime) -> datetime | None:
    """When the quiet hours around `now` end. None: it is not in quiet hours. Times are in TIME_ZONE."""
    if one.quiet is None:
        return None
    begin, end = one.quiet
    local = timezone.localtime(now)
    clock = local.time()
    within = begin <= clock < end if begin < end else clock >= begin or clock < end
    if not within:
        return None
    day = local.date() if clock < end else local.date() + timedelta(days=1)
    return timezone.make_aware(datetime.combine(day, end))
