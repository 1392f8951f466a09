"""How many requests a token may make. All web processes count together, in the shared cache."""

import math
import time

from django.conf import settings
from django.core.cache import cache

from agentapp.api.errors import ApiProblem
from agentapp.models import ApiToken

_MINUTE = 60


def limit(token: ApiToken) -> None:
    """Count one more request in this minute. Raises ApiProblem if there have been too many."""
    most = settings.API_REQUESTS_PER_MINUTE
    if not most:
        return
    now = time.time()
    key = f"api-requests:{token.pk}:{int(now // _MINUTE)}"
    try:
        made = cache.incr(key)
    except ValueError:  # the first of this minute, or one of several
        made = 1 if cache.add(key, 1, 2 * _MINUTE) else cache.incr(key)
    if made > most:
        wait = max(1, math.ceil(_MINUTE - now % _MINUTE))
        raise ApiProblem(
            "too_many_requests",
            f"This token has already made {most} requests in this minute. Try again in {wait} s.",
            headers={"Retry-After": str(wait)},
        )
