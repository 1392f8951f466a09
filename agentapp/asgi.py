"""ASGI entry point: the live stream is answered here, everything else by Django."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")

django_application = get_asgi_application()

# Imports models, which exist only once Django is set up.
from agentapp import live  # noqa: E402
from agentapp.api import customer_stream  # noqa: E402


async def application(scope: live.Scope, receive: live.Receive, send: live.Send) -> None:
    if scope["type"] == "lifespan":
        await live.lifespan(receive, send)
    elif scope["type"] == "http" and scope["path"] == live.PATH:
        await live.stream(scope, receive, send)
    elif scope["type"] == "http" and customer_stream.serves(scope["path"]):
        await customer_stream.stream(scope, receive, send)
    else:
        await django_application(scope, receive, send)  # type: ignore[arg-type]
