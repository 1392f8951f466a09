"""What a refund run costs here: runs a second, statements, log, processor time; how soon a run goes on; kill -9.

    python benchmarks/refund.py [--runs 150] [--workers 1] [--pool threads] [--resumes 40] [--kill] [--parked 10000]
                                [--pgbouncer 8] [--acks late]

Starts a PostgreSQL and a Redis of its own, Celery workers as in production, and a second process that decides each
request as it shows up, through `actions.decide`. Everything is on; the undo hold is 0. Prints one JSON line.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import refund_work as work  # noqa: E402
from benchmarks import servers  # noqa: E402
from benchmarks import stage as staging  # noqa: E402

WARM_UP = 20
OPEN = "SELECT id FROM approvals_approval WHERE state = 'pending'"


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--runs", type=int, default=150)
    told.add_argument("--tries", type=int, default=1)
    told.add_argument("--workers", type=int, nargs="+", default=[1])
    told.add_argument("--pool", default="threads", choices=["threads", "prefork", "solo"])
    told.add_argument("--concurrency", type=int, default=4)
    told.add_argument("--acks", default="late", choices=["late", "early"], help="When a worker takes a message away.")
    told.add_argument("--resumes", type=int, default=40)
    told.add_argument("--kill", action="store_true", help="Kill workers while the runs go on, and count what happened.")
    told.add_argument("--parked", type=int, default=0, help="Measure with and without so many runs that wait.")
    told.add_argument("--statements", action="store_true", help="Print what was sent how often for a run.")
    told.add_argument("--profile", default="", help="Where py-spy writes what the first worker was at.")
    told.add_argument("--pgbouncer", type=int, default=0, help="Let everybody share so many connections through it.")
    told.add_argument("--decide", action="store_true", help=argparse.SUPPRESS)
    arguments = told.parse_args()
    if arguments.decide:
        decide_all()
        return
    with staging.stage() as stage, in_front(stage, arguments.pgbouncer) as bouncer:
        environment = environment_of(stage, arguments.kill, bouncer)
        os.environ |= environment
        import django

        django.setup()
        people = furnish()
        if arguments.kill:
            staging.say(killed(stage, arguments, people, environment))
        elif arguments.parked:
            staging.say(parked(stage, arguments, people, environment))
        else:
            for _ in range(arguments.tries):
                for workers in arguments.workers:
                    staging.say(measured(stage, arguments, people, environment, workers))


@contextmanager
def in_front(stage: staging.Stage, size: int) -> Iterator[servers.PgBouncer | None]:
    if not size:
        yield None
        return
    try:
        bouncer = servers.PgBouncer(stage.folder, stage.port, size)
    except servers.Missing as missing:
        sys.exit(f"Needs {missing}.")
    try:
        bouncer.start()
        yield bouncer
    finally:
        bouncer.end()


def environment_of(stage: staging.Stage, kills: bool, bouncer: servers.PgBouncer | None = None) -> dict[str, str]:
    own = {
        "DJANGO_SETTINGS_MODULE": "agentapp.settings",
        "DEBUG": "false",
        "SECRET_KEY": uuid.uuid4().hex * 2,
        "DATA_DIR": str(stage.folder / "files"),
        "DATABASE_URL": stage.database,
        "EFFECTS_URL": stage.database,
        "REDIS_URL": stage.redis,
        "QUEUE_NAME": "bench",
        "TOOL_MODULES": "benchmarks.refund_tools,agentapp.tools.planning",
        "UNDO_HOLD_SECONDS": "0",
        "OPEN_RUNS_PER_PERSON": "1000000",  # one person starts them all
        "PYTHONPATH": str(ROOT),
        **({"LEASE_SECONDS": "3", "SWEEP_SECONDS": "2"} if kills else {}),
        **({"DATABASE_URL": bouncer.url("bench"), "DATABASE_LISTEN_URL": stage.database} if bouncer else {}),
    }
    return {**os.environ, **own}


def of_workers(environment: dict[str, str]) -> dict[str, str]:
    """Set as the workers' units set it, and with PgBouncer as the page about capacity says."""
    return {**environment, "PREPARED_STATEMENTS": str("DATABASE_LISTEN_URL" not in environment).lower()}


