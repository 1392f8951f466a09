"""Files that are generated while they are sent, so that they are never in memory as a whole."""

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse


def attachment[Piece: (bytes, str)](
    request: HttpRequest, pieces: Iterator[Piece], name: str, content_type: str
) -> StreamingHttpResponse:
    """A file to save under a name. The iterator may read the database; it is closed with the response."""
    # Under ASGI Django would collect a plain iterator before it sent the first byte.
    is_awaited = isinstance(request, ASGIRequest)
    answer = StreamingHttpResponse(_one_by_one(pieces) if is_awaited else pieces, content_type=content_type)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"
    return answer


async def _one_by_one[Piece: (bytes, str)](pieces: Iterator[Piece]) -> AsyncIterator[Piece]:
    following = sync_to_async(lambda: next(pieces, None), thread_sensitive=True)
    while (piece := await following()) is not None:
        yield piece
