"""Answers of an MCP server that are not results, whichever protocol version is spoken.

Before 2026-07-28 the protocol had no answer that asks for more input. On a connection with an older protocol, the SDK
strips the marker of such an answer, and what is left can look like a result.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCResponse

from agentapp.tools.mcp_http import Trouble

ASKS = "It asks for more input before it answers, which is not supported here."


@asynccontextmanager
async def told_apart(transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[tuple[Any, Any]]:
    """The same transport, with such answers turned into errors."""
    async with transport as (reading, writing):
        yield _Reading(reading), writing


class _Reading:
    """The stream that the SDK reads; each message is inspected first."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, if the stream knows it."""
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