def furnish() -> dict[str, Any]:
    """Tables, tools, the agent, the rule, a person who starts runs and one who decides."""
    from io import StringIO

    from django.contrib.auth.models import Group, User
    from django.core.management import call_command

    from agentapp.models import Agent, Tool
    from agentapp.roles import ensure_roles
    from approvals import configuration
    from approvals.models import Rule

    call_command("migrate", verbosity=0, interactive=False)
    call_command("sync_tools", stdout=StringIO())
    ensure_roles()
    people = {}
    for name, role in (("sam", "operator"), ("dana", "approver")):
        people[name] = User.objects.create(username=name)
        people[name].groups.set(Group.objects.filter(name=role))
    rule = Rule(name="refunds", tool="issue_refund", condition="args.amount <= 100.0", verdict="ask", hold_seconds=0)
    configuration.save(rule, "system:benchmark")
    rule.groups.set(Group.objects.filter(name="approver"))
    agent = Agent(
        name="refunds",
        instructions=work.INSTRUCTIONS,
        driver="scripted",
        model="",
        driver_settings={"script": script()},
    )
    configuration.save(agent, "system:benchmark")
    agent.tools.set(Tool.objects.filter(name__in=work.TOOLS))
    return people


def script() -> list[dict[str, Any]]:
    def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        return {"tool_calls": [{"id": f"call_{name}", "name": name, "arguments": given} for name, given in named]}

    return [
        calls(("read_order", work.ABOUT_ORDER), ("search_refund_policy", work.ABOUT_POLICY)),
        calls(("draft_refund", work.ABOUT_REFUND)),
        calls(("issue_refund", work.ABOUT_REFUND)),
        {"text": work.ANSWER},
    ]


# --- Runs a second, and what each costs ----------------------------------------------------------


def measured(
    stage: staging.Stage, told: argparse.Namespace, people: dict[str, Any], environment: Any, count: int
) -> dict[str, Any]:
    with ExitStack() as stack:
        watcher = stack.enter_context(stage.watch())
        commands = [worker(told, n) for n in range(count)]
        workers = stack.enter_context(staging.processes(commands, stage.folder, of_workers(environment)))
        had = ended(watcher)
        with deciding(stage, environment) as decider:
            start(WARM_UP, people)
            until_ended(watcher, had + WARM_UP)
            if told.profile:
                command = ["py-spy", "record", "--gil", "-f", "raw", "-o", told.profile, "-p", str(workers[0].pid)]
                spying = stack.enter_context(staging.processes([[*command, "-r", "200"]], stage.folder, environment))
            watcher.execute("SELECT pg_stat_statements_reset()")
            before, cpu = staging.spent(stage, watcher), cpu_of(workers)
            beside = staging.cpu_seconds(os.getpid()) + staging.cpu_seconds(decider.pid)
            began = time.monotonic()
            start(told.runs, people)
            queued = time.monotonic() - began
            until_ended(watcher, had + WARM_UP + told.runs)
            took = time.monotonic() - began
            if told.profile:
                spying[0].send_signal(signal.SIGINT)
                spying[0].wait(20)
            spent, cpu = staging.spent(stage, watcher).since(before), cpu_of(workers) - cpu
            beside = staging.cpu_seconds(os.getpid()) + staging.cpu_seconds(decider.pid) - beside
            said = staging.top_statements(stage) if told.statements else []
        watched = resumes(watcher, people, told.resumes)
        check(watcher)
    for calls, query in said:
        print(f"{calls / told.runs:6.2f}  {' '.join(query.split())[:230]}", file=sys.stderr)
    per = {
        "statements": spent.statements / told.runs,
        "of_them_begin_commit": spent.transactional / told.runs,
        "wal_kb": spent.wal / told.runs / 1024,
        "worker_cpu_ms": cpu / told.runs * 1000,
        "database_cpu_ms": spent.database_cpu / told.runs * 1000,
        "cpu_ms": (cpu + spent.database_cpu) / told.runs * 1000,
        "starter_and_decider_cpu_ms": beside / told.runs * 1000,
    }
    return {
        "side": "countersign", "workers": count, "pool": told.pool, "acks": told.acks, "runs": told.runs,
        "runs_per_s": round(told.runs / took, 2), "queued_in_s": round(queued, 2),
        **{name: round(value, 2) for name, value in per.items()},
        **({"resume_p50_ms": round(staging.percentile(watched, 0.5), 2),
            "resume_p95_ms": round(staging.percentile(watched, 0.95), 2)} if watched else {}),
    }  # fmt: skip


def worker(told: argparse.Namespace, number: int) -> list[str]:
    options = ["-P", told.pool, "-c", str(told.concurrency), "-n", f"bench{number}@%h", "-l", "ERROR"]
    acks = f"task.acks_late={'yes' if told.acks == 'late' else 'no'}"
    return [sys.executable, "-m", "celery", "-A", "agentapp", "worker", *options, "--", acks]


def cpu_of(workers: list["subprocess.Popen[bytes]"]) -> float:
    every = [pid for process in workers for pid in (process.pid, *staging.children(process.pid))]
    return sum(staging.cpu_seconds(pid) for pid in every)


