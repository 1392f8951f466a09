"""ASGI entry point: the live stream is answered here, everything else by Django."""

import asyncio
import os
from collections.abc import MutableMapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application

from agentapp import postgresql, secret_key

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")

django_application = get_asgi_application()
secret_key.demand()
postgresql.limit_statements()
# Load every page now, rather than at the first request.
import_module(settings.ROOT_URLCONF)

# These import models, which exist only once Django is set up.
from agentapp import live  # noqa: E402
from agentapp.api import customer_stream  # noqa: E402

# Far above what Django itself refuses, in words, of a form or an API call; and above a document to import with the
# fields typed next to it.
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
    """The same channel, but Django does not hear that a client has gone until its request has an answer.

    Otherwise Django would give up the request in the middle and leave its thread holding a database connection that
    nobody returns. Once the pool's connections are all lost this way, the process answers nobody. Building a page takes
    less time than stopping it would. A file is sent piece by piece, and stops when the client has gone.

    A request over the limit is refused here: Django would first store all of it in a file, whoever sent it.
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
