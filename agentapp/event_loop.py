"""One event loop per process for all communication with model providers and MCP servers.

A client's connections belong to the loop they were opened in. If each thread had its own loop, they would break each
other's connections; a client per request would leak them.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any


class EventLoop:
    """A loop in its own thread, and the clients whose connections live in it."""

    def __init__(self) -> None:
        self.clients: dict[Any, Any] = {}
        """Read and written only inside the loop, so it needs no lock."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit[T](
        self,
        work: Callable[["EventLoop"], Coroutine[Any, Any, T]],
        timeout: float,
        meanwhile: Callable[[], None] | None = None,
        every: float = 0.3,
    ) -> T:
        """Run `work` in the loop and wait for it, calling `meanwhile` in this thread every so many seconds.

        Raises TimeoutError if the loop itself does not answer.
        """
        until = time.monotonic() + timeout
        future = asyncio.run_coroutine_threadsafe(work(self), self._running())
        try:
            while meanwhile is not None and time.monotonic() + every < until:
                try:
                    return future.result(every)
                except TimeoutError:
                    if future.done():  # it has ended just now, or it timed out itself and says so
                        break
                meanwhile()
            return future.result(max(0.0, until - time.monotonic()))
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="connections", daemon=True).start()
            return self._loop


_loops: dict[int, EventLoop] = {}


def event_loop() -> EventLoop:
    """This process's loop. A forked child gets its own, because the parent's thread does not exist there."""
    return _loops.setdefault(os.getpid(), EventLoop())
