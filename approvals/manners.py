"""How people want to be told. This app keeps none of it: `settings.NOTIFICATION_MANNERS` names the module that does.

That module has `manners` and `wanting`, as they stand here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from importlib import import_module

from django.conf import settings
from django.utils import timezone


@dataclass(frozen=True)
class Manners:
    """Of what one person is told by mail, when not, and whether a message names what would happen."""

    mailed: frozenset[str] = field(default_factory=frozenset)
    quiet: tuple[time, time] | None = None
    shows_arguments: bool = False
    least_risk: str = "low"
    """From which risk on they are told of what waits for a team."""


def manners(user_ids: Iterable[int]) -> dict[int, Manners]:
    """How each of these people wants to be told."""
    found: dict[int, Manners] = import_module(settings.NOTIFICATION_MANNERS).manners(user_ids)
    return found


def wanting(kind: str) -> dict[int, str]:
    """The people who have asked to be told of this kind by mail, each with the least risk they are told of."""
    found: dict[int, str] = import_module(settings.NOTIFICATION_MANNERS).wanting(kind)
    return found


def quiet_until(one: Manners, now: datetime) -> datetime | None:
    """When the quiet hours that `now` is in come to their end. None: it is in none. Times are those of TIME_ZONE."""
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
