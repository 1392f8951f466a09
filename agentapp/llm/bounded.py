"""A provider's replies are no longer than a reply can be: whoever answers, memory and rows have room for so much."""

from collections.abc import AsyncIterator

import httpx2
from pydantic_ai.models import create_async_httpx2_client

MAX_REPLY_BYTES = 8 * 1024 * 1024
MAX_STREAM_BYTES = 8 * MAX_REPLY_BYTES
"""Of a reply in pieces, each of which comes wrapped; what is in them is measured by who reads them."""


class ReplyTooLong(Exception):
    """A reply is longer than anybody reads."""


def client(timeout: float) -> httpx2.AsyncClient:
    """The library's own client, proxies and all; only that it stops reading in time."""
    made = create_async_httpx2_client(timeout=httpx2.Timeout(timeout, connect=5))
    # What comes packed could be any size once unpacked.
    made.headers["Accept-Encoding"] = "identity"
    made.event_hooks = {**made.event_hooks, "response": [_bound]}
    return made


async def _bound(response: httpx2.Response) -> None:
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    packed = response.headers.get("content-encoding", "identity").lower() != "identity"
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream, 0 if packed else MAX_STREAM_BYTES if events else MAX_REPLY_BYTES)


class _Bounded(httpx2.AsyncByteStream):
    """At most so many bytes. What is packed though it was asked not to be is not read at all."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner, self._limit = inner, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > self._limit:
                raise ReplyTooLong
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
