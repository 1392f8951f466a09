"""A real server and a real browser. Without Chromium these tests are skipped aloud; in CI they fail."""

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
import uvicorn
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from agentapp import asgi, live

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
PASSWORD = "correct horse battery"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        missing = f"NOT RUN: the browser tests need one of {', '.join(BROWSERS)}"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    # Playwright keeps an event loop in this thread; our queries beside it are synchronous all the same.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
            yield browser
            browser.close()
    finally:
        if before is None:
            os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE")


class _Server(uvicorn.Server):
    """A server in a thread: signals belong to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture
def server(transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The console as it is served, on a free port. Its address."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Middleware reads its settings when it is made.
    monkeypatch.setattr(asgi, "django_application", get_asgi_application())
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(asgi.application, log_level="warning", timeout_graceful_shutdown=2)
    running = _Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not running.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    live.close_streams()
    running.should_exit = True
    thread.join(10)
    assert not thread.is_alive()
    connections.close_all()


@pytest.fixture
def complaints() -> list[str]:
    """What browsers have written to their consoles: blocked by the policy, thrown, not found."""
    return []


@pytest.fixture
def browse(chromium: Browser, server: str, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens a browser of its own for a person: `browse(dana, "/inbox/", color_scheme="dark")`."""
    contexts: list[BrowserContext] = []

    def open_page(user: User | None, path: str, width: int = 1440, height: int = 900, **options: Any) -> Page:
        context = chromium.new_context(
            base_url=server, viewport={"width": width, "height": height}, has_touch=width < 500, **options
        )
        contexts.append(context)
        context.set_default_timeout(10_000)
        if user is not None:
            client = Client()
            client.force_login(user)
            context.add_cookies([{"name": name, "value": m.value, "url": server} for name, m in client.cookies.items()])
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()


def violations(page: Page) -> list[str]:
    """What axe finds wrong with a page as it stands."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")["violations"]
    return [f"{item['id']}: {[node['target'] for node in item['nodes']][:3]}" for item in found]
