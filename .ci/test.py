"""Everything `make test` runs, and finally a prominent list of what it could not run and why.

Groups: checks, embedded, services, browser, stack, faults; none named means all. With CI set, what cannot run fails,
but for the look-up of known weaknesses, which needs somebody outside, and upgrades in a clone without history.
"""

import base64
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
GROUPS = ("checks", "embedded", "services", "browser", "stack", "faults")
# Variables that would change what is tested; the last would make each of a hundred processes recompile everything.
NOT_INHERITED = (
    "DATABASE_URL", "REDIS_URL", "DATA_DIR", "TOOL_MODULES", "SECRET_KEY", "ALLOWED_HOSTS", "DEBUG",
    "PREPARED_STATEMENTS", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip
# So many checks, which use one processor each, run beside each other.
BESIDE = 2
# So many test processes are enough, however many processors there are.
MOST_PROCESSES = 8
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

DATABASE = os.environ.get("TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")
REDIS = os.environ.get("TEST_REDIS_URL", "")


@dataclass(frozen=True)
class Step:
    """One command. `lacks` says what keeps it from running here; empty if nothing does."""

    group: str
    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    lacks: str = ""
    cut_off: int = 0
    """The exit status of the command if it lacks somebody outside, or the history of this clone."""
    alone: bool = False
    """It uses all processors itself, or what it makes is needed by others."""
    waits: bool = False
    """It waits more than it works, so it runs beside the others."""


def main() -> int:
    wanted = sys.argv[1:] or list(GROUPS)
    unknown = sorted(set(wanted) - set(GROUPS))
    if unknown:
        print(f"Unknown group {unknown[0]!r}; known are {', '.join(GROUPS)}.")
        return 2
    failed: list[Step] = []
    missing: list[Step] = []
    passed: list[Step] = []
    cut_off: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="countersign-test-") as folder:
        every = steps(wanted, Path(folder))
        missing += [step for step in every if step.lacks]
        for step, code in run_all([step for step in every if not step.lacks], Path(folder)):
            (passed if code == 0 else cut_off if code == step.cut_off else failed).append(step)
    return summary(passed, failed, missing, cut_off)


def steps(wanted: list[str], folder: Path) -> list[Step]:
    has_services = Services.found() if {"services", "stack"} & set(wanted) else Services()
    every = [
        *checks(folder),
        embedded(folder, once="services" in wanted and not has_services.lacks),
        services(has_services),
        upgrades(has_services),
        browser(folder),
        stack(has_services),
        *faults(folder),
        peers(folder),
        spreadsheet(folder),
    ]
    return [step for step in every if step.group in wanted]


