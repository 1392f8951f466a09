"""Real threads that start together, each with its own database connection."""

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection

from tests.examples import TIMES

# A race is tried this often on PostgreSQL, where writers really meet. SQLite lets one in at a time. EXAMPLES=20 before
# pytest has each be tried twenty times as often.
TRIES = {"postgresql": 50 * (TIMES or 1), "sqlite": 10}


def tries() -> int:
    return TRIES[connection.vendor]


def few_tries() -> int:
    """For a race whose two sides meet on the same locks as one that is tried often."""
    return min(tries(), 20)


def race(*contenders: Callable[[], Any]) -> list[Any]:
    """Run all at once. Returns what each returned, or the exception it raised."""
    # Broken rather than waited at for ever, when one of them cannot even begin.
    barrier = threading.Barrier(len(contenders), timeout=60)
    results: list[Any] = [None] * len(contenders)

    def run(place: int, contender: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            barrier.wait()
            results[place] = contender()
        except Exception as error:
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