def start(count: int, people: dict[str, Any]) -> list[Any]:
    from agentapp import actions

    return [actions.start_run(actions.NewRun("refunds", work.INPUT), people["sam"]).pk for _ in range(count)]


def until_ended(watcher: Any, count: int) -> None:
    try:
        staging.until(lambda: ended(watcher) >= count, f"{count} runs to end")
    except SystemExit:
        states = "SELECT state, waiting_for, wake_at <= now(), count(*) FROM agentapp_run GROUP BY 1, 2, 3"
        print(f"They are {watcher.execute(states).fetchall()}.", file=sys.stderr)
        raise


def ended(watcher: Any) -> int:
    [count] = watcher.execute("SELECT count(*) FROM agentapp_run WHERE finished_at IS NOT NULL").fetchone()
    return int(count)


@contextmanager
def deciding(stage: staging.Stage, environment: Any) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, str(Path(__file__).resolve()), "--decide"]
    watching = {"WATCH_PORT": str(stage.port)}
    with staging.processes([command], stage.folder, {**environment, **watching}) as [process]:
        yield process


def decide_all() -> None:
    """The second process: approve every request as it turns up, until told to stop."""
    import django

    django.setup()
    import psycopg
    from django.contrib.auth.models import User

    dana = User.objects.get(username="dana")
    url = f"postgres://{staging.WATCHER}@127.0.0.1:{os.environ['WATCH_PORT']}/bench"
    with psycopg.connect(url, autocommit=True) as watcher:
        while True:
            pending = watcher.execute(OPEN).fetchall()
            for [approval_id] in pending:
                approve(approval_id, dana)
            if not pending:
                time.sleep(0.005)


def approve(approval_id: uuid.UUID, user: Any) -> None:
    from agentapp import actions
    from approvals.models import Approval

    shown = Approval.objects.only("version", "action_digest").get(pk=approval_id)
    new = actions.NewDecision(uuid.uuid4(), "approve", shown.version, shown.action_digest, via="api")
    actions.decide(approval_id, new, user)


# --- How soon a run goes on ----------------------------------------------------------------------


def resumes(watcher: Any, people: dict[str, Any], count: int) -> list[float]:
    """One run after the other: ms between the decision's own time, before its commit, and the row of the refund."""
    from agentapp.models import Run

    took = []
    for _ in range(count):
        [run_id] = start(1, people)
        query, about = f"{OPEN} AND run_id = %s", [run_id]
        staging.until(lambda: watcher.execute(query, about).fetchall(), "a request", 0.002)  # noqa: B023
        approve(watcher.execute(query, about).fetchall()[0][0], people["dana"])
        staging.until(lambda: Run.objects.get(pk=run_id).is_final, "a run to end", 0.005)  # noqa: B023
        [decided, paid] = watcher.execute(
            "SELECT decided_at, at FROM approvals_approval a JOIN effects e ON e.run_id = a.run_id::text"
            " WHERE a.run_id = %s AND e.tool = 'issue_refund'", [run_id],
        ).fetchone()  # fmt: skip
        took.append((paid - decided).total_seconds() * 1000)
    return took


def check(watcher: Any) -> None:
    """Every run succeeded, and did what it should once."""
    [wrong] = watcher.execute("SELECT count(*) FROM agentapp_run WHERE state <> 'succeeded'").fetchone()
    per_run = "SELECT count(*) AS n FROM effects GROUP BY run_id, tool"
    [repeated] = watcher.execute(f"SELECT count(*) FROM ({per_run}) AS t WHERE n <> 1").fetchone()  # noqa: S608
    if wrong or repeated:
        sys.exit(f"{wrong} runs did not succeed; {repeated} tools ran more than once in a run.")


# --- Killed workers ------------------------------------------------------------------------------


