"""How long the runs of a worker that is killed stand still, with the leases and sweeps that are shipped.

    python benchmarks/recovery.py [--kills 8] [--runs 16]

Each time, a worker is killed in the middle of a call of each of its runs, and another one is started. A run goes on
when it is claimed again. Prints one JSON line; exits with status 1 if a run stood still for longer than LEASE_SECONDS
and SWEEP_SECONDS together, plus a second.
"""

import argparse
import os
import random
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import refund  # noqa: E402
from benchmarks import stage as staging  # noqa: E402

HELD = "SELECT id::text, lease_token::text FROM agentapp_run WHERE state = 'running'"
AGAIN = "SELECT id::text, lease_token::text FROM agentapp_run WHERE id = ANY(%s::uuid[])"


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--kills", type=int, default=8)
    told.add_argument("--runs", type=int, default=16, help="So many at once, which is what a worker has threads for.")
    arguments = told.parse_args()
    with staging.stage() as stage:
        environment = refund.environment_of(stage, kills=False)
        environment["TOOL_MODULES"] = "benchmarks.recovery_tools,agentapp.tools.planning"
        for name in ("LEASE_SECONDS", "SWEEP_SECONDS"):  # as shipped
            environment.pop(name, None)
            os.environ.pop(name, None)
        os.environ |= environment
        import django

        django.setup()
        from django.conf import settings

        most = settings.LEASE_SECONDS + settings.SWEEP_SECONDS
        took = stood_still(stage, arguments, environment, settings.SWEEP_SECONDS)
        staging.say({
            "measured": "recovery", "lease_seconds": settings.LEASE_SECONDS, "sweep_seconds": settings.SWEEP_SECONDS,
            "kills": arguments.kills, "runs": len(took), "p50_s": round(statistics.median(took), 1),
            "p95_s": round(staging.percentile(took, 0.95), 1), "min_s": round(min(took), 1),
            "max_s": round(max(took), 1),
        })  # fmt: skip
    if max(took) > most + 1:
        sys.exit(f"A run stood still for {max(took):.1f} s; {most} s are promised.")


def stood_still(
    stage: staging.Stage, told: argparse.Namespace, environment: dict[str, str], sweep_seconds: float
) -> list[float]:
    """Seconds from the kill to the next claim, of every run that the worker held."""
    furnish()
    drawn, took = random.Random(1), list[float]()  # noqa: S311
    beat = [sys.executable, "-m", "celery", "-A", "agentapp", "beat", "-l", "ERROR", "--pidfile="]
    with ExitStack() as stack:
        watcher = stack.enter_context(stage.watch())
        stack.enter_context(staging.processes([beat], stage.folder, environment))
        for number in range(told.kills):
            worker = begin(stack, stage, environment, told.runs, 2 * number)
            time.sleep(drawn.uniform(0, sweep_seconds))  # at any time between two sweeps
            start(told.runs)
            staging.until(lambda: len(watcher.execute(HELD).fetchall()) == told.runs, "a worker to hold every run")
            time.sleep(drawn.uniform(0.5, 4))  # at any time of a lease
            held = dict(watcher.execute(HELD).fetchall())
            if len(held) != told.runs:
                sys.exit("A run ended before its worker was killed.")
            worker.kill()
            worker.wait()
            killed = time.monotonic()
            other = begin(stack, stage, environment, told.runs, 2 * number + 1)
            went_on = dict[str, float]()

            def all_went_on(held: dict[str, str] = held, went_on: dict[str, float] = went_on) -> bool:
                for run, token in watcher.execute(AGAIN, [list(held)]).fetchall():
                    if token != held[run]:
                        went_on.setdefault(run, time.monotonic() - killed)  # noqa: B023
                return len(went_on) == len(held)

            staging.until(all_went_on, "another worker to claim every run", every=0.05)
            took += went_on.values()
            staging.until(lambda: not watcher.execute(HELD).fetchall(), "all runs to end")
            other.terminate()
            other.wait()
    return took


def begin(stack: ExitStack, stage: staging.Stage, environment: dict[str, str], threads: int, number: int) -> Any:
    command = refund.worker(argparse.Namespace(pool="threads", concurrency=threads), number)
    [process] = stack.enter_context(staging.processes([command], stage.folder, refund.of_workers(environment)))
    return process


def furnish() -> None:
    from io import StringIO

    from django.contrib.auth.models import Group, User
    from django.core.management import call_command

    from agentapp.models import Agent, Tool
    from agentapp.roles import ensure_roles
    from approvals import configuration

    call_command("migrate", verbosity=0, interactive=False)
    call_command("sync_tools", stdout=StringIO())
    ensure_roles()
    User.objects.create(username="sam").groups.set(Group.objects.filter(name="operator"))
    reply = {"tool_calls": [{"id": "c", "name": "wait_for_report", "arguments": {"name": "Sales"}}]}
    script = {"script": [reply, {"text": "It is there."}]}
    agent = Agent(name="reports", instructions="Be exact.", driver="scripted", driver_settings=script)
    configuration.save(agent, "system:benchmark")
    agent.tools.set(Tool.objects.filter(name="wait_for_report"))


def start(count: int) -> None:
    from django.contrib.auth.models import User

    from agentapp import actions

    sam = User.objects.get(username="sam")
    for _ in range(count):
        actions.start_run(actions.NewRun("reports", "Sales"), sam)


if __name__ == "__main__":
    main()
