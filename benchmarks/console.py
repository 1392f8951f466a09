"""How fast the console is with 10,000 requests and 5,000 runs: pages, a new row on an open screen, Lighthouse.

    DATABASE_URL=postgres://… REDIS_URL=redis://… python benchmarks/console.py [--lighthouse] [--requests 10000]

Fills a throw-away database, serves it as production does (no DEBUG, collected static files, one process), and
prints a JSON line for each figure: the median of its tries with the fastest and the slowest. `--lighthouse`
fetches Lighthouse with npm into a folder that is deleted afterwards.
"""

import argparse
import http.client
import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")
os.environ.setdefault("DEBUG", "true")

TRIES = 30
ROW_TRIES = 20
# Pages that Lighthouse looks at as an administrator sees them.
OF_THE_RECORD = {
    "audit": "/audit/", "proof": "/audit/proof/", "insights": "/insights/", "insights-cost": "/insights/cost/",
    "insights-reliability": "/insights/reliability/", "tools": "/tools/", "tool": "/tools/refund_payment/",
    "tool-try": "/tools/refund_payment/try/",
}  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--requests", type=int, default=10_000, help="Requests that wait; half as many runs.")
    arguments.add_argument("--lighthouse", action="store_true", help="Run Lighthouse too; fetches it with npm.")
    told = arguments.parse_args()
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright keeps an event loop in this thread
    django.setup()
    from agentapp.demo import check, opening

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="countersign-benchmark-")))
        stack.enter_context(check.throw_away_database(folder))
        people = opening.open_shop()
        approval = fill(people["sam"], told.requests)
        cookie = cookie_of(people["dana"])
        address = stack.enter_context(served(folder, check.database_url()))
        pages = {"inbox": "/inbox/", "approval": f"/approvals/{approval.pk}/", "runs": "/runs/"}
        pages["run"] = f"/runs/{approval.run_id}/"
        for name, path in pages.items():
            say(f"GET {name}, ms", fetched(address, path, cookie))
        say("event committed → row on screen, ms", rows_seen(address, cookie, people["sam"]))
        if told.lighthouse:
            wanted = {name: pages[name] for name in ("inbox", "approval", "run")}
            fetch_lighthouse(folder)
            lighthouse(folder, address, wanted, cookie)
            lighthouse(folder, address, OF_THE_RECORD, cookie_of(people["ada"]))


def cookie_of(user: Any) -> str:
    """The cookies of a browser in which this person has signed in."""
    from django.test import Client

    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}"


def say(what: str, tries: list[float]) -> None:
    figures = {"median": statistics.median(tries), "min": min(tries), "max": max(tries)}
    print(json.dumps({"measured": what, **{name: round(value, 1) for name, value in figures.items()}}), flush=True)


