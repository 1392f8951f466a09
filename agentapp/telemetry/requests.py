"""Times each request and gives it an id, which its response, its log lines and the tasks it leads to carry."""

import secrets
import time
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from agentapp import logs
from agentapp.telemetry import counting

HEADER = "X-Request-ID"
# Clients can send any method name.
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
# The ids in addresses that log lines carry.
_IN_PATHS = {"run_id": "run", "approval_id": "approval", "execution_id": "execution"}


class Requests:
    """Middleware, around all others."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        id = logs.safe_id(request.headers.get(HEADER, "")) or secrets.token_hex(16)
        request.request_id = id  # type: ignore[attr-defined]
        begun = time.monotonic()
        belongs_to: dict[str, logs.Id] = {"request": id, "user": lambda: _user(request)}
        belongs_to |= {name: _reader(request, argument) for argument, name in _IN_PATHS.items()}
        request.log_ids = belongs_to  # type: ignore[attr-defined]
        with logs.bound(**belongs_to):
            response = self._get_response(request)
        response.headers[HEADER] = id
        match = request.resolver_match
        method = request.method if request.method in _METHODS else counting.OTHER
        view = match.view_name or match.route if match else "none"
        counting.requests.labels(method, view, str(response.status_code)).observe(time.monotonic() - begun)
        return response


def _reader(request: HttpRequest, argument: str) -> Callable[[], str]:
    def read() -> str:
        match = request.resolver_match
        return str(match.kwargs.get(argument, "")) if match else ""

    return read


def _user(request: HttpRequest) -> str:
    """The user's key, if it is already known: a log line is no reason to look it up."""
    known: Any = getattr(request, "_cached_user", None)
    token: Any = getattr(request, "auth", None)
    key = getattr(known, "pk", None) or getattr(token, "user_id", None)
    return f"user:{key}" if key else ""
