"""How many examples a property is tried with: the same ones each time.

EXAMPLES=20 before pytest draws twenty times as many, and others each time. Where all has been tried on SQLite before,
as on PostgreSQL in `make test`, a fifth has to do, or twenty.
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
        # Making one smaller that fails would take as long again, and those here are small.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
