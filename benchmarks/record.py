"""How fast the record is with years behind it: the console's pages, the audit trail, insights, exports, verification.

    DATABASE_URL=postgres://… REDIS_URL=redis://… python benchmarks/record.py [--runs 200000] [--days 90]

Needs a database of its own. An empty one is filled first (200,000 runs: 5 million events, 1 million calls, 200,000
requests; about 15 minutes); one filled by `load_traffic` is measured as it is. Events that no checkpoint covers are
covered before anything is verified. Prints a JSON line for each figure: for pages the median of 30 tries, with the
fastest and the slowest. Exits with status 1 and the figures that miss their goal, if any; goals are for the full size.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import django

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")
os.environ.setdefault("DEBUG", "true")

TRIES = 30
# The most or the least that each figure may be. The stand-alone verifier has no goal: it is written to be read.
PAGE_MS, SEARCH_MS, INSIGHTS_MS, TRACE_MS = 150, 500, 300, 300
MOST_QUERIES = 12
LONG_RUN = 2_000
EXPORT_ROWS, VERIFIED_EVENTS = 20_000, 50_000
FLAT_MEGABYTES = 16  # between a tenth of an export and its end
MISSED: list[str] = []
# Searches of the trail: everything, many events, few, none, and by words that many or few events contain.
ASKED = {
    "everything": "",
    "one person's approvals": "who:dana did:approved",
    "one tool, high risk": "risk:high,critical did:approved tool:refund_payment",
    "decided in under 3 s": "took:<3s did:approved",
    "dear runs": "cost:>0.07",
    "one agent, a week": "agent:support since:7d",
    "nothing matches": "did:undid since:1h",
}
WORDS = {
    "a common word": '"refund"',
    "a rare word": '"58123"',
    "two words": '"Ana Pereira"',
    "what people wrote": '"not what was agreed"',
    "no such word": '"xyzzy"',
}


def main() -> int:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--runs", type=int, default=200_000)
    told.add_argument("--days", type=int, default=90)
    told.add_argument("--only", default="", help="Of what is measured, that whose name has this in it.")
    arguments = told.parse_args()
    django.setup()
    fill(arguments.runs, arguments.days)
    measures = (pages, trail, insights, export, verification)
    for measure in (each for each in measures if arguments.only in each.__name__):
        measure()
    for missed in MISSED:
        print(f"Missed: {missed}")
    return 1 if MISSED else 0


def fill(runs: int, days: int) -> None:
    from django.core.management import call_command

    from agentapp.demo import opening
    from agentapp.models import Run

    opening.open_shop()
    if not Run.objects.exists():
        call_command("load_traffic", runs=runs, days=days, verbosity=2)
        call_command("back_fill_insights")
        vacuum()


def vacuum() -> None:
    """What autovacuum would have done while such a past accumulated."""
    from django.db import connection

    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")


def say(what: str, **figures: float | int | str) -> None:
    shown = {name: round(value, 1) if isinstance(value, float) else value for name, value in figures.items()}
    print(json.dumps({"measured": what, **shown}), flush=True)


def at_most(most: float, figure: float, what: str) -> None:
    if figure > most:
        MISSED.append(f"{what}: {figure:,.1f}, at most {most:,} is the goal")


def at_least(least: float, figure: float, what: str) -> None:
    if figure < least:
        MISSED.append(f"{what}: {figure:,.0f}, at least {least:,} is the goal")


def timed(what: str, fetch: Callable[[], Any], goal: float, tries: int = TRIES) -> None:
    fetch()  # what is loaded once per process does not count
    took = []
    for _ in range(tries):
        begun = time.perf_counter()
        fetch()
        took.append((time.perf_counter() - begun) * 1000)
    say(f"{what}, ms", median=statistics.median(took), min=min(took), max=max(took), goal=goal)
    at_most(goal, statistics.median(took), f"{what}, ms")


def reader(name: str = "ada") -> Any:
    """A client signed in as this person: ada may read the record."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.get(username=name))
    return client


def pages() -> None:
    """The console's other pages: their queries, and how long they take with this much data."""
    from django.contrib.auth.models import User

    from agentapp.models import Run
    from approvals.models import Approval
    from tests.agentapp.long_runs import a_long_run

    client, starter = reader("dana"), User.objects.get(username="sam")
    long = Run.objects.filter(step_count=LONG_RUN).first() or a_long_run(starter, LONG_RUN)
    Run.objects.filter(pk=long.pk).update(step_count=LONG_RUN)
    request = Approval.objects.order_by("-id").values_list("pk", flat=True)[0]
    asked = {
        "inbox": "/inbox/",
        "a request": f"/approvals/{request}/",
        "runs": "/runs/",
        "filtered runs": "/runs/?tool=refund_payment",
    }
    asked[f"a run of {LONG_RUN:,} steps"] = f"/runs/{long.pk}/"
    for name, path in asked.items():
        opened(client, name, path, TRACE_MS if "steps" in name else PAGE_MS)


