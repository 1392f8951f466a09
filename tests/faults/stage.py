"""The product as it runs in production, on servers of the tests' own: they are stopped, cut, filled and restarted.

Nothing here touches the PostgreSQL and Redis that other tests share. Commits really wait for the disk.
"""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connections
from django.test import Client
from django.utils.html import escape

from agentapp import auth
from agentapp.models import Agent, Tool
from agentapp.roles import ensure_roles
from agentapp.settings import database
from approvals import configuration, ledger
from approvals.models import Rule
from benchmarks.servers import Postgres, Redis, free_port
from tests.faults.outside import Outside
from tests.processes import Processes, until

SECRET_KEY = "of-the-fault-tests-" * 4
SHOP = "tests.faults.shop"
DATABASE = "shop"
# With its own defaults: fsync and synchronous_commit are on.
SETTINGS = {"listen_addresses": "127.0.0.1", "max_connections": "100"}
# How much of the full form to run: FAULTS=full, or a share of it as in FAULTS=0.3. By default the shortened form.
SHARE = float(os.environ.get("FAULTS", "0").replace("full", "1"))


def times(shortened: int, full: int) -> int:
    """How often to do something: in the shortened form, and in the full one."""
    return max(shortened, round(full * SHARE))


@dataclass(frozen=True)
class Stage:
    folder: Path
    postgres: Postgres
    redis: Redis
    tokens: dict[str, str]

    @property
    def world(self) -> Path:
        return self.folder / "world.jsonl"

    def statement(self, text: str, *values: Any, database: str = DATABASE) -> list[Any]:
        """What a database administrator does on the side, exempt from every limit."""
        with psycopg.connect(self.postgres.url(database), autocommit=True, connect_timeout=10) as connection:
            found = connection.execute(text.encode(), list(values) or None)
            return found.fetchall() if found.description else []

    @contextmanager
    def cutting_off(self, calls: set[UUID]) -> Iterator[None]:
        """Something breaks inside: add the calls that are under way at any moment of it. Nobody may know later whether
        these took effect.
        """
        [(began,)] = self.statement("SELECT now()")
        calls |= self.under_way()
        yield
        calls |= self.under_way(began)

    def under_way(self, since: datetime | None = None) -> set[UUID]:
        """Calls that have begun and are not recorded as done, and those begun since then whose outcome is unknown."""
        with psycopg.connect(self.postgres.url(DATABASE)) as connection:
            # A commit that a dead process has sent may still wait for the disk: wait for all that change calls.
            connection.execute("LOCK TABLE agentapp_toolexecution IN SHARE MODE")
            lost = "state = 'outcome_unknown' AND started_at >= %s"
            begun = f"SELECT id FROM agentapp_toolexecution WHERE state = 'executing' OR {lost}"
            return {key for (key,) in connection.execute(begun.encode(), [since])}


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Both servers, with the tables, the tools, an agent and people in them."""
    folder.chmod(0o755)  # PostgreSQL may run as somebody else
    postgres, broker = Postgres(folder, SETTINGS), Redis(folder, "--maxmemory-policy", "noeviction")
    try:
        postgres.start()
        broker.start()
        with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
            # The product's role owns nothing, so that what an administrator forbids it stays forbidden.
            connection.execute("CREATE ROLE product LOGIN IN ROLE pg_read_all_stats")
            connection.execute("CREATE ROLE owner LOGIN")
            connection.execute(f"ALTER DATABASE {DATABASE} OWNER TO owner")
        made = Stage(folder, postgres, broker, {})
        with connected(made, "owner"):
            call_command("migrate", verbosity=0, interactive=False)
            call_command("grant_tables", "product", stdout=StringIO())
        with connected(made):
            made.tokens.update(furnish())
        yield made
    finally:
        broker.end(signal.SIGKILL)
        postgres.end(signal.SIGQUIT)


@contextmanager
def connected(stage: Stage, role: str = "product") -> Iterator[None]:
    """Meanwhile this process works in the stage's database, with one plain connection per thread."""
    before, had = connections.settings["default"], connections["default"]
    options, wanted = os.environ.get("PGOPTIONS"), (settings.TOOL_MODULES, settings.SECRET_KEY)
    mine: Any = database(stage.postgres.url(DATABASE, role))
    mine["OPTIONS"] = {}
    os.environ["PGOPTIONS"] = ""  # other tests set it so that commits do not wait for the disk
    settings.TOOL_MODULES, settings.SECRET_KEY = [SHOP], SECRET_KEY
    os.environ["WORLD"] = str(stage.world)
    connections.settings["default"] = connections.configure_settings({"default": mine})["default"]
    connections["default"] = connections.create_connection("default")
    ContentType.objects.clear_cache()
    try:
        yield
    finally:
        connections["default"].close()
        connections.settings["default"], connections["default"] = before, had
        settings.TOOL_MODULES, settings.SECRET_KEY = wanted
        ContentType.objects.clear_cache()
        os.environ.pop("WORLD")
        os.environ.pop("PGOPTIONS") if options is None else os.environ.update(PGOPTIONS=options)


