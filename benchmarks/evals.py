"""What an eval run takes: as many cases as asked for from the demo shop's suite, with scripted models and mocked tools.

    DEBUG=true python benchmarks/evals.py [--cases 200] [--at-most 30]

Runs the cases here, in a throw-away database, without a worker: the suite repeats, each case once per round, until
there are enough.

Prints JSON lines: the seconds of the whole, and the milliseconds per case, as the median with the fastest and the
slowest. With `--at-most`, it exits with status 1 if the whole took longer than this many seconds.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import cycle, islice, pairwise
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")
os.environ.setdefault("DEBUG", "true")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cases", type=int, default=200)
    arguments.add_argument("--at-most", type=float, metavar="SECONDS")
    given = arguments.parse_args()
    count = given.cases
    django.setup()
    from agentapp.demo import check, opening
    from agentapp.evals import results, runner, suites
    from agentapp.evals.cases import Repeats

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="countersign-benchmark-")))
        stack.enter_context(check.throw_away_database(folder))
        opening.open_shop()
        suite = suites.load(opening.EVALS).suite
        own = [suites.case_of(row) for row in suite.cases.all()]
        cases = [
            case.model_copy(update={"name": f"{case.name[:70]}-{number}", "repeats": Repeats()})
            for number, case in enumerate(islice(cycle(own), count))
        ]
        made = results.create(suite, cases)
        ends = [time.perf_counter()]
        runner.go_on(made.pk, seconds=float("inf"), told=lambda _: ends.append(time.perf_counter()))
        made.refresh_from_db()
        assert (made.verdict, made.done) == ("passed", count), (made.verdict, made.done)
    tries = [(end - begin) * 1000 for begin, end in pairwise(ends)]
    took = ends[-1] - ends[0]
    print(json.dumps({"measured": f"an eval of {count} cases, s", "seconds": round(took, 1)}))
    figures = {"median": statistics.median(tries), "min": min(tries), "max": max(tries)}
    print(json.dumps({"measured": "a case, ms", **{name: round(value, 1) for name, value in figures.items()}}))
    if given.at_most is not None and took > given.at_most:
        sys.exit(f"It took {took:.1f} s, which is more than {given.at_most:g} s.")


if __name__ == "__main__":
    main()
