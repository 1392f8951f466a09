"""The stack as it runs in production: web server, worker and beat as processes, on PostgreSQL and Redis.

It is started once; between tests it keeps running and its tables are emptied.
"""

import http.server
import json
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from playwright.sync_api import Locator, Page

from agentapp import auth
from agentapp.models import Agent, Run
from approvals import ledger
from approvals.models import Approval, Event, Rule
from benchmarks.servers import free_port
from tests.conftest import empty_tables, install_tools
from tests.e2e.conftest import PASSWORD, not_run
from tests.faults.world import effects
from tests.processes import Processes, until
from tests.wire import DIALECTS, KEY, ProviderServer

MODEL = DIALECTS["openai"]
TOOLS = "tests.e2e.stack.tools"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")
            item.add_marker("redis")


class Stack:
    """Three processes. The web server can be stopped and started again on the same port, as in a deploy or a crash."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.world = folder / "world.jsonl"
        # The outside world: a model's provider, for agents that are not scripted.
        self.provider = ProviderServer()
        self._processes = Processes(
            folder,
            SECRET_KEY=django_settings.SECRET_KEY,
            TOOL_MODULES=TOOLS,
            UNDO_HOLD_SECONDS="1",
            BASE_URL=self.url,
            DATA_DIR=str(folder),
            WORLD=str(self.world),
            LOG_LEVEL="WARNING",
            NO_PROXY="127.0.0.1",
            **{MODEL.key_variable: KEY, MODEL.url_variable: self.provider.url + MODEL.url_path},
        )
        self._web: subprocess.Popen[bytes] | None = None
        self._processes.worker(threads=4)
        self._processes.beat()

    def start(self) -> None:
        """Serve, unless it already does."""
        if self._web is not None and self._web.poll() is None:
            return
        self._web = self._processes.start("manage.py", "serve", "--port", str(self._port))
        until(self._answers, "the server to answer")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """As in a deploy; with SIGKILL, as in a crash."""
        assert self._web is not None
        self._processes.end(self._web, how)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Another server answers at its address with 503 to everything, like a proxy with nothing behind it."""
        with http.server.ThreadingHTTPServer(("127.0.0.1", self._port), _Busy) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield
            server.shutdown()
            thread.join()

    def end(self) -> None:
        self._processes.end_all()
        self.provider.stop()

    def _answers(self) -> bool:
        assert self._web is not None
        assert self._web.poll() is None, "the server has died at its start"
        try:
            with urllib.request.urlopen(f"{self.url}/readyz/", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class _Busy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b"<h1>Busy</h1>")

    do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def processes(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if connection.vendor != "postgresql" or django_settings.EMBEDDED:
        not_run("the tests of the stack need PostgreSQL (DATABASE_URL) and Redis (REDIS_URL)")
    made = Stack(tmp_path_factory.mktemp("stack"))
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def hashed_password() -> str:
    """The server's hash of PASSWORD, made once, since hashing is slow on purpose."""
    return PBKDF2PasswordHasher().encode(PASSWORD, "salt" * 6)


@pytest.fixture
def stack(processes: Stack, transactional_db: None) -> Iterator[Stack]:
    """The running processes, on empty tables and in an empty world."""
    processes.world.unlink(missing_ok=True)
    processes.start()
    yield processes
    until(_emptied, "the tables to be emptied, and to stay so")


def _emptied() -> bool:
    """False if a process was in the way, or still wrote something: the rows it works on are gone."""
    try:
        empty_tables()
    except DatabaseError:
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND state <> 'idle'"
        )
        is_quiet = cursor.fetchone() == (0,)
    return is_quiet and not Run.objects.exists() and not Event.objects.exists()


@pytest.fixture
def server(stack: Stack) -> str:
    """The console's address: what `browse` opens."""
    return stack.url


class Desk:
    """An agent of this name; its runs are started over the API, as another system would."""

    def __init__(self, url: str, secret: str) -> None:
        self._url, self._secret = url, secret

    def start(self, *replies: dict[str, Any], **more: Any) -> Run:
        """Without replies the agent's model is asked."""
        body = {"agent": "desk", "input": "The kettle is broken.", "script": list(replies) or None, **more}
        headers = {"Authorization": f"Bearer {self._secret}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self._url}/api/v1/runs", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return Run.objects.get(pk=json.load(answer)["id"])
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def asks(self, *replies: dict[str, Any], **more: Any) -> Approval:
        """Start a run and wait until the worker has asked."""
        run = self.start(*replies, **more)
        until(lambda: Approval.objects.filter(run_id=run.pk).exists(), "the worker to ask")
        return Approval.objects.get(run_id=run.pk)


@pytest.fixture
def desk(
    stack: Stack, settings: Any, monkeypatch: pytest.MonkeyPatch,
    sam: User, dana: User, marco: User, hashed_password: str,
) -> Desk:  # fmt: skip
    """An agent that may refund, Sam's token to start it, and people who can sign in at the server."""
    monkeypatch.setenv("WORLD", str(stack.world))
    settings.TOOL_MODULES = [TOOLS]
    for user in (sam, dana, marco):
        user.password = hashed_password
        user.save()
    agent = Agent.objects.create(name="desk", instructions="Be exact.", driver="scripted", max_iterations=50)
    agent.tools.set(install_tools(TOOLS).values())
    Rule.objects.create(name="refunds", tool="refund", verdict="ask", risk="low")
    _, secret = auth.issue_token(sam, "tickets", ["runs:create"], ledger.SYSTEM)
    return Desk(stack.url, secret)


def state_of(run_id: Any) -> str:
    return str(Run.objects.values_list("state", flat=True).get(pk=run_id))


def finished(run_id: Any) -> None:
    """Wait until a run has succeeded, and check that its chain holds."""
    until(lambda: state_of(run_id) in Run.FINAL, "the run to end")
    assert state_of(run_id) == Run.State.SUCCEEDED
    assert ledger.verify(ledger.run_chain(run_id))[1] is None


def refunds() -> list[object]:
    """What has really happened: order and amount of each refund."""
    return [effect["item"] for effect in effects()]


# Where a decision in the inbox leads. What the page says of the hold may be out of date on a slow machine.
DECIDED = re.compile(r"/inbox/\?.*decided=")


def taken(page: Page) -> Locator:
    """What the page of a request shows its decider: that it is approved, or, if the hold was over first, by whom."""
    words = re.compile(r"Approved\. Runs in|, (Dana Whitfield|Marco Reyes), ")
    return page.locator(".decide", has_text=words)


def policy_complaints(complaints: list[str]) -> list[str]:
    """What browsers wrote, apart from connections and answers that a test made fail on purpose."""
    expected = re.compile(r"Failed to load resource|net::ERR_|\[htmx\]|fetch")
    return [words for words in complaints if not expected.search(words)]
