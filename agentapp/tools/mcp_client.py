"""MCP servers, for threads that wait: connections are kept for each source, and opened anew when they are lost.

A list of tools, and a call that changes nothing, is asked for once more when a connection is lost under it. Any other
call has the tools listed first, so that a lost connection and a changed tool are found before anything is sent, and is
sent once. Where one is given up, for its deadline or because it was told to stop, the next goes over a new connection.
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
# Beyond a deadline: for the loop itself to answer.
GRACE_SECONDS = 2.0
MARGIN_SECONDS = 0.5
CLOSES_WITHIN = 5.0


class ToolChanged(Exception):
    """The server lists the tool otherwise than it was agreed to, so that nothing was sent."""


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
    """What a tool answers. `stop` is asked now and then and raises where nobody waits any more; the server is told.

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
    # A little less than the caller waits: who gives up here knows whether anything was sent.
    return _submit(answered, seconds - min(MARGIN_SECONDS, seconds / 10), stop)


def close_all() -> None:
    """Close every connection of this process, and stop the servers that were started for them."""

    async def closed(loop: EventLoop) -> None:
        connections = list(_pool(loop).values())
        _pool(loop).clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    if os.getpid() in _used_by:
        event_loop().submit(closed, CLOSES_WITHIN)


async def _checked_call(connection: Connection, wanted: Call) -> types.CallToolResult:
    with connection.used():  # from the list to the call: who gives it up meanwhile does not close it in between
        known = wanted.changes_nothing and wanted.fits_in(await connection.known_tools())
        if not known:  # a list that was kept may be old: not every server says that its tools have changed
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
    """Do something over a connection, and over a new one if the first is lost under it and it may be done again."""
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
    """Do something over a connection. Where it is given up, nothing else begins over that: its server may hang."""
    asking = asyncio.create_task(work(connection))
    try:
        await asyncio.wait([asking])
    except asyncio.CancelledError:
        connection.retire_soon()  # before that has ended: a server that hangs may not take the word of it
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        raise
    return await asking


async def _connected(loop: EventLoop, target: Target) -> Connection:
    """The source's connection, opened if there is none or it is to another target. Raises Unreachable."""
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
                mode = "legacy"  # an old server may wait for the old greeting
        await asyncio.sleep(FIRST_PAUSE_SECONDS * attempt)
    raise AssertionError("unreachable")


def _pool(loop: EventLoop) -> dict[str, Connection]:
    pool: dict[str, Connection] = loop.clients.setdefault("mcp", {})
    return pool


# The processes that have asked a server: a forked child has no connection of its parent's to close.
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