def opened(client: Any, name: str, path: str, goal: float) -> str:
    """Count a page's queries, and measure how long it takes. Returns what it says."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as queries:
        answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    at_most(MOST_QUERIES, len(queries), f"{name}, queries")
    timed(f"{name} ({len(queries)} queries)", lambda: client.get(path), goal)
    return str(answer.text)


def trail() -> None:
    client = reader()
    for name, asked in {**ASKED, **WORDS}.items():
        goal = SEARCH_MS if name in WORDS else PAGE_MS
        page = opened(client, f"audit, {name}, first page", f"/audit/?{urlencode({'q': asked})}", goal)
        older = re.search(r'href="(/audit/\?[^"]*)">Older<', page)
        if older:
            opened(client, f"audit, {name}, next page", older[1].replace("&amp;", "&"), goal)


def insights() -> None:
    from django.urls import reverse

    client = reader()
    pages = {"approvals": "insights", "cost": "insights_cost", "reliability": "insights_reliability"}
    for range_ in ("24h", "14d", "90d"):
        for name, page in pages.items():
            opened(client, f"insights, {range_}, {name}", f"{reverse(page)}?range={range_}", INSIGHTS_MS)


def export() -> None:
    from agentapp.audit.exporting import AT_ONCE, Export, json_lines, zipped_csv
    from approvals.models import Event

    rows = Event.objects.count()
    for name, write in (("JSON lines", json_lines), ("CSV", zipped_csv)):
        # One piece for each batch of rows.
        drained(
            f"export of everything as {name}", write(Export(Event.objects.all(), {}, "system")), rows, rows / AT_ONCE
        )


def drained(what: str, pieces: Iterable[bytes], rows: int, expected: float) -> None:
    """Read a stream to its end, and report the memory used at a tenth of it and at its end."""
    begun, size, tenth = time.perf_counter(), 0, 0.0
    for number, piece in enumerate(pieces, 1):
        size += len(piece)
        tenth = tenth or (megabytes() if number >= expected / 10 else 0)
    took, whole = time.perf_counter() - begun, megabytes()
    say(what, rows=rows, rows_per_second=rows / took, megabytes=size / 1e6, memory_at_10_percent=tenth,
        memory_at_100_percent=whole)  # fmt: skip
    at_least(EXPORT_ROWS, rows / took, f"{what}, rows a second")
    at_most(FLAT_MEGABYTES, whole - tenth, f"{what}, MB of memory from 10 % to 100 %")


def megabytes() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def verification() -> None:
    from django.conf import settings

    from approvals import ledger
    from approvals.models import Checkpoint
    from approvals.proof import checkpoints, signing_key

    if not settings.LEDGER.signing_key:
        signing_key.generate(settings.LEDGER.signing_key_file)  # an existing key stays
    begun = time.perf_counter()
    made = checkpoints.make()
    assert Checkpoint.objects.exists()
    say("checkpoints over what none covered", checkpoints=len(made), seconds=time.perf_counter() - begun)
    begun = time.perf_counter()
    held, broken = ledger.verify()
    assert broken is None, broken
    verified("verification of everything", held, time.perf_counter() - begun)
    in_background()
    stand_alone()


def verified(what: str, events: int, took: float, **more: float | int) -> None:
    say(what, events=events, events_per_second=events / took, **more)
    at_least(VERIFIED_EVENTS, events / took, f"{what}, events a second")


def in_background() -> None:
    """As a worker does it, in slices, with a row that tracks its progress."""
    from approvals.proof import verifying

    begun, row = time.perf_counter(), verifying.start(None)
    slices = 1
    while verifying.go_on(row.pk):
        slices += 1
    row.refresh_from_db()
    assert row.holds, row.broken
    verified("verification in the background", row.events, time.perf_counter() - begun, slices=slices,
             checkpoints=row.checkpoints)  # fmt: skip


def stand_alone() -> None:
    """As an outsider does it, with a whole export and nothing of ours."""
    from approvals.proof import export as whole
    from approvals.proof import signing_key, verify_export

    with tempfile.TemporaryDirectory(prefix="countersign-benchmark-") as folder:
        file, begun = Path(folder) / "ledger.jsonl", time.perf_counter()
        with file.open("wb") as sink:
            sink.writelines(whole.lines("system"))
        exported = time.perf_counter() - begun
        key = signing_key.public_key().key_id
        command = [sys.executable, "-I", str(verify_export.__file__), str(file), "--key", key]
        begun = time.perf_counter()
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
        took = time.perf_counter() - begun
        events = int(told.removeprefix("OK: ").partition(" ")[0])
        say("verification by the stand-alone verifier", events=events, events_per_second=events / took,
            megabytes=file.stat().st_size / 1e6, seconds_to_export=exported)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
