"""The product's own processes, started as in production, for tests that need more than one."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import redis
from django.conf import settings
from django.db import connection

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 60


def until(seen: Callable[[], object], what: str) -> None:
    """Wait for a condition; `what` names it if the wait is in vain."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not seen():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS} s for: {what}"
        time.sleep(0.05)


class Processes:
    """Workers, beat and other processes on the tests' database, with a queue of their own. Each is ended by its id."""

    def __init__(self, folder: Path, **variables: str) -> None:
        database = connection.settings_dict
        self.folder = folder
        self.queue = f"test-{uuid.uuid4().hex[:8]}"
        self.environment = {
            "DATABASE_URL": f"postgres://{database['USER']}:{database['PASSWORD']}@{database['HOST']}"
            f":{database['PORT']}/{database['NAME']}",
            "REDIS_URL": settings.REDIS_URL,
            "DEBUG": "true",
            "QUEUE_NAME": self.queue,
            "PYTHONPATH": str(ROOT),
            # What a killed process leaves behind is found soon.
            "LEASE_SECONDS": "3",
            "SWEEP_SECONDS": "2",
            **variables,
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start Python with these arguments; its output goes to a log in the folder."""
        log = (self.folder / f"{len(self._started)}-{Path(arguments[1]).name}.log").open("wb")
        environment = {**os.environ, **self.environment, **variables}
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        self._started.append(process)
        return process

    def worker(self, threads: int = 2, queue: str = "", **variables: str) -> subprocess.Popen[bytes]:
        """`queue`: the only one it takes. Without it, it takes all."""
        options = ["-P", "threads", "-c", str(threads), "--without-mingle", *(["-Q", queue] if queue else [])]
        told = {"PREPARED_STATEMENTS": "true", **variables}
        return self.start("-m", "celery", "-A", "agentapp", "worker", *options, **told)

    def beat(self, **variables: str) -> subprocess.Popen[bytes]:
        return self.start("-m", "celery", "-A", "agentapp", "beat", **variables)

    def end(self, process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGKILL) -> None:
        """End one of them, and every process it has started."""
        if process.poll() is None:
            os.killpg(process.pid, how)
        process.wait(15)

    def logged(self, words: str) -> int:
        """How often any of them has written this."""
        return sum(log.read_text(errors="replace").count(words) for log in self.folder.glob("*.log"))

    def end_all(self) -> None:
        for process in self._started:
            self.end(process)
        # A Redis that a test has stopped keeps nothing.
        with suppress(redis.ConnectionError), redis.Redis.from_url(self.environment["REDIS_URL"]) as client:
            for key in client.scan_iter(f"*{self.queue}*"):
                client.delete(key)