def furnish() -> dict[str, str]:
    """Tools, an agent, a rule, and the tokens of a person who starts runs and one who decides."""
    call_command("sync_tools", stdout=StringIO())
    ensure_roles()
    tokens = {}
    for name, role, scopes in (
        ("sam", "operator", ["runs:create", "runs:read"]),
        ("dana", "approver", ["approvals:read", "approvals:decide"]),
    ):
        person = User.objects.create(username=name)
        person.groups.set(Group.objects.filter(name=role))
        tokens[name] = auth.issue_token(person, "tests", scopes, ledger.SYSTEM)[1]
    configuration.save(Rule(name="drafts", tool="draft", verdict="allow"), ledger.SYSTEM)
    agent = Agent(name="shop", instructions="Be exact.", driver="scripted", max_iterations=50)
    configuration.save(agent, ledger.SYSTEM)
    agent.tools.set(Tool.objects.filter(source__location=SHOP))
    return tokens


class Stack:
    """Web server, workers and beat as processes. `people` start runs and decide through the API.

    `own` holds variables of single processes: of the web server, then of each worker.
    """

    def __init__(
        self, stage: Stage, folder: Path, own: Sequence[Mapping[str, str]] = ({}, {}, {}), **variables: str
    ) -> None:
        self.stage, self._port, self._own = stage, free_port(), own
        self.url = f"http://127.0.0.1:{self._port}"
        self._processes = Processes(folder, **(environment(stage, self.url) | variables))
        self.folder = folder
        self._cookies, self._messages = "", dict[str, str]()
        self.queue = self._processes.queue
        self.people = Outside(self.url, stage.tokens)
        self.web: subprocess.Popen[bytes] = self._serve()
        self.workers = [self.worker(**each) for each in own[1:]]
        self.beat = self._processes.beat()

    def worker(self, threads: int = 4, **variables: str) -> subprocess.Popen[bytes]:
        return self._processes.worker(threads, **variables)

    def end(self, process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGKILL) -> None:
        self._processes.end(process, how)

    def logged(self, words: str) -> int:
        """How often any process has written this."""
        return self._processes.logged(words)

    def renew(self) -> None:
        """Start every process that has ended."""
        workers = zip(self.workers, self._own[1:], strict=True)
        self.workers = [each if each.poll() is None else self.worker(**own) for each, own in workers]
        if self.beat.poll() is not None:
            self.beat = self._processes.beat()
        if self.web.poll() is not None:
            self.web = self._serve()

    def kill_all(self) -> None:
        for process in (self.web, self.beat, *self.workers):
            self.end(process)

    def until_ready(self) -> None:
        until(lambda: self.readiness()[0] == 200, "the server to answer")

    def readiness(self, within: float = 15) -> tuple[int, set[str]]:
        """Status and codes of /readyz/. 0: nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz/", timeout=within) as answer:
                status, said = answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            status, said = error.code, json.load(error)
        except OSError:
            return 0, set()
        self._messages |= {problem["code"]: problem["message"] for problem in said["problems"]}
        return status, {problem["code"] for problem in said["problems"]}

    def says(self, code: str) -> None:
        """Wait until the product reports this problem, and the console tells people who can do something about it."""
        until(lambda: code in self.readiness()[1], f"/readyz/ to say {code}")
        until(lambda: code in self.banner(), f"the console to say {code}")

    def watch(self) -> None:
        """Sign an administrator in, before anything breaks."""
        if not self._cookies:
            client = Client()
            client.force_login(User.objects.get_or_create(username="watcher", is_staff=True, is_superuser=True)[0])
            self._cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())

    def banner(self) -> set[str]:
        """What the console's pages say above everything else, by the codes of the problems whose words they are."""
        request = urllib.request.Request(f"{self.url}/health/", headers={"Cookie": self._cookies})
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                shown = answer.read().decode()
        except OSError:
            return set()
        return {code for code, message in self._messages.items() if f"<strong>{escape(message)}</strong>" in shown}

    def is_well(self) -> None:
        """Wait until it reports no problem any more."""
        until(lambda: self.readiness() == (200, set()), "/readyz/ to say that nothing is wrong")

    def standing(self) -> str:
        """The state of runs and processes, for the report of a failure."""
        first = "min(wake_at) - now(), min(lease_until) - now(), now() - max(updated_at)"
        grouped = "FROM agentapp_run WHERE finished_at IS NULL GROUP BY state, waiting_for"
        try:
            runs = self.stage.statement(f"SELECT state, waiting_for, count(*), {first} {grouped}")
        except psycopg.Error as error:
            runs = [str(error)]
        ended = [process.args for process in (self.web, self.beat, *self.workers) if process.poll() is not None]
        return f"runs: {[*map(str, runs)]}; ended: {ended}; /readyz/: {self.readiness(5)}"

    def end_all(self) -> None:
        self.people.stop()
        self._processes.end_all()

    def _serve(self) -> subprocess.Popen[bytes]:
        options = ["--lifespan", "off", "--no-access-log", "--port", str(self._port)]
        return self._processes.start("-m", "uvicorn", "agentapp.asgi:application", *options, **self._own[0])


