"""Call something that may hang, and go on when its time is up."""

import threading
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
    """Give this thread's connection back before waiting for the outside, so that others can use it meanwhile."""
    if not connection.in_atomic_block:
        connection.close()


class DeadlineExceeded(Exception):
    """No answer in time. The call may still be running, and may still have its effect."""


def start[T](function: Callable[..., T], *args: Any) -> Future[T]:
    """Run a call in a thread of its own. A thread cannot be killed; one that hangs is left behind.

    For a mocked run it is made here and now: a mock does not hang, and knows what would have.
    """
    return _started(function, args)


def within[T](seconds: float, function: Callable[..., T], *args: Any) -> T:
    """The result of a call, or DeadlineExceeded. Exceptions of the call itself pass through.

    Its connection to the database is its own, and is cut when nobody waits for it any more: a call that is slow, or
    hangs, keeps none from others.
    """
    if isolation.is_on():
        return function(*args)
    let_go_of_database()
    line = Line()
    future = _started(function, args, partial(outside_of_pool, line))
    try:
        return future.result(seconds)
    except FutureTimeoutError:
        if future.done():
            raise  # the call itself timed out and said so
        line.cut()
        raise DeadlineExceeded(f"no answer in {seconds:g} s") from None


def together[K, T](calls: Mapping[K, Callable[[], T]]) -> dict[K, T]:
    """What came of calls that are made at once, so many of them at a time, each in a thread of its own."""
    let_go_of_database()
    turns = threading.Semaphore(max(settings.PARALLEL_READS, 1))

    def in_turn(call: Callable[[], T]) -> T:
        with turns:
            return call()

    running = {key: start(in_turn, call) for key, call in calls.items()}
    return {key: future.result() for key, future in running.items()}


def _started[T](function: Callable[..., T], args: tuple[Any, ...], connected: Connected = nullcontext) -> Future[T]:
    """The call, made in a thread that is connected to the database in this way: by the pool where none is named."""
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

    threading.Thread(target=run, name=f"call-{getattr(function, '__name__', 'tool')}", daemon=True).start()
    return future
