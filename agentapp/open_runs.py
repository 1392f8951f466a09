"""How many runs one person may have under way at once, so that nobody alone fills the workers' queue and the inbox."""

from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache

from agentapp.models import Run
from agentapp.refused import Refused

# Counting thousands of rows is not free, so starts are added up in between. Runs that end count until the next time.
KEPT_SECONDS = 10
_OPEN = [state for state in Run.State if state not in Run.FINAL]
CODE = "too_many_runs"


def limit(user: User) -> None:
    """Count one more run that this person wants to start, with whichever token. Raises Refused if that is too many."""
    most = settings.OPEN_RUNS_PER_PERSON
    if not most:
        return
    key = f"open-runs:{user.pk}"
    try:
        under_way = cache.incr(key)
    except ValueError:
        under_way = 0
    # At most 1: not known, or forgotten just as it was added to. Beyond the limit a run may have ended just now.
    if not 1 < under_way <= most:
        under_way = _count(user, most) + 1
        cache.set(key, under_way, KEPT_SECONDS)
    if under_way > most:
        raise Refused(
            CODE,
            f"{most:,} of your runs have not ended, as many as one person may have. Cancel some, or try again later.",
        )


def _count(user: User, most: int) -> int:
    """Up to `most`. Runs that agents ask for are bounded by their family's size; mocked ones wait for nobody."""
    under_way = Run.objects.filter(starter=user, state__in=_OPEN, parent__isnull=True, mocks__isnull=True)
    return under_way.order_by()[:most].count()
