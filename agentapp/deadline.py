"""Calls something that may hang, and goes on when its time is up."""

import threading
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection, connections

from agentapp import isolation, logs
from agentapp.own_connection import Line, outside_of_pool

Connected = Callable[[], AbstractContextManager[None]]


def let_go_of_database() -> None:
    """Return this thread's connection before waiting for something outside, so that others can use it meanwhile."""
    if not connection.in_atomic_block:
        connection.close()


class DeadlineExceeded(Exception):
    """No answer in time. The call may still be running, and may still have its effect."""


class Quit(Exception):
    """The call tried to end its program, as `sys.exit` does, or its task. Only its own thread has ended."""


def start[T](function: Callable[..., T], *args: Any) -> Future[T]:
    """Run a call in its own thread. A thread cannot be killed; one that hangs is left behind.

    For a mocked run, the call is made directly: a mock does not hang, and knows what would have.
    """
    return _started(function, args)


def within[T](seconds: float, function: Callable[..., T], *args: Any) -> T:
    """The result of a call, or DeadlineExceeded. Exceptions of the call itself pass through.

    The call has its own database connection, which is cut when nobody waits any more: a slow or hanging call takes none
    from others. Raises Quit if the call tried to end the worker, which would lose every run it holds.
    """
    if isolation.is_on():
        return function(*args)
    let_go_of_database()
    line = Line()
    future: Future[T] = _started(_contained, (function, *args), partial(outside_of_pool, line))
    try:
        return future.result(seconds)
    except FutureTimeoutError:
        if not future.done():
            line.cut()
            raise DeadlineExceeded(f"no answer in {seconds:g} s") from None
    # It has ended just now, or it timed out itself and says so.
    return future.result()


def _contained[T](function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except (SystemExit, KeyboardInterrupt, CancelledError) as error:
        raise Quit(f"it raised {type(error).__name__}") from error


def together[K, T](calls: Mapping[K, Callable[[], T]]) -> dict[K, T]:
    """The results of calls made in parallel, each in its own thread, with a limit on how many run at a time."""
    let_go_of_database()
    turns = threading.Semaphore(max(settings.PARALLEL_READS, 1))

    def in_turn(call: Callable[[], T]) -> T:
        with turns:
            return call()

    running = {key: start(in_turn, call) for key, call in calls.items()}
    return {key: future.result() for key, future in running.items()}


def _started[T](function: Callable[..., T], args: tuple[Any, ...], connected: Connected = nullcontext) -> Future[T]:
    """The call, made in a thread that is connected to the database as given: through the pool by default."""
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
            with connected():
                try:
                    future.set_result(function(*args))
                except BaseException as error:
                    future.set_exception(error)
        finally:
            connections.close_all()

    threading.Thread(target=run, name="call", daemon=True).start()
    return future
