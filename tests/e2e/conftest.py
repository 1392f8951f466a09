"""A real server and a real browser. Without Chromium these tests are skipped visibly; in CI they fail."""

import contextlib
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pytest
import uvicorn
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.asgi import get_asgi_application
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Route, expect, sync_playwright

from agentapp import asgi
from agentapp.live import close_streams

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# The same engine without a desktop browser's windows, tabs and services: a third less work.
HEADLESS = "chromium-headless-shell"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PASSWORD = "correct horse battery"
PROBE = re.compile(r"/healthz/\?intercepted$")
# How long to wait for what must come. The speed of the machine is not a property of the product.
PATIENCE_MS = 30_000
# The browser says this if a test was faster than the first paint, when focus moves to where the page wants it.
TYPED_FIRST = "Autofocus processing was blocked because a document already has a focused element."


def not_run(why: str) -> NoReturn:
    """Skip visibly; in CI, what could not be run counts as failed."""
    if os.environ.get("CI"):
        pytest.fail(f"NOT RUN: {why}")
    pytest.skip(f"NOT RUN: {why}")


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    expect.set_options(timeout=PATIENCE_MS)
    # Playwright keeps an event loop in this thread; our own queries are synchronous all the same.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as started:
            yield started
    finally:
        if before is None:
            os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE")


@contextlib.contextmanager
def launched(playwright: Playwright, names: Sequence[str]) -> Iterator[Browser]:
    """The first of these browsers that is installed."""
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        not_run(f"this test needs one of {', '.join(names)}")
    browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    with launched(playwright, (HEADLESS, *BROWSERS)) as browser:
        yield browser


class _Server(uvicorn.Server):
    """A server in a thread: it cannot handle signals, which belong to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """The console as it is served, on a port that stays the same when it is stopped and restarted."""

    def __init__(self) -> None:
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._running = _Server(uvicorn.Config(asgi.application, log_level="warning", timeout_graceful_shutdown=2))
        self._thread = threading.Thread(target=self._running.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not self._running.started:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)

    def stop(self) -> None:
        close_streams()
        self._running.should_exit = True
        self._thread.join(PATIENCE_MS / 1000)
        assert not self._thread.is_alive()


@pytest.fixture
def serving(transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Middleware reads its settings when it is created.
    monkeypatch.setattr(asgi, "django_application", get_asgi_application())
    served = Serving()
    yield served
    served.stop()
    connections.close_all()


@pytest.fixture
def server(serving: Serving) -> str:
    """The console's address."""
    return serving.url


@pytest.fixture
def complaints() -> list[str]:
    """What browsers have written to their consoles: blocked by the policy, thrown, not found."""
    return []


@pytest.fixture
def browse(chromium: Browser, server: str, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens a browser for one person: `browse(dana, "/inbox/", forced_colors="active")`."""
    contexts: list[BrowserContext] = []

    def open_page(user: User | None, path: str, width: int = 1440, height: int = 900, **options: Any) -> Page:
        size: Any = {"width": width, "height": height}
        context = chromium.new_context(**{"base_url": server, "viewport": size, "has_touch": width < 500, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(HEARD)
        if user is not None:
            client = Client()
            client.force_login(user)
            context.add_cookies([{"name": name, "value": m.value, "url": server} for name, m in client.cookies.items()])
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if TYPED_FIRST not in message.text else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def device(browse: Callable[..., Page], server: str) -> Callable[..., Page]:
    """A browser whose device has a passkey authenticator. It uses a host name, since an IP address has no passkeys."""

    def open_page(path: str) -> Page:
        page = browse(None, "about:blank", base_url=server.replace("127.0.0.1", "localhost"))
        session = page.context.new_cdp_session(page)
        session.send("WebAuthn.enable")
        options = {
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
            "isUserVerified": True, "automaticPresenceSimulation": True,
        }  # fmt: skip
        session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        page.goto(path)
        return page

    return open_page


# Whether a page's stream has told it to look at everything now, how many requests it has open, and whether it rests.
# The rest is timed after everything else that hears of the same event, so that a timer of the page's is due first.
HEARD = """
  const heard = window.heard = { told: false, asking: 0, rests: false }, asks = window.fetch;
  let resting;
  const rest = () => {
    heard.rests = false;
    clearTimeout(resting);
    resting = setTimeout(() => { resting = setTimeout(() => { heard.rests = true; }, 450); });
  };
  for (const what of ["htmx:after:swap", "input"]) document.addEventListener(what, rest, true);
  document.addEventListener("htmx:sse:before:connection", () => { heard.told = false; }, true);
  for (const topic of ["inbox", "runs", "run", "approval", "audit", "chat", "draft"])
    document.addEventListener(`${topic}-changed`, () => { heard.told = true; rest(); }, true);
  window.fetch = (...asked) => {
    heard.asking++;
    return asks(...asked).finally(() => { heard.asking--; rest(); });
  };
"""
LIVE = "() => heard.told && !heard.asking && heard.rests"


def live(page: Page) -> Page:
    """Wait until the page hears the stream, has looked at everything it may have missed, and accepts keys.

    The condition is a function, to be called repeatedly; text would be evaluated, which the page's policy forbids.
    """
    expect(page.locator("[data-live-words]:visible").first).to_have_text("Live")
    page.wait_for_function(LIVE)
    return page


# By the page's own clock, from when its scripts are loaded, which may be long after it is visible.
RESTED = """() => new Promise((done) => {
    const rest = () => setTimeout(done, 450);
    document.readyState === "complete" ? rest() : addEventListener("load", rest, { once: true });
})"""


def rested(page: Page) -> Page:
    """Wait until the page accepts keys, which rest for 400 ms after a page, or its subject, is shown."""
    page.evaluate(RESTED)
    return page


def kept(page: Page) -> list[str]:
    """The names of what a tab keeps, once the scripts of its page have forgotten what was sent."""
    page.wait_for_load_state()
    names: list[str] = page.evaluate("Object.keys(sessionStorage)")
    return names


def intercept(page: Page, url: str | re.Pattern[str], handler: Callable[[Route], object], **options: Any) -> None:
    """`page.route` that is in force when it returns, for an open page.

    Chromium reports that it intercepts slightly too early, and requests still pass meanwhile, so the page asks until
    one is intercepted.
    """
    page.route(url, handler, **options)
    page.route(PROBE, lambda route: route.fulfill(status=204))
    page.evaluate("async () => { while ((await fetch('/healthz/?intercepted')).status !== 204); }")
    page.unroute(PROBE)


def sent_signed_out(page: Page, url: str | re.Pattern[str], button: str, name: str) -> None:
    """Press a button when the session has just ended, and sign in again."""

    def sign_out(route: Route) -> None:
        Session.objects.all().delete()
        route.continue_()

    intercept(page, url, sign_out, times=1)  # before the page can hear of it
    page.get_by_role("button", name=button, exact=True).last.click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
