"""The REST API as a check uses it: sends requests, waits, and reports what was not as promised."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

PATIENCE_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.1


class CheckFailed(Exception):
    """The product did not do what it promises. The message says what was seen."""


class Client:
    """The REST API as one token sees it."""

    def __init__(self, url: str, secret: str) -> None:
        self._address = urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask("POST", path, json.dumps(body))

    def _ask(self, method: str, path: str, body: str | None) -> Any:
        link = http.client.HTTPConnection(self._address, timeout=30)
        try:
            link.request(method, f"/api/v1{path}", body, self._headers)
            response = link.getresponse()
            text = response.read().decode()
        except OSError as error:
            raise CheckFailed(f"{method} {path} got no answer: {error}") from error
        finally:
            link.close()
        if not 200 <= response.status < 300:
            raise CheckFailed(f"{method} {path} was answered with {response.status}: {text[:500]}")
        return json.loads(text)


def wait_for[T](what: str, look: Callable[[], T]) -> T:
    """The first truthy value of `look`. Raises CheckFailed if there is none in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise CheckFailed(f"Waited {PATIENCE_SECONDS:.0f} s in vain for {what}.")
        time.sleep(LOOK_EVERY_SECONDS)
    return seen
