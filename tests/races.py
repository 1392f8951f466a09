"""Real threads that start together, each with its own database connection."""

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction

from tests.examples import TIMES
from tests.processes import until

# How often a race is tried on PostgreSQL, where writers really meet; SQLite lets one in at a time. With EXAMPLES=20 set
# for pytest, each is tried twenty times as often.
TRIES = {"postgresql": 50 * (TIMES or 1), "sqlite": 10}


def tries() -> int:
    return TRIES[connection.vendor]


def few_tries() -> int:
    """For a race over the same locks as another that is tried often."""
    return min(tries(), 20)


def race(*contenders: Callable[[], Any]) -> list[Any]:
    """Run all at once. Returns what each returned, or the exception it raised."""
    # It breaks instead of waiting for ever if one of them cannot even begin.
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


class Meanwhile:
    """Wraps a function so that somebody else begins a change just before it: a row the caller holds delays it.

    `done` waits until the change is made. For PostgreSQL, where it can be under way at the same time.
    """

    def __init__(self, change: Callable[[], object], act: Callable[..., Any]) -> None:
        self._act = act
        self._other = threading.Thread(target=self._make, args=[change])

    def __call__(self, *given: Any) -> Any:
        self._other.start()
        met(self._other)
        return self._act(*given)

    def _make(self, change: Callable[[], object]) -> None:
        change()
        connection.close()

    def done(self) -> None:
        self._other.join(20)
        assert not self._other.is_alive()


class HeldUp:
    """Wraps a function that will wait for a lock somebody else holds. While it waits, a change is made and committed;
    then the lock is released. For PostgreSQL, where callers wait.

    `held` takes the lock; `done` fails if nothing was changed.
    """

    def __init__(self, held: Callable[[], object], change: Callable[[], object], act: Callable[..., Any]) -> None:
        self._hold, self._change, self._act = held, change, act
        self._has_it = threading.Event()
        self._other = threading.Thread(target=self._stand_in_the_way)
        self._changed = False

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._other.ident is None:
            self._other.start()
            assert self._has_it.wait(20)
        return self._act(*given, **named)

    def _stand_in_the_way(self) -> None:
        try:
            with transaction.atomic():
                self._hold()
                self._has_it.set()
                until(_somebody_waits, "somebody who waits for the lock")
                [made] = race(self._change)  # on its own connection
                self._changed = not isinstance(made, Exception)
        finally:
            connection.close()

    def done(self) -> None:
        self._other.join(20)
        assert self._changed


def met(other: threading.Thread) -> None:
    """Wait until somebody else has done their part, or waits for a lock that the caller holds. For PostgreSQL."""
    until(lambda: not other.is_alive() or _somebody_waits(), "the other to be done, or to wait for a lock")


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        # In a transaction, what was seen of others is kept otherwise.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        cursor.execute(waiting)
        return cursor.fetchone() is not None
