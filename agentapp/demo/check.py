"""One scenario, played through the real worker and the REST API, on a database of its own.

It starts a run as one person, waits until a person is asked, approves as another, waits for the
end, and checks what came of it. Anything that is not as promised raises CheckFailed.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, connections

from agentapp import auth, embedded
from agentapp.celery import app
from agentapp.demo import check_dialogues, opening
from agentapp.demo.client import CheckFailed, Client, wait_for
from agentapp.demo.models import Email, Refund
from agentapp.demo.scenarios import DAMAGED_KETTLE
from approvals import ledger


def play(model: str = "", driver: str = "") -> str:
    """Play the damaged kettle in the configured environment. Returns one line about it. Raises CheckFailed.

    If a model is given, it is asked instead of playing the scenario's script.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="countersign-check-")))
        stack.enter_context(throw_away_database(folder))
        people = opening.open_shop(model, driver)
        starter, decider, chat, person = tokens(people)
        stack.enter_context(own_queue())
        url = stack.enter_context(web())
        stack.enter_context(workers(folder))
        run = _play(Client(url, starter), Client(url, decider), scripted=not model)
        events = _look(run)
        talked = 0
        if not model:
            shop = check_dialogues.Shop(Client(url, starter), Client(url, chat), Client(url, person))
            talked = check_dialogues.play(shop)
    took = time.monotonic() - began
    where = f"{connection.vendor} and {'the embedded broker' if settings.EMBEDDED else 'Redis'}"
    where += f", asking {model}" if model else ""
    return (
        f"OK: {DAMAGED_KETTLE.name} on {where}: started, waited, approved by another person, refunded once, "
        f"succeeded after {run['step_count']} steps; {events} events verified; {talked} dialogues of the concierge; "
        f"{took:.1f} s."
    )


def tokens(people: dict[str, User]) -> tuple[str, str, str, str]:
    """Four tokens: to start runs, to decide as another person, for the shop's chat, and to take over."""
    given = {
        "check-start": ("sam", ["runs:create", "runs:read"]),
        "check-decide": ("dana", ["approvals:read", "approvals:decide", "runs:read"]),
        "check-chat": ("sam", ["conversations:write"]),
        "check-person": ("dana", ["runs:create", "runs:read"]),
    }
    made = [auth.issue_token(people[who], name, scopes, ledger.SYSTEM)[1] for name, (who, scopes) in given.items()]
    start, decide, chat, person = made
    return start, decide, chat, person


@contextmanager
def throw_away_database(folder: Path) -> Iterator[None]:
    """Everything in the block happens in a new database, which is removed afterwards."""
    kept = connection.settings_dict["NAME"]
    name = str(folder / "check.sqlite3") if connection.vendor == "sqlite" else f"check_{uuid.uuid4().hex[:12]}"
    connection.settings_dict.setdefault("TEST", {})["NAME"] = name
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        yield
    finally:
        connections.close_all()
        if connection.vendor == "postgresql":
            # A server's session outlives its process by a moment and would keep the database in use.
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            connections.close_all()
        connection.creation.destroy_test_db(str(kept), verbosity=0)


@contextmanager
def own_queue() -> Iterator[None]:
    """Send messages to a queue that no other worker listens to. Only before the first message of the process."""
    if settings.EMBEDDED:
        yield
        return
    usual, name = settings.CELERY_TASK_DEFAULT_QUEUE, f"check-{uuid.uuid4().hex[:12]}"
    # Celery reads Django's settings until it has made its queues.
    settings.CELERY_TASK_DEFAULT_QUEUE = name
    if app.amqp.default_queue.name != name:
        raise CheckFailed("Messages were sent before the check, so they cannot be kept apart.")
    try:
        yield
    finally:
        settings.CELERY_TASK_DEFAULT_QUEUE = usual
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            for key in client.scan_iter(f"*{name}*"):
                client.delete(key)


@contextmanager
def web() -> Iterator[str]:
    """The web server on a free port of the loopback; its URL."""
    listener = embedded.listen("127.0.0.1", 0)
    server = embedded.web_server()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="web", daemon=True)
    thread.start()
    try:
        wait_for("the web server to listen", lambda: server.started)
        yield embedded.address(listener)
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def workers(folder: Path) -> Iterator[None]:
    """A worker and beat: in threads if the broker is embedded, otherwise as separate processes."""
    if settings.EMBEDDED:
        worker = embedded.Worker()
        worker.start()
        try:
            yield
        finally:
            worker.stop()
        return
    environment = {
        **os.environ,
        "DATABASE_URL": database_url(),
        "QUEUE_NAME": settings.CELERY_TASK_DEFAULT_QUEUE,
        "PYTHONPATH": str(settings.BASE_DIR),
    }
    celery = [sys.executable, "-m", "celery", "-A", "agentapp"]
    commands = {
        "worker": [*celery, "worker", "-P", "threads", "-c", "4", "-n", f"check-{os.getpid()}@%h"],
        "beat": [*celery, "beat", "--pidfile="],
    }
    processes = []
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
                )
        yield
    except CheckFailed as error:
        said = "\n".join(f"{name}: {(folder / f'{name}.log').read_text()[-2000:]}" for name in commands)
        raise CheckFailed(f"{error}\n{said}") from error
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _play(starter: Client, decider: Client, *, scripted: bool) -> dict[str, Any]:
    """The finished run. Requests on the way are approved."""
    scenario = DAMAGED_KETTLE
    started = starter.post(
        "/runs",
        {
            "agent": scenario.agent,
            "route": scenario.route,
            "input": scenario.input,
            "customer": scenario.customer,
            "conversation": scenario.conversation,
            "script": scenario.script if scripted else None,
        },
    )
    path = f"/runs/{started['id']}"

    def asked() -> Any:
        run = starter.get(path)
        if run["state"] in ("succeeded", "failed", "stopped", "cancelled"):
            raise CheckFailed(f"The run {run['state']} before anybody was asked: {run}")
        return decider.get(f"/approvals?state=pending&run={started['id']}")["items"]

    [approval] = wait_for("the refund to be asked for", asked)
    if Refund.objects.exists():
        raise CheckFailed("A refund was made before anybody approved one.")
    approval = decider.get(f"/approvals/{approval['id']}")
    decider.post(
        f"/approvals/{approval['id']}/decisions",
        {
            "decision_id": str(uuid.uuid4()),
            "type": "approve",
            "version": approval["version"],
            "action_digest": approval["action_digest"],
        },
    )

    def ended() -> Any:
        run = starter.get(path)
        return run if run["state"] not in ("queued", "running", "waiting") else None

    run: dict[str, Any] = wait_for("the run to end", ended)
    if run["state"] != "succeeded":
        raise CheckFailed(f"The run ended as {run['state']}: {run}")
    return run


def _look(run: dict[str, Any]) -> int:
    """Check what came of it, in the shop and in the ledger. Returns how many events were verified."""
    refunds = list(Refund.objects.filter(order_id="58213"))
    if len(refunds) != 1 or Email.objects.count() != 1:
        raise CheckFailed(f"Expected one refund and one email, found {refunds} and {list(Email.objects.all())}.")
    held, broken = ledger.verify()
    if broken is not None:
        raise CheckFailed(f"The ledger is broken at event {broken.seq} of {broken.chain}: {broken.problem}.")
    if not ledger.verify(ledger.run_chain(uuid.UUID(run["id"])))[0]:
        raise CheckFailed("The run left no events.")
    return held


def database_url() -> str:
    """The address of the throw-away database, for the processes."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))