def checks(folder: Path) -> list[Step]:
    """What can be checked without running a test, the cheapest first."""
    debug = {"DEBUG": "true", "DATA_DIR": str(folder / "checks")}
    production = {
        "DEBUG": "false",
        "DATA_DIR": str(folder / "checks"),
        "SECRET_KEY": secrets.token_urlsafe(50),
        "DATABASE_URL": "postgres://countersign@127.0.0.1:5432/countersign",
        "REDIS_URL": "redis://127.0.0.1:6379/0",
        "ALLOWED_HOSTS": "countersign.example",
        "BASE_URL": "https://countersign.example",
        "EMAIL_HOST": "mail.countersign.example",
        "SECURE_SSL_REDIRECT": "true",
        "SECURE_HSTS_SECONDS": "31536000",
        "SECURE_HSTS_INCLUDE_SUBDOMAINS": "true",
        "TOOL_MODULES": "tests.clerk_tools",
        "LEDGER_SIGNING_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "STATIC_ROOT": str(folder / "static"),
    }
    manage = [sys.executable, "manage.py"]
    collect = [*manage, "collectstatic", "--noinput", "--verbosity", "0"]
    return [
        Step("checks", "collectstatic", collect, production, alone=True),  # before check --deploy looks for them
        Step("checks", "ruff check", [str(BIN / "ruff"), "check", "--quiet", "."]),
        Step("checks", "ruff format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
        Step("checks", "import contracts", [str(BIN / "lint-imports"), "--no-cache"]),
        Step("checks", "types", [str(BIN / "mypy"), "agentapp", "approvals"], debug),
        Step("checks", "migrations", [*manage, "makemigrations", "--check", "--dry-run"], debug),
        Step("checks", "manage.py check", [*manage, "check", "--fail-level", "ERROR"], debug),
        Step("checks", "check --deploy", [*manage, "check", "--deploy", "--fail-level", "WARNING"], production),
        Step("checks", "list of what it is made of", [sys.executable, ".ci/sbom.py", str(folder / "sbom.json")]),
        # The sources of advisories may be unreachable here. Then this is listed as not run, and is no failure.
        Step("checks", "known weaknesses", [sys.executable, ".ci/audit.py"], cut_off=3),
    ]


def embedded(folder: Path, once: bool) -> Step:
    """`once`: tests for which either database will do are left to PostgreSQL. Tests without a database are not."""
    environment = {"DEBUG": "true", "DATA_DIR": str(folder / "embedded")}
    marks = "not browser and not postgresql and not redis and not peers and not spreadsheet and not faults"
    marks += " and (apart or not either)" if once else ""
    return Step("embedded", "tests on SQLite, embedded", pytest(marks), environment, alone=True)


def peers(folder: Path) -> Step:
    environment = {"DEBUG": "true", "DATA_DIR": str(folder / "peers")}
    command = [*pytest("peers", 0), "tests/agentapp/tools"]
    return Step("embedded", "tests against MCP servers of others", command, environment, no_peers(), waits=True)


def spreadsheet(folder: Path) -> Step:
    environment = {"DEBUG": "true", "DATA_DIR": str(folder / "spreadsheet")}
    command = [*pytest("spreadsheet", 0), "tests/agentapp/audit"]
    lacks = "" if shutil.which("soffice") else "LibreOffice Calc (soffice) is not installed"
    return Step("embedded", "exports in a spreadsheet program", command, environment, lacks, waits=True)


@dataclass(frozen=True)
class Services:
    """PostgreSQL and Redis as the tests use them. `lacks` names what does not answer."""

    environment: dict[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    @classmethod
    def found(cls) -> "Services":
        lacks = []
        if not answers(DATABASE, 5432):
            lacks.append(f"no PostgreSQL answers at {urlsplit(DATABASE).netloc} (TEST_DATABASE_URL)")
        redis = REDIS or empty_redis()
        if not redis or not answers(redis, 6379):
            lacks.append("no Redis with an empty database answers at 127.0.0.1:6379 (TEST_REDIS_URL)")
        # The tests' own database is this name with test_ in front, created and dropped by each run.
        database = urlsplit(DATABASE)._replace(path=f"/countersign_{os.getpid()}").geturl()
        queue = f"test-{os.getpid()}"
        return cls({"DEBUG": "true", "DATABASE_URL": database, "REDIS_URL": redis, "QUEUE_NAME": queue}, tuple(lacks))


def services(has: Services) -> Step:
    command = pytest("not browser and not peers and not spreadsheet and not faults and (redis or not apart)")
    # As in workers. PostgreSQL would spend a quarter of this group's time on planning the same queries again; `stack`
    # asks as web processes do.
    environment = {**has.environment, "PREPARED_STATEMENTS": "true"}
    lacks = "; ".join(has.lacks)
    return Step("services", "tests on PostgreSQL and Redis", command, environment, lacks, alone=True)


def upgrades(has: Services) -> Step:
    """A database of its own. What an earlier commit leaves there, this one ends, and the other way round."""
    command = [sys.executable, ".ci/upgrades.py"]
    return Step("services", "an upgrade, and going back", command, {}, "; ".join(has.lacks), cut_off=3, waits=True)


def browser(folder: Path) -> Step:
    environment = {"DEBUG": "true", "DATA_DIR": str(folder / "browser")}
    # A third of the time, these tests and their browsers wait for each other.
    command = [*pytest("browser and not redis", per_processor=2), "tests/e2e"]
    return Step("browser", "tests in Chromium", command, environment, no_chromium(), alone=True)


def stack(has: Services) -> Step:
    lacks = [*has.lacks, *filter(None, [no_chromium()])]
    # One process: its tests share the stack.
    command = [*pytest("browser and redis", 0), "tests/e2e"]
    return Step("stack", "tests in Chromium on the real stack", command, has.environment, "; ".join(lacks), alone=True)


def faults(folder: Path) -> list[Step]:
    """On servers of their own, which they break. One process each: these tests share the processes they end. Two beside
    each other, and not beside other tests: there is a time within which what they broke must be whole again.
    """
    clocks, first = ["tests/faults/test_clock.py"], ["tests/faults/test_workers.py", "tests/faults/test_database.py"]
    others = ["tests/faults", *(f"--ignore={file}" for file in (*clocks, *first))]
    return [
        _faults("faults of workers and the database", first, folder, no_servers()),
        _faults("faults of clocks", clocks, folder, no_servers() or no_other_time()),
        _faults("faults of everything else", others, folder, no_servers()),
    ]


def _faults(name: str, files: list[str], folder: Path, lacks: str) -> Step:
    environment = {"DEBUG": "true", "DATA_DIR": str(folder / name.replace(" ", "-"))}
    return Step("faults", name, [*pytest("faults", 0), *files], environment, lacks)


def no_other_time() -> str:
    """Why no process can be shown another time here."""
    return "" if shutil.which("cc") else "no C compiler is installed (cc), which makes what shows another time"


def no_servers() -> str:
    """Why the tests cannot start servers of their own here."""
    initdb = shutil.which("initdb") or next(Path("/usr/lib/postgresql").glob("*/bin/initdb"), None)
    lacks = [] if initdb else ["PostgreSQL's server programs (initdb) are not installed"]
    lacks += [] if shutil.which("redis-server") else ["redis-server is not installed"]
    return "; ".join(lacks)


def no_chromium() -> str:
    return "" if any(map(shutil.which, CHROMIUM)) else f"none of {', '.join(CHROMIUM)} is installed"


def no_peers() -> str:
    """Why the MCP servers of tests/mcp_peers/ cannot be in .peers/. Installs them there first."""
    named, kept = ROOT / "tests/mcp_peers", ROOT / ".peers"
    npm, lock = shutil.which("npm"), (named / "package-lock.json").read_bytes()
    if npm is None:
        return "npm is not installed"
    complete = kept / ".complete"
    if complete.exists() and complete.read_bytes() == lock:
        return ""
    kept.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(named / name, kept)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    if subprocess.run(command, cwd=kept, check=False).returncode != 0:
        return "npm could not install what tests/mcp_peers/package.json names"
    complete.write_bytes(lock)
    return ""


def pytest(marks: str, per_processor: int = 1) -> list[str]:
    """`per_processor`: so many test processes, each with a database of its own; 0 means none but this one."""
    # A process that is done takes tests from the others.
    count = min(per_processor * (os.process_cpu_count() or 1), MOST_PROCESSES)
    return [sys.executable, "-m", "pytest", "-q", "-m", marks, "-n", str(count), "--dist", "worksteal", "--durations=5"]


def run_all(every: list[Step], folder: Path) -> Iterator[tuple[Step, int]]:
    """Each step and its exit status, as they end. Neighbours run beside each other unless they must be alone.

    What waits runs beside all that, one after the other.
    """
    with Beside(1, folder) as waiting:
        waiting.begin(step for step in every if step.waits)
        for alone, neighbours in groupby((step for step in every if not step.waits), key=lambda step: step.alone):
            if alone:
                for step in neighbours:
                    print(heading(step), flush=True)
                    yield step, told(step, *run(step, folder, None))
            else:
                with Beside(BESIDE, folder) as others:
                    others.begin(neighbours)
                    yield from others.ended()
        yield from waiting.ended()


class Beside:
    """Runs steps, so many at once, and prints what each has said when it has ended."""

    def __init__(self, most: int, folder: Path) -> None:
        self._pool, self._folder = ThreadPoolExecutor(most), folder
        self._begun: dict[Future[tuple[int, float]], tuple[Step, Path]] = {}

    def __enter__(self) -> "Beside":
        return self

    def __exit__(self, *why: object) -> None:
        # After Ctrl-C, what has not begun does not begin.
        self._pool.shutdown(cancel_futures=True)

    def begin(self, steps: Iterable[Step]) -> None:
        for step in steps:
            said = self._folder / f"said by {step.name}"
            self._begun[self._pool.submit(run, step, self._folder, said)] = step, said

    def ended(self) -> Iterator[tuple[Step, int]]:
        for one in as_completed(self._begun):
            step, said = self._begun[one]
            print(heading(step), flush=True)
            sys.stdout.buffer.write(said.read_bytes())
            yield step, told(step, *one.result())


def run(step: Step, folder: Path, said: Path | None) -> tuple[int, float]:
    """The exit status of a step, and its seconds. `said`: the file that gets what it says, if that is not printed."""
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    # Compiled once for all steps and the processes they start, and deleted with the folder.
    inherited["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    environment, began = {**inherited, **step.environment}, time.monotonic()
    with said.open("wb") if said else nullcontext() as output:
        done = subprocess.run(step.command, cwd=ROOT, env=environment, check=False, stdout=output, stderr=output)
    return done.returncode, time.monotonic() - began


def heading(step: Step) -> str:
    return f"\n=== {step.name} {'=' * max(3, 90 - len(step.name))}"


def told(step: Step, code: int, seconds: float) -> int:
    said = "ok" if code == 0 else "NOT RUN" if code == step.cut_off else f"FAILED ({code})"
    print(f"--- {step.name}: {said}, {seconds:.0f} s", flush=True)
    return code


def summary(passed: list[Step], failed: list[Step], missing: list[Step], cut_off: list[Step]) -> int:
    in_ci = bool(os.environ.get("CI"))
    print(f"\n{'=' * 95}\n{len(passed)} passed, {len(failed)} failed, {len(missing) + len(cut_off)} NOT RUN")
    for step in failed:
        print(f"  FAILED   {step.name}")
    for step in missing:
        print(f"  NOT RUN  {step.name}: {step.lacks}")
    for step in cut_off:
        print(f"  NOT RUN  {step.name}: it says above what it lacks, so nothing is known.")
    if missing and in_ci:
        print("  CI is set, so what was not run counts as failed.")
    print("=" * 95, flush=True)
    return 1 if failed or (missing and in_ci) else 0


def answers(url: str, usual_port: int) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or usual_port), timeout=2):
            return True
    except OSError:
        return False


def empty_redis() -> str:
    """An unused database of the local Redis, away from anybody's keys; empty if there is none.

    Celery leaves the names of its queues behind for good: they do not count as use.
    """
    import redis

    for number in range(15, 0, -1):
        url = f"redis://127.0.0.1:6379/{number}"
        try:
            with redis.Redis.from_url(url, socket_timeout=2) as client:
                if all(key.startswith(b"_kombu.") for key in client.scan_iter()):
                    return url
        except redis.RedisError:
            return ""
    return ""


if __name__ == "__main__":
    sys.exit(main())
