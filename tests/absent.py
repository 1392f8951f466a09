"""Servers that are not there: one refuses connections, one accepts them and never says a word. Also a Redis for one
test, which can be stopped, filled and restarted.
"""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from benchmarks.servers import free_port
from tests.processes import until


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    """A port nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@dataclass
class Silent:
    """The connections it accepted and never answered."""

    listener: socket.socket
    taken: list[socket.socket] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def connections(self) -> int:
        """How many have arrived so far."""
        self.listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.taken.append(self.listener.accept()[0])
        return len(self.taken)


@contextlib.contextmanager
def silent() -> Iterator[Silent]:
    """The kernel accepts connections for a process that hangs."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        server = Silent(listener)
        yield server
        for connection in server.taken:
            connection.close()


class OwnRedis:
    """A Redis that belongs to one test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *options: str) -> None:
        found = shutil.which("redis-server")
        assert found, "redis-server is needed here"
        command = [found, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *options]
        self.process = subprocess.Popen([*command, "--dir", str(self.folder)], stdout=subprocess.DEVNULL)
        until(self._answers, "Redis to start")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(15)
        self.process = None

    def fill(self) -> None:
        """Full: it stores nothing more but still answers reads."""
        with redis.Redis.from_url(self.url) as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "1")

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url) as client, contextlib.suppress(redis.RedisError):
            return bool(client.ping())
        return False


@contextlib.contextmanager
def own_redis(folder: Path, *options: str) -> Iterator[OwnRedis]:
    server = OwnRedis(folder)
    server.start(*options)
    try:
        yield server
    finally:
        server.stop()
