"""ASGI entry point: the live stream is answered here, everything else by Django."""

import asyncio
import os
from collections.abc import MutableMapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application

from agentapp import secret_key

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")

django_application = get_asgi_application()
secret_key.demand()
# Every page is loaded now, and not when the first is asked for.
import_module(settings.ROOT_URLCONF)

# Imports models, which exist only once Django is set up.
from agentapp import live  # noqa: E402
from agentapp.api import customer_stream  # noqa: E402

# Far above what a form or a call of the API holds, which Django refuses in words; and a document to import, with what
# is typed beside it.
MOST_BYTES = 24 * 1024 * 1024
TOO_LARGE = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]


async def application(scope: live.Scope, receive: live.Receive, send: live.Send) -> None:
    if scope["type"] == "lifespan":
        await live.lifespan(receive, send)
    elif scope["type"] == "http" and scope["path"] == live.PATH:
        await live.stream(scope, receive, send)
    elif scope["type"] == "http" and customer_stream.serves(scope["path"]):
        await customer_stream.stream(scope, receive, send)
    else:
        await django_application(scope, *undisturbed(receive, send))  # type: ignore[arg-type]


def undisturbed(receive: live.Receive, send: live.Send) -> tuple[live.Receive, live.Send]:
    """The same channel, on which nobody hears that a client has gone before its request has an answer.

    Django would give the request up in the middle, and leave the thread that works on it with a connection to the
    database that nobody gives back: after as many of them as the pool has, the process answers nobody any more. A
    page is put together in less time than it would take to stop it; a file is sent piece by piece, and then it stops.

    A request that is larger than any may be is refused here: Django would keep all of it in a file first, of whomever.
    """
    answered = asyncio.Event()
    is_whole, size = False, 0

    async def heard() -> MutableMapping[str, Any]:
        nonlocal is_whole, size
        message = await receive()
        if message["type"] == "http.request":
            is_whole = not message.get("more_body", False)
            size += len(message.get("body", b""))
            if size > MOST_BYTES and not answered.is_set():
                await said({"type": "http.response.start", "status": 413, "headers": TOO_LARGE})
                await said({"type": "http.response.body", "body": b"The request is too large.\n"})
                return {"type": "http.disconnect"}
        elif is_whole:
            await answered.wait()
        return message

    async def said(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answered.set()
        await send(message)

    return heard, said
