"""MCP servers, for threads that wait. Each source has a connection that is kept, and reopened if it is lost.

If a connection is lost, a list of tools or a call that changes nothing is requested once more. Any other call is sent
only once, after listing the tools, so that a lost connection or a changed tool is found before anything is sent. After
a call was given up, at its deadline or because it was told to stop, the next uses a new connection.
"""

import asyncio
import atexit
import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import mcp_types as types

from agentapp.event_loop import EventLoop, event_loop
from agentapp.tools.mcp_connection import Call, Connection, Late, Listing, Lost, Mode, NotAllowed, SentOn, Unreachable
from agentapp.tools.mcp_target import Target

ATTEMPTS, FIRST_PAUSE_SECONDS = 3, 0.5
# Extra time beyond a deadline, for the loop itself to answer.
GRACE_SECONDS = 2.0
MARGIN_SECONDS = 0.5
CLOSES_WITHIN = 5.0


class ToolChanged(Exception):
    """The server lists a tool that differs from the accepted one, so nothing was sent."""


def list_tools(target: Target, seconds: float) -> Listing:
    """What a server offers now. Raises Unreachable, Refused, Lost."""

    async def listed(loop: EventLoop) -> Listing:
        try:
            async with asyncio.timeout(seconds):
                return await _twice(loop, target, lambda connection: connection.list_tools())
        except TimeoutError:
            raise Late(f"It did not list its tools within {seconds:g} s.") from None

    return _submit(listed, seconds + GRACE_SECONDS)


def call(target: Target, wanted: Call, until: datetime, stop: Callable[[], None]) -> types.CallToolResult:
    """What a tool answers. `stop` is called from time to time and raises if nobody waits any more; the server is told.

    Raises Unreachable, Refused, ToolChanged, Lost.
    """

    async def answered(loop: EventLoop) -> types.CallToolResult:
        return await _twice(
            loop,
            target,
            lambda connection: _checked_call(connection, wanted),
            lambda: wanted.changes_nothing or not wanted.sent,
        )

    seconds = max((until - datetime.now(UTC)).total_seconds(), 0)
    # A little less than the caller waits: giving up here, we still know whether anything was sent.
    return _submit(answered, seconds - min(MARGIN_SECONDS, seconds / 10), stop)


def close_all() -> None:
    """Close every connection of this process, and stop the servers started for them."""

    async def closed(loop: EventLoop) -> None:
        connections = list(_pool(loop).values())
        _pool(loop).clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    if os.getpid() in _used_by:
        event_loop().submit(closed, CLOSES_WITHIN)


async def _checked_call(connection: Connection, wanted: Call) -> types.CallToolResult:
    with connection.used():  # from the list to the call, so that nobody who gives it up closes it in between
        known = wanted.changes_nothing and wanted.fits_in(await connection.known_tools())
        if not known:  # a cached list may be out of date: not every server announces changes to its tools
            await connection.list_tools()
            if not wanted.fits_in(await connection.known_tools()):
                raise ToolChanged
        return await connection.call(wanted)


async def _twice[T](
    loop: EventLoop,
    target: Target,
    work: Callable[[Connection], Coroutine[Any, Any, T]],
    again: Callable[[], bool] = lambda: True,
) -> T:
    """Do something over a connection, and again over a new one if the first is lost and it may be repeated."""
    connection = await _connected(loop, target)
    try:
        return await _over(connection, work)
    except (NotAllowed, SentOn):
        raise
    except (Lost, Unreachable):
        if not again():
            raise
        connection.retire()
    return await _over(await _connected(loop, target), work)


async def _over[T](connection: Connection, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    """Do something over a connection. If it is given up, the connection is not reused: its server may hang."""
    asking = asyncio.create_task(work(connection))
    try:
        await asyncio.wait([asking])
    except asyncio.CancelledError:
        connection.retire_soon()  # before the work has ended: a hanging server may not accept its cancellation
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        raise
    return await asking


async def _connected(loop: EventLoop, target: Target) -> Connection:
    """The source's connection, opened if there is none or if it has another target. Raises Unreachable."""
    pool = _pool(loop)
    locks: dict[str, asyncio.Lock] = loop.clients.setdefault("mcp locks", {})
    async with locks.setdefault(target.source, asyncio.Lock()):
        kept = pool.get(target.source)
        if kept is not None and kept.usable and kept.target == target:
            return kept
        if kept is not None:
            kept.retire()
        pool[target.source] = await _opened(target)
        return pool[target.source]


async def _opened(target: Target) -> Connection:
    mode: Mode = "auto"
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await Connection.open(target, mode)
        except Unreachable as error:
            if error.final or attempt == ATTEMPTS:
                raise
            if error.timed_out:
                mode = "legacy"  # an old server may be waiting for the old greeting
        await asyncio.sleep(FIRST_PAUSE_SECONDS * attempt)
    raise AssertionError("unreachable")


def _pool(loop: EventLoop) -> dict[str, Connection]:
    pool: dict[str, Connection] = loop.clients.setdefault("mcp", {})
    return pool


# The processes that have asked a server: a forked child must not close its parent's connections.
_used_by: set[int] = set()


def _submit[T](
    work: Callable[[EventLoop], Coroutine[Any, Any, T]], seconds: float, stop: Callable[[], None] | None = None
) -> T:
    if os.getpid() not in _used_by:
        _used_by.add(os.getpid())
        atexit.register(close_all)
    try:
        return event_loop().submit(work, seconds, stop, every=0.1)
    except TimeoutError:
        raise Late("It did not answer in time.") from None
