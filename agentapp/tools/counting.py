"""What a tool counts while it works, and where it must stop: after so many rows, recipients or dollars."""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

MAX_AT_ONCE = 1_000_000_000


class LimitReached(Exception):
    """One more would exceed a limit. What was counted before has been done; the tool ends here.

    A tool may catch this to report what it has done, but it cannot go on: every further count raises it again.
    """

    def __init__(self, kind: str, done: Mapping[str, int]) -> None:
        so_far = ", ".join(f"{number} {name}" for name, number in sorted(done.items())) or "nothing"
        super().__init__(f"It stopped at the limit of {kind}: {so_far} done, and no more.")
        self.kind, self.done = kind, dict(done)


class Counter:
    """Counts for one attempt at a call, within the tool's limits for one call and what its grant has left."""

    def __init__(
        self, limits: Mapping[str, int] = MappingProxyType({}), take: Callable[[str, int], bool] = lambda kind, n: True
    ) -> None:
        self._limits, self._take = limits, take
        self._lock = threading.Lock()
        self.done: dict[str, int] = {}
        self.stopped_at = ""

    def count(self, kind: str, number: int) -> None:
        """Count what is about to be done. If this raises LimitReached, it must not be done."""
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_AT_ONCE:
            raise ValueError(f"A tool counts whole numbers from 0, not {number!r}.")
        with self._lock:
            done = self.done.get(kind, 0)
            within = kind not in self._limits or done + number <= self._limits[kind]
            if self.stopped_at or not within or not self._take(kind, number):
                self.stopped_at = self.stopped_at or kind
                raise LimitReached(self.stopped_at, self.done)
            self.done[kind] = done + number

    @property
    def facts(self) -> dict[str, Any]:
        """For the record of the call. Empty if it counted nothing and was not stopped."""
        with self._lock:
            stopped = {"stopped_at": self.stopped_at} if self.stopped_at else {}
            return {"counted": dict(self.done), **stopped} if self.done or stopped else {}
