"""Answers of an MCP server that are no results, whatever protocol is spoken.

Before 2026-07-28 the protocol had no answer that asks for something in between. On a connection of an older protocol
the SDK takes the word that says so off an answer, and what is left can look like a result.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCResponse

from agentapp.tools.mcp_http import Trouble

ASKS = "It asks for something in between, which nobody gives it here."


@asynccontextmanager
async def told_apart(transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[tuple[Any, Any]]:
    """The same transport; such an answer comes over it as the error that it is here."""
    async with transport as (reading, writing):
        yield _Reading(reading), writing


class _Reading:
    """The stream that the SDK reads, with each message looked at first."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        """In which the message read last was sent, where the stream knows."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return _told(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return _told(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        handled: bool | None = await self._inner.__aexit__(kind, raised, trace)
        return handled


def _told(heard: Any) -> Any:
    message = heard.message if isinstance(heard, SessionMessage) else None
    if not isinstance(message, JSONRPCResponse) or message.result.get("resultType") != "input_required":
        return heard
    error = ErrorData(code=Trouble.REFUSED, message=ASKS)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error), heard.metadata)
