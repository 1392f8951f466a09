"""How soon pages hear that something has changed, with a thousand of them open on one process, and what each costs.

    python benchmarks/streams.py [--streams 1000] [--changes 40]

Starts a PostgreSQL and a Redis of its own and one server process. Every stream is a signed-in connection of its own
that listens for the inbox. Then events are committed one by one, and every stream notes when it hears of each. Prints
one JSON line: the time from the commit to the arrival over all streams, and memory for each.
"""

import argparse
import asyncio
import os
import resource
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import servers  # noqa: E402
from benchmarks import stage as staging  # noqa: E402

AT_ONCE = 50
"""How many streams are opened at a time."""
PATIENCE_SECONDS = 10


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--streams", type=int, default=1000)
    told.add_argument("--changes", type=int, default=40)
    arguments = told.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with staging.stage() as stage:
        os.environ |= environment_of(stage)
        import django

        django.setup()
        cookie = signed_in()
        port = servers.free_port()
        command = [sys.executable, "-m", "uvicorn", "agentapp.asgi:application", "--port", str(port)]
        command += ["--log-level", "warning", "--no-access-log"]
        with staging.processes([command], stage.folder, dict(os.environ)) as [server]:
            staging.until(lambda: servers.listens(port), "the server")
            staging.say(asyncio.run(measured(arguments, port, cookie, server.pid)))


def environment_of(stage: staging.Stage) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "agentapp.settings",
        "DEBUG": "false",
        "SECRET_KEY": uuid.uuid4().hex * 2,
        "DATA_DIR": str(stage.folder / "files"),
        "DATABASE_URL": stage.database,
        "REDIS_URL": stage.redis,
        "ALLOWED_HOSTS": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }


def signed_in() -> str:
    """The cookie of a person who may see every request."""
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command
    from django.test import Client

    from agentapp.roles import ensure_roles

    call_command("migrate", verbosity=0, interactive=False)
    call_command("collectstatic", verbosity=0, interactive=False)
    ensure_roles()
    dana = User.objects.create(username="dana")
    dana.groups.set(Group.objects.filter(name="approver"))
    client = Client()
    client.force_login(dana)
    return "; ".join(f"{name}={value.value}" for name, value in client.cookies.items())


async def measured(told: argparse.Namespace, port: int, cookie: str, server: int) -> dict[str, Any]:
    alone = staging.memory_mb(server)
    began = time.monotonic()
    gate = asyncio.Semaphore(AT_ONCE)
    heard: list[list[float]] = [[] for _ in range(told.streams)]
    ready = [asyncio.Event() for _ in range(told.streams)]

    async def listen(number: int) -> None:
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /live/?t=inbox HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode())
            await told_of_it(reader)  # every stream begins with a nudge
        ready[number].set()
        while True:
            await told_of_it(reader)
            heard[number].append(time.time())

    streams = [asyncio.create_task(listen(number)) for number in range(told.streams)]
    await asyncio.gather(*(event.wait() for event in ready))
    opened, cpu = time.monotonic() - began, staging.cpu_seconds(server)
    await asyncio.sleep(5)
    idle = staging.cpu_seconds(server) - cpu
    took: list[float] = []
    missed = 0
    for _ in range(told.changes):
        for times in heard:
            times.clear()
        committed = await asyncio.to_thread(commit)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(heard) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        took += [(times[0] - committed) * 1000 for times in heard if times]
        missed += heard.count([])
    memory = staging.memory_mb(server)
    for stream in streams:
        stream.cancel()
    return {
        "measured": "event streams", "streams": told.streams, "changes": told.changes,
        "opened_in_s": round(opened, 1),
        "commit_to_arrival_p50_ms": round(statistics.median(took), 1),
        "commit_to_arrival_p95_ms": round(staging.percentile(took, 0.95), 1),
        "commit_to_arrival_max_ms": round(max(took), 1), "not_heard_in_10_s": missed,
        "idle_cpu_percent": round(idle / 5 * 100, 1),
        "server_mb": round(memory), "kb_a_stream": round((memory - alone) * 1024 / told.streams, 1),
    }  # fmt: skip


async def told_of_it(reader: asyncio.StreamReader) -> None:
    while not (await reader.readline()).startswith(b"event: inbox-changed"):
        if reader.at_eof():
            sys.exit("A stream ended.")


def commit() -> float:
    """Make something happen that inboxes listen for. Returns when it was committed, by the machine's clock."""
    from django.utils import timezone

    from approvals import cards, decisions, ledger

    card = cards.Card(
        run_id=uuid.uuid4(), execution_id=uuid.uuid4(), agent="support", tool="refund_payment", tool_version="1",
        effect_class="irreversible", arguments_text='{"amount":1}', title="Refund $1.00", sentence=[], effects=[],
        reason="", expires_seconds=600, hold_seconds=5, starter_id=None,
    )  # fmt: skip
    with ledger.transaction():
        decisions.request([card], timezone.now())
    return time.time()


if __name__ == "__main__":
    main()
