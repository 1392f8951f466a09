"""How soon a process of the product reaches PostgreSQL again after it was away.

    python benchmarks/outage.py [--away 0 4 10 30 120] [--tries 6]

The process has a dozen idle connections when PostgreSQL is killed, and asks every half second meanwhile, as a web
server with a few people does. Counts from PostgreSQL's first answer to anybody. Each try is a little longer than the
one before, since the pool tries to connect in a rhythm of its own. Prints one JSON line for each length; exits with
status 1 if one took longer than it may.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stage as staging  # noqa: E402
from benchmarks.servers import Postgres  # noqa: E402

IDLE = 12
ASKS_EVERY_SECONDS = 0.5
LONGER_BY_SECONDS = 0.37
MOST_SECONDS = 3


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--away", type=float, nargs="+", default=[0, 4, 10, 30, 120], help="Seconds.")
    told.add_argument("--tries", type=int, default=6)
    arguments = told.parse_args()
    with tempfile.TemporaryDirectory(prefix="countersign-outage-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL may run as somebody else
        with running(Postgres(Path(folder), {"listen_addresses": "127.0.0.1"})) as server:
            os.environ |= {"DATABASE_URL": server.url("postgres"), "DATA_DIR": folder, "DEBUG": "true"}
            os.environ["DJANGO_SETTINGS_MODULE"] = "agentapp.settings"
            import django

            django.setup()
            slowest = 0.0
            for seconds in arguments.away:
                seen = [outage(server, seconds + LONGER_BY_SECONDS * number) for number in range(arguments.tries)]
                back = [took for took, _ in seen]
                slowest = max(slowest, *back)
                staging.say({
                    "measured": "outage", "away_s": seconds, "tries": len(seen),
                    "back_p50_s": round(statistics.median(back), 3), "back_max_s": round(max(back), 3),
                    "waited_in_vain_max_s": round(max(waited for _, waited in seen), 2),
                })  # fmt: skip

    if slowest > MOST_SECONDS:
        sys.exit(f"It took {slowest:.1f} s; {MOST_SECONDS} s are promised.")


@contextmanager
def running(server: Postgres) -> Iterator[Postgres]:
    server.start()
    try:
        yield server
    finally:
        server.end(signal.SIGQUIT)


def outage(server: Postgres, seconds: float) -> tuple[float, float]:
    """How long after PostgreSQL's return somebody is answered, and how long anybody has waited to be refused."""
    use(IDLE)
    server.end(signal.SIGQUIT)
    returned: list[float] = []

    def come_back() -> None:
        server.start()
        returned.append(time.monotonic())

    threading.Timer(seconds, come_back).start()
    in_vain = 0.0
    while True:
        asked = time.monotonic()
        if answered() and returned:
            return max(0.0, time.monotonic() - returned[0]), in_vain
        in_vain = max(in_vain, time.monotonic() - asked)
        time.sleep(ASKS_EVERY_SECONDS)


def use(count: int) -> None:
    """Use so many connections at once, and leave them to the pool."""
    threads = [threading.Thread(target=answered, args=["SELECT pg_sleep(0.3)"]) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def answered(question: str = "SELECT 1") -> bool:
    from django.db import Error, connection

    try:
        with connection.cursor() as cursor:
            cursor.execute(question)
        return True
    except Error:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
