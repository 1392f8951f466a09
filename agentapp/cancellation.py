"""How a tool that is running learns that it should stop."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cancellation:
    """The calls of one drive that are running, and whether they have been told to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[threading.Event] = set()
        self._told = threading.Event()

    @contextmanager
    def call(self) -> Iterator[threading.Event]:
        """An event for the duration of one call, set when the call should stop."""
        event = threading.Event()
        with self._lock:
            self._running.add(event)
            if self._told.is_set():
                event.set()
        try:
            yield event
        finally:
            with self._lock:
                self._running.discard(event)

    def tell(self) -> None:
        """Tell every call that is running, and those that start after it."""
        with self._lock:
            self._told.set()
            for event in self._running:
                event.set()

    def pause(self, seconds: float) -> bool:
        """Wait between two attempts. True: told to stop meanwhile."""
        return self._told.wait(seconds)