def killed(stage: staging.Stage, told: argparse.Namespace, people: dict[str, Any], environment: Any) -> dict[str, Any]:
    """Two workers, one of which is killed every half to one and a half seconds, until every run has come to rest."""
    from agentapp.models import Run

    commands = [worker(told, n) for n in range(2)]
    beat = [sys.executable, "-m", "celery", "-A", "agentapp", "beat", "-l", "ERROR", "--pidfile="]
    drawn, kills = random.Random(1), 0  # noqa: S311
    with ExitStack() as stack:
        watcher = stack.enter_context(stage.watch())
        stack.enter_context(staging.processes([beat], stage.folder, environment))
        stack.enter_context(deciding(stage, environment))
        running = [
            stack.enter_context(staging.processes([each], stage.folder, of_workers(environment)))[0]
            for each in commands
        ]
        start(told.runs, people)
        rests = "SELECT count(*) FROM agentapp_run WHERE finished_at IS NOT NULL OR waiting_for = 'outcome'"
        began = time.monotonic()
        while watcher.execute(rests).fetchone() != (told.runs,):
            time.sleep(drawn.uniform(0.5, 1.5))
            if time.monotonic() - began < told.runs / 3:
                at = drawn.randrange(2)
                running[at].kill()
                running[at].wait()
                kills += 1
                running[at] = stack.enter_context(
                    staging.processes([commands[at]], stage.folder, of_workers(environment))
                )[0]
            elif time.monotonic() - began > told.runs / 3 + staging.PATIENCE_SECONDS:
                break
        per_run = "SELECT count(*) AS n FROM effects WHERE tool = 'issue_refund' GROUP BY run_id"
        [repeated] = watcher.execute(f"SELECT count(*) FROM ({per_run}) AS t WHERE n > 1").fetchone()  # noqa: S608
        states = list(Run.objects.values_list("state", "waiting_for"))
    shown = states.count(("waiting", "outcome"))
    done = states.count(("succeeded", ""))
    return {
        "side": "countersign", "measured": "kill -9", "runs": told.runs, "kills": kills, "succeeded": done,
        "shown_to_a_person": shown, "lost": told.runs - done - shown, "repeated_refunds": repeated,
    }  # fmt: skip


# --- Runs that wait ------------------------------------------------------------------------------


def parked(stage: staging.Stage, told: argparse.Namespace, people: dict[str, Any], environment: Any) -> dict[str, Any]:
    """What workers and database use in 30 idle seconds, and how soon a run goes on, with and without waiting runs."""
    figures: dict[str, Any] = {}
    beat = [sys.executable, "-m", "celery", "-A", "agentapp", "beat", "-l", "ERROR", "--pidfile="]
    with ExitStack() as stack:
        watcher = stack.enter_context(stage.watch())
        workers = stack.enter_context(staging.processes([worker(told, 0)], stage.folder, of_workers(environment)))
        stack.enter_context(staging.processes([beat], stage.folder, environment))
        resumes(watcher, people, WARM_UP)
        for name in ("without", "with"):
            if name == "with":
                park(watcher, stage, people, told.parked)
            resumes(watcher, people, 5)
            took = resumes(watcher, people, told.resumes)
            before, cpu = staging.spent(stage, watcher), cpu_of(workers)
            time.sleep(30)
            after = staging.spent(stage, watcher).since(before)
            figures |= {
                f"resume_p50_ms_{name}": round(staging.percentile(took, 0.5), 2),
                f"idle_worker_cpu_percent_{name}": round((cpu_of(workers) - cpu) / 30 * 100, 2),
                f"idle_database_cpu_percent_{name}": round(after.database_cpu / 30 * 100, 2),
                f"worker_mb_{name}": round(staging.memory_mb(workers[0].pid)),
            }
    return {"side": "countersign", "measured": "parked runs", "parked": told.parked, **figures}


def park(watcher: Any, stage: staging.Stage, people: dict[str, Any], count: int) -> None:
    """Let one run wait, and copy its rows to get as many waiting runs as asked for."""
    import psycopg

    [run_id] = start(1, people)
    staging.until(lambda: watcher.execute(f"{OPEN} AND run_id = %s", [run_id]).fetchall(), "a request")
    own = {"agentapp_run": "id", "agentapp_step": "run_id", "agentapp_toolexecution": "run_id",
           "approvals_approval": "run_id", "approvals_event": "run_id"}  # fmt: skip
    made_of_run = {"id", "run_id", "step_id", "approval_id", "execution_id"}
    with psycopg.connect(stage.database) as connection:
        connection.execute(f"CREATE TEMP TABLE clones AS SELECT n FROM generate_series(1, {int(count)}) AS n")  # noqa: S608
        connection.execute("SET session_replication_role = replica")
        for table, about in own.items():
            columns = [name for [name] in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s", [table])]  # fmt: skip
            # Each copy of the run gets the same new id in every table.
            taken = [
                f"md5({name}::text || n)::uuid" if name in made_of_run
                else "'run:' || md5(run_id::text || n)::uuid" if name == "chain"
                else "md5(hash || n) || md5(n || hash)" if name == "hash"
                else f'"{name}"'
                for name in columns
            ]  # fmt: skip
            named = ", ".join(f'"{name}"' for name in columns)
            connection.execute(
                f"INSERT INTO {table} ({named}) SELECT {', '.join(taken)} FROM {table}, clones WHERE {about} = %s",  # noqa: S608
                [run_id],
            )
    with psycopg.connect(stage.database, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


if __name__ == "__main__":
    main()