def environment(stage: Stage, url: str) -> dict[str, str]:
    return {
        "DATABASE_URL": stage.postgres.url(DATABASE, "product"),
        "REDIS_URL": stage.redis.url,
        "DATA_DIR": str(stage.folder / "files"),
        "WORLD": str(stage.world),
        "TOOL_MODULES": SHOP,
        "BASE_URL": url,
        "DEBUG": "false",
        "SECRET_KEY": SECRET_KEY,
        "ALLOW_SCRIPTED_RUNS": "true",
        "UNDO_HOLD_SECONDS": "0",
        "LOG_LEVEL": "WARNING",
        "PGOPTIONS": "",
        "NO_PROXY": "127.0.0.1",
        # Shorter than a table is held from everybody.
        "DATABASE_STATEMENT_SECONDS": "3",
    }


def eventually(seen: Callable[[], object], what: str) -> None:
    """Wait until something holds, on a database that may be away meanwhile."""
    until(lambda: holds(seen), what)


def holds(seen: Callable[[], object]) -> bool:
    """Whether something holds. False while the database is away; the next try uses another connection."""
    try:
        return bool(seen())
    except Exception as error:
        if not is_of_database(error):
            raise
        connections["default"].close()
        return False


def is_of_database(error: Exception) -> bool:
    return type(error).__module__ in ("django.db.utils", "psycopg", "psycopg.errors")
