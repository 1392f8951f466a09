"""How many examples each property is tried with. They are the same ones every time.

With EXAMPLES=20 set for pytest, it tries twenty times as many, drawn at random. Where SQLite has already tried them
all, as before PostgreSQL in `make test`, a fifth is enough, but at least twenty.
"""

import os
from typing import Any

from django.db import connection
from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("EXAMPLES", "0"))
FEW = 20
SHARE = 1 if TIMES or connection.vendor == "sqlite" else 5


def examples(number: int) -> Any:
    return settings(
        max_examples=max(number * (TIMES or 1) // SHARE, min(number, FEW)),
        derandomize=not TIMES,
        database=None,
        deadline=None,
        # Shrinking a failing example would take as long again, and these are small.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