def fill(starter: Any, requests: int) -> Any:
    """Bulk-insert runs and their requests. Returns a request with a run behind it."""
    from django.db import connection
    from django.utils import timezone

    from agentapp.models import Agent, Run
    from agentapp.toolset import snapshot_of
    from approvals.models import Approval

    now, agent = timezone.now(), Agent.objects.get(name="support")
    snapshot = snapshot_of(agent)
    runs = Run.objects.bulk_create(
        (
            Run(
                agent=agent, agent_snapshot=snapshot, title=f"Ticket {number}", input="Where is my order?",
                starter=starter, state="waiting", waiting_for="approval",
                created_at=now - timedelta(seconds=number), updated_at=now,
            )
            for number in range(requests // 2)
        ),
        batch_size=1000,
    )  # fmt: skip
    Approval.objects.bulk_create(
        (a_request(runs[number % len(runs)].pk, now, number) for number in range(requests)), batch_size=1000
    )
    # As PostgreSQL does on its own within a minute.
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return play(starter)


def a_request(run_id: uuid.UUID, now: Any, number: int) -> Any:
    from approvals.models import Approval

    text = json.dumps({"amount": number, "order_id": str(number)})
    return Approval(
        run_id=run_id, execution_id=uuid.uuid4(), agent="support", run_title=f"Ticket {number}",
        tool="refund_payment", tool_version="1", effect_class="irreversible", arguments_text=text,
        arguments=json.loads(text), action_digest=f"{number:064d}", view_digest="0" * 64,
        title=f"Refund order {number}", sentence=[{"text": "Pays back", "value": False}],
        effects=[{"title": "Money leaves", "icon": "money"}], reason="Refunds ask", risk="high",
        created_at=now - timedelta(seconds=number), expires_at=now + timedelta(hours=1, seconds=number),
    )  # fmt: skip


def play(starter: Any) -> Any:
    """One run of the shop, taken to the point where it waits for a person. Returns its request."""
    from agentapp import loop
    from agentapp.demo import opening
    from agentapp.demo.scenarios import DAMAGED_KETTLE
    from approvals.models import Approval

    run = opening.start(DAMAGED_KETTLE, starter)
    while loop.drive(run.pk) is not None:
        pass
    return Approval.objects.get(run_id=run.pk, state="pending")


@contextmanager
def served(folder: Path, database: str) -> Iterator[str]:
    """The console in a process of its own, set up as in production apart from HTTPS."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "DEBUG": "false",
        "SECRET_KEY": os.environ["SECRET_KEY"],
        "DATABASE_URL": database,
        "ALLOWED_HOSTS": "127.0.0.1",
        "SECURE_COOKIES": "false",
        "STATIC_ROOT": str(folder / "static"),
        "LOG_LEVEL": "ERROR",
    }
    manage = [sys.executable, str(ROOT / "manage.py")]
    subprocess.run([*manage, "collectstatic", "--noinput", "-v0"], env=environment, check=True)  # noqa: S603
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "agentapp.asgi:application",
        "--port",
        str(port),
        "--log-level",
        "error",
    ]
    process = subprocess.Popen(command, env=environment, cwd=ROOT)  # noqa: S603
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
        time.sleep(1)  # until the database has noticed


def fetched(address: str, path: str, cookie: str) -> list[float]:
    """Milliseconds for each of several requests over one connection, after a few that do not count."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    took = []
    for _ in range(TRIES + 3):
        began = time.perf_counter()
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        answer.read()
        took.append((time.perf_counter() - began) * 1000)
        if answer.status != 200:
            sys.exit(f"{path} answered {answer.status}")
    return took[3:]


def rows_seen(address: str, cookie: str, starter: Any) -> list[float]:
    """Milliseconds from a request's commit until an inbox already open shows it."""
    from playwright.sync_api import sync_playwright

    from approvals import cards, decisions, ledger

    took = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 900})
        name, _, value = cookie.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": address}])
        page = context.new_page()
        page.goto("/inbox/?all=1")  # as rows: this many are otherwise only counted
        page.locator("[data-live-words]:visible", has_text="Live").first.wait_for()
        for number in range(ROW_TRIES):
            before = page.locator("#queue").inner_html()
            page.evaluate(
                "before => { window.seen = new Promise((seen, never) => { const look = () => {"
                " const now = document.getElementById('queue').innerHTML;"
                " if (now !== before && /new request|New, due at once/.test(now)) seen(Date.now());"
                " else requestAnimationFrame(look); }; look(); setTimeout(never, 10000, 'no row in 10 s'); }); }",
                before,
            )
            card = cards.Card(
                run_id=uuid.uuid4(), execution_id=uuid.uuid4(), agent="support", tool="refund_payment",
                tool_version="1", effect_class="irreversible", arguments_text='{"amount":1}',
                title=f"New, due at once {number}", sentence=[], effects=[], reason="", expires_seconds=60,
                hold_seconds=5, starter_id=starter.pk,
            )  # fmt: skip
            from django.utils import timezone

            with ledger.transaction():
                decisions.request([card], timezone.now())
            committed = time.time() * 1000
            took.append(page.evaluate("window.seen") - committed)
            page.wait_for_timeout(400)
        browser.close()
    return took


def fetch_lighthouse(folder: Path) -> None:
    subprocess.run(  # noqa: S603
        ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", "lighthouse"],  # noqa: S607
        check=True,
    )


def lighthouse(folder: Path, address: str, pages: dict[str, str], cookie: str) -> None:
    """Scores for performance, accessibility and best practices, with a phone's profile and a desktop's."""
    with signed_in_browser(folder, address, cookie) as port:
        for name, path in pages.items():
            for profile in ("mobile", "desktop"):
                report = folder / f"{name}-{profile}.json"
                command = [
                    str(folder / "node_modules/.bin/lighthouse"), address + path, "--quiet", "--output=json",
                    f"--output-path={report}", f"--port={port}", "--disable-storage-reset",
                    "--only-categories=performance,accessibility,best-practices",
                    *(["--preset=desktop"] if profile == "desktop" else []),
                ]  # fmt: skip
                subprocess.run(command, check=True)  # noqa: S603
                told = json.loads(report.read_text())
                scores = {key: round(found["score"] * 100) for key, found in told["categories"].items()}
                shown = ("largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift")
                audits = {key: told["audits"][key]["displayValue"] for key in shown}
                lost = [
                    key for key, audit in told["audits"].items() if audit["score"] is not None and audit["score"] < 0.9
                ]
                said = [item["description"] for item in told["audits"]["errors-in-console"]["details"]["items"]]
                row = {"lighthouse": f"{name}, {profile}", **scores, **audits, "below": lost, "console": said}
                print(json.dumps(row), flush=True)


@contextmanager
def signed_in_browser(folder: Path, address: str, cookie: str) -> Iterator[int]:
    """A browser signed in by its own cookies; yields its debugging port. A header would hold for some requests only."""
    from playwright.sync_api import sync_playwright

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    options: Any = {"args": ["--no-sandbox", "--disable-gpu", f"--remote-debugging-port={port}"]}
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(folder / "profile", executable_path=CHROMIUM, **options)
        name, _, value = cookie.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": address}])
        yield port
        context.close()


if __name__ == "__main__":
    os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
    main()
