"""A PostgreSQL and a Redis for private use, which can be ended in every way, frozen, and started again.

Imports nothing of the product: the rival's environment has to run this as well.
"""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
import redis

STARTS_WITHIN_SECONDS = 60


class Missing(Exception):
    """A server's program is not installed; the message names it."""


class Server:
    """One program that listens on a port, and keeps its port and its folder from one start to the next."""

    name = ""

    def __init__(self, folder: Path, command: list[str], port: int, **options: Any) -> None:
        self.folder, self.port = folder, port
        self._command, self._options = command, options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            said: dict[str, Any] = {"stdout": log, "stderr": log, "cwd": self.folder}
            self._process = subprocess.Popen(self._command, **said, **self._options)  # noqa: S603
        self.until(self.answers, "to answer")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal that ends it, and wait until it has ended. Does nothing if it has already."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(STARTS_WITHIN_SECONDS)
        self._process = None

    def hold(self) -> None:
        """Freeze it: the kernel still accepts connections, and it says nothing."""
        for pid in (self.pid, *children(self.pid)):
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in (self.pid, *children(self.pid)):
            os.kill(pid, signal.SIGCONT)

    def answers(self) -> bool:
        raise NotImplementedError

    def logged(self, words: str) -> int:
        """How often it has written this."""
        return self._log.read_text(errors="replace").count(words)

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.name.lower()}.log"

    def until(self, seen: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + STARTS_WITHIN_SECONDS
        while not seen():
            if time.monotonic() > deadline:
                wrote = self._log.read_text(errors="replace")[-1000:]
                raise TimeoutError(f"Waited {STARTS_WITHIN_SECONDS} s for {self.name} {what}. It wrote: {wrote}")
            time.sleep(0.02)


class Database(Server):
    """A server that speaks PostgreSQL's protocol."""

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class Postgres(Database):
    """A new cluster in this folder. SIGINT ends it as a shutdown would, SIGQUIT as a crash would."""

    name = "PostgreSQL"

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        initdb = _initdb()
        data, port = folder / "data", free_port()
        data.mkdir()
        user: dict[str, Any] = {}
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            entry = pwd.getpwnam("postgres")
            os.chown(data, entry.pw_uid, entry.pw_gid)
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": data, **user}
        cluster = [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
        subprocess.run(cluster, check=True, **quiet)  # noqa: S603
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        program = str(Path(initdb).with_name("postgres"))
        super().__init__(data, [program, "-D", str(data), "-p", str(port), "-k", str(data), *given], port, **user)


class PgBouncer(Database):
    """In front of a PostgreSQL, in *transaction* mode: however many connect, they share `size` connections."""

    name = "PgBouncer"

    def __init__(self, folder: Path, postgres_port: int, size: int) -> None:
        found = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        if not found:
            raise Missing("pgbouncer")
        own, port = folder / "pgbouncer", free_port()
        own.mkdir()
        settings = own / "pgbouncer.ini"
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={postgres_port} user=postgres",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {port}",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            f"default_pool_size = {size}",
            "max_client_conn = 1000",
            "ignore_startup_parameters = extra_float_digits",
        ]
        settings.write_text("\n".join(lines))
        user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        super().__init__(own, [found, str(settings)], port, **user)


class Redis(Server):
    """A Redis that keeps nothing on disk."""

    name = "Redis"

    def __init__(self, folder: Path, *options: str) -> None:
        found = shutil.which("redis-server")
        if not found:
            raise Missing("redis-server")
        port = free_port()
        command = [found, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *options]
        super().__init__(folder, command, port)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self, **options: Any) -> "redis.Redis":
        return redis.Redis(port=self.port, socket_timeout=5, **options)

    def answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def children(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def free_port() -> int:
    """A port that stays free while its server is down: outside the range from which the kernel hands out ports."""
    while True:
        port = random.randrange(20_000, 30_000)  # noqa: S311
        with socket.socket() as listener:
            if listener.connect_ex(("127.0.0.1", port)) != 0:
                return port


def _initdb() -> str:
    found = shutil.which("initdb") or next(iter(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))), "")
    if not found:
        raise Missing("PostgreSQL's server programs (initdb)")
    return str(Path(found).resolve())


def listens(port: int) -> bool:
    """Whether anything accepts connections there."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
