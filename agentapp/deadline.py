"""Call something that may hang, and go on when its time is up."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from django.db import connection, connections

from agentapp import isolation, logs


def let_go_of_database() -> None:
    """Give this thread's connection back before waiting for the outside, so that others can use it meanwhile."""
    if not connection.in_atomic_block:
        connection.close()


class DeadlineExceeded(Exception):
    """No answer in time. The call may still be running, and may still have its effect."""


def start[T](function: Callable[..., T], *args: Any) -> Future[T]:
    """Run a call in a thread of its own. A thread cannot be killed; one that hangs is left behind.

    For a mocked run it is made here and now: a mock does not hang, and knows what would have.
    """
    future: Future[T] = Future()
    if isolation.is_on():
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        return future
    belongs_to = logs.ids()

    def run() -> None:
        logs.bind(**belongs_to)
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        finally:
            connections.close_all()

    threading.Thread(target=run, name=f"call-{getattr(function, '__name__', 'tool')}", daemon=True).start()
    return future


def within[T](seconds: float, function: Callable[..., T], *args: Any) -> T:
    """The result of a call, or DeadlineExceeded. Exceptions of the call itself pass through."""
    if isolation.is_on():
        return function(*args)
    let_go_of_database()
    future = start(function, *args)
    try:
        return future.result(seconds)
    except FutureTimeoutError:
        if future.done():
            raise  # the call itself timed out and said so
        raise DeadlineExceeded(f"no answer in {seconds:g} s") from None
