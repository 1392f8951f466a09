"""An MCP server as a process of ours: started with only the environment it is given, read a line at a time.

The SDK's own transport adds variables of this process to the environment and reads lines of any length.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agentapp.tools.credentials import redacted
from agentapp.tools.mcp_target import Command

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 4 * 1024 * 1024
# Of what it writes to its error output.
MAX_NOTE_BYTES = 64 * 1024
# How long a server has to exit by itself once its input has ended, and again once it is told to.
GOES_WITHIN, STOPS_WITHIN = 1.0, 1.0

type Incoming = SessionMessage | Exception
type Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead, OSError)


@asynccontextmanager
async def started(command: Command, ended: Callable[[str], None]) -> AsyncIterator[Streams]:
    """A running server and the two streams by which the SDK talks to it. `ended` is called with the reason at its end.

    Raises OSError if it cannot be started.
    """
    process = await anyio.open_process(
        list(command.words), env=dict(command.environment), cwd=command.folder, start_new_session=True
    )
    heard, reading = anyio.create_memory_object_stream[Incoming](0)
    writing, said = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_hear, process, heard, ended)
        group.start_soon(_say, process, said, heard)
        group.start_soon(_note, process, command)
        try:
            yield reading, writing
        finally:
            with anyio.CancelScope(shield=True):
                reading.close()
                writing.close()
                await _stop(process)
            group.cancel_scope.cancel()


async def _hear(process: Process, heard: MemoryObjectSendStream[Incoming], ended: Callable[[str], None]) -> None:
    """Pass on each line that is a message. The end of the output, or a line that never ends, ends the connection."""
    assert process.stdout is not None
    waiting, why = bytearray(), "The server has ended."
    try:
        async with heard:
            while True:
                chunk = await process.stdout.receive()
                looked_at = len(waiting)
                waiting += chunk
                while (end := waiting.find(b"\n", looked_at)) >= 0:
                    line, looked_at = bytes(waiting[:end]), 0
                    del waiting[: end + 1]
                    await _hand_on(line, heard)
                if len(waiting) > MAX_LINE_BYTES:
                    why = f"The server sent more than {MAX_LINE_BYTES} bytes at once and was stopped."
                    return
    except _GONE:
        return
    finally:
        ended(why)


async def _hand_on(line: bytes, heard: MemoryObjectSendStream[Incoming]) -> None:
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:  # a server may print what it likes; callers that wait for an answer have a deadline
        log.debug("An MCP server printed a line that is not a message")
        return
    await heard.send(SessionMessage(message))


async def _say(
    process: Process, said: MemoryObjectReceiveStream[SessionMessage], heard: MemoryObjectSendStream[Incoming]
) -> None:
    assert process.stdin is not None
    try:
        async with said:
            async for item in said:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(line.encode() + b"\n")
    except _GONE:
        # It reads nothing any more: callers that wait for it are told.
        await heard.aclose()


async def _note(process: Process, command: Command) -> None:
    """Read its error output, which would block it otherwise. Only whole lines are logged: part of a secret would not be
    recognised.
    """
    assert process.stderr is not None
    heard, is_whole = BufferedByteReceiveStream(process.stderr), True
    with suppress(*_GONE):
        while True:
            try:
                line = await heard.receive_until(b"\n", MAX_NOTE_BYTES)
            except anyio.DelimiterNotFound:
                heard, is_whole = BufferedByteReceiveStream(process.stderr), False
                continue
            if is_whole:
                log.debug("An MCP server says: %s", redacted(line.decode(errors="replace"), command.secrets))
            is_whole = True


async def _stop(process: Process) -> None:
    """End it and everything it started: first by closing its input, then with a signal, then by force."""
    assert process.stdin is not None
    with suppress(*_GONE):
        await process.stdin.aclose()
    await _has_gone(process)
    await terminate_posix_process_tree(process, STOPS_WITHIN)
    await _has_gone(process)


async def _has_gone(process: Process) -> None:
    """Wait until it has gone, within GOES_WITHIN. Not with `wait`, which waits for all who hold its output open."""
    with anyio.move_on_after(GOES_WITHIN):
        while process.returncode is None:
            await anyio.sleep(0.01)
