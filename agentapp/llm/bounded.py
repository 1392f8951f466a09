"""Limits the length of a provider's replies: whoever answers, memory and rows have room for only so much."""

from collections.abc import AsyncIterator

import httpx2
from pydantic_ai.models import create_async_httpx2_client

MAX_REPLY_BYTES = 8 * 1024 * 1024
MAX_STREAM_BYTES = 8 * MAX_REPLY_BYTES
"""For a streamed reply, whose pieces each come wrapped. Their contents are measured by the code that reads them."""


TOO_LONG = "the model's reply is too long"
PACKED = "the provider sends a compressed reply, although it was asked not to"


class Unread(Exception):
    """A reply was not read. The message says why, as the end of a sentence about the model."""


def client(timeout: float) -> httpx2.AsyncClient:
    """The library's own client, including its proxies, except that it stops reading beyond a limit."""
    made = create_async_httpx2_client(timeout=httpx2.Timeout(timeout, connect=5))
    # A compressed reply could be any size once decompressed.
    made.headers["Accept-Encoding"] = "identity"
    made.event_hooks = {**made.event_hooks, "response": [_bound]}
    return made


async def _bound(response: httpx2.Response) -> None:
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    packed = response.headers.get("content-encoding", "identity").lower() != "identity"
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    limit, why = (0, PACKED) if packed else (MAX_STREAM_BYTES if events else MAX_REPLY_BYTES, TOO_LONG)
    # For an error, the status says enough.
    response.stream = _Bounded(response.stream, limit, "" if response.is_error else why)


class _Bounded(httpx2.AsyncByteStream):
    """At most `limit` bytes. `why`: the reason not to read more, which is raised. Empty: the stream just ends there."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, why: str) -> None:
        self._inner, self._limit, self._why = inner, limit, why

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > self._limit:
                if self._why:
                    raise Unread(self._why)
                return
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
