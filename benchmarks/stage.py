"""A PostgreSQL and a Redis for one benchmark, and what runs cost on them.

Both are started for one measurement and deleted after it, so that nothing else writes to their log or adds to their
statements. PostgreSQL runs with its own defaults: `fsync` and `synchronous_commit` are on.

Imports nothing of the product: the rival's environment has to run this as well.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import servers
from benchmarks.servers import children as children

PATIENCE_SECONDS = 300
TICKS = os.sysconf("SC_CLK_TCK")
# The role under which the measurement itself looks for requests to decide.
WATCHER = "watcher"
# How the server's own foreign-key checks begin, if they run at the commit: no client has sent them.
OF_SERVER = "SELECT 1 FROM ONLY"
SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "max_connections": "200",
    # Avoid a checkpoint in the middle: after each one, whole pages are written to the log again.
    "checkpoint_timeout": "30min",
    "max_wal_size": "8GB",
    "listen_addresses": "127.0.0.1",
}


@dataclass(frozen=True)
class Stage:
    folder: Path
    port: int
    redis_port: int
    postmaster: int

    @property
    def database(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/bench"

    @property
    def redis(self) -> str:
        return f"redis://127.0.0.1:{self.redis_port}/0"

    def watch(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(f"postgres://{WATCHER}@127.0.0.1:{self.port}/bench", autocommit=True)


@dataclass(frozen=True)
class Spent:
    """What has been used up so far."""

    statements: int
    transactional: int
    wal: int
    database_cpu: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(
            self.statements - before.statements,
            self.transactional - before.transactional,
            self.wal - before.wal,
            self.database_cpu - before.database_cpu,
        )


@contextmanager
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="countersign-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with _servers(folder) as (postgres, broker):
            made = Stage(folder, postgres.port, broker.port, postgres.pid)
            with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
                connection.execute("CREATE DATABASE bench")
            with psycopg.connect(made.database, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION pg_stat_statements")
                connection.execute("CREATE TABLE effects (run_id text NOT NULL, tool text NOT NULL, args text NOT NULL,"
                                   " at timestamptz NOT NULL DEFAULT clock_timestamp())")  # fmt: skip
                connection.execute(f"CREATE ROLE {WATCHER} LOGIN IN ROLE pg_read_all_data, pg_monitor")
                connection.execute(f"GRANT EXECUTE ON FUNCTION pg_stat_statements_reset TO {WATCHER}")
            yield made


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[servers.Postgres, servers.Redis]]:
    try:
        postgres, broker = servers.Postgres(folder, SETTINGS), servers.Redis(folder)
    except servers.Missing as missing:
        sys.exit(f"Needs {missing}.")
    try:
        postgres.start()
        broker.start()
        yield postgres, broker
    finally:
        broker.end()
        postgres.end(signal.SIGINT)


def spent(stage: Stage, watcher: "psycopg.Connection[Any]") -> Spent:
    """Statements by everybody but the watcher, log written, and the processor time of the whole server."""
    [calls, transactional] = watcher.execute(
        "SELECT coalesce(sum(calls), 0)::bigint,"
        " coalesce(sum(calls) FILTER (WHERE query ~* '^(begin|commit|rollback|savepoint|release)'), 0)::bigint"
        " FROM pg_stat_statements WHERE userid <> current_user::regrole AND NOT starts_with(query, %s)",
        [OF_SERVER],
    ).fetchone() or (0, 0)
    [wal] = watcher.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone() or (0,)
    of_server = [stage.postmaster, *children(stage.postmaster)]
    cpu = sum(cpu_seconds(pid, its_children=pid == stage.postmaster) for pid in of_server)
    return Spent(calls, transactional, wal, cpu - cpu_seconds(watcher.info.backend_pid))


def top_statements(stage: Stage, most: int = 80) -> list[tuple[int, str]]:
    with stage.watch() as watcher:
        return watcher.execute(
            "SELECT calls, query FROM pg_stat_statements WHERE userid <> current_user::regrole"
            " ORDER BY calls DESC LIMIT %s", [most],
        ).fetchall()  # fmt: skip


def cpu_seconds(pid: int, *, its_children: bool = False) -> float:
    """Processor time of a process, and of those of its children that have ended. 0: the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    used = fields[11:15] if its_children else fields[11:13]
    return sum(map(int, used)) / TICKS


def memory_mb(pid: int) -> float:
    """Resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0


def until(seen: Callable[[], object], what: str, every: float = 0.02, patience: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + patience
    while not seen():
        if time.monotonic() > deadline:
            sys.exit(f"Waited {patience} s for {what}.")
        time.sleep(every)


@contextmanager
def processes(
    commands: Sequence[Sequence[str]], folder: Path, environment: dict[str, str]
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes that are asked to end afterwards, and killed if they do not."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"process-{os.getpid()}-{len(list(folder.glob('process-*')))}-{number}.log").open(
                "wb"
            ) as log:
                started.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log))  # noqa: S603
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]
