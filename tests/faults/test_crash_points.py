"""If a worker is killed at any line, its run finishes or is shown to a person; nothing runs twice.

Each test kills a real process at one point and lets another worker take over. What happened to the world is read from
the world, not from the database.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE

import pytest
from django.db import connection
from django.utils import timezone

from agentapp import actions, loop
from agentapp.models import Run, ToolExecution
from agentapp.sweep import sweep
from approvals import ledger
from approvals.models import Approval, Event, Question
from tests.conftest import call, calls, install_tools, says
from tests.faults.world import effects

TOOLS = ["charge", "charge_once"]
TOOL_MODULES = ["tests.clerk_tools", "tests.faults.world"]


@pytest.fixture
def world(tmp_path, monkeypatch, clerk, settings):
    """The clerk with tools that act on a world outside the database."""
    path = tmp_path / "world.jsonl"
    monkeypatch.setenv("WORLD", str(path))
    settings.TOOL_MODULES = TOOL_MODULES
    clerk.agent.tools.add(*install_tools("tests.faults.world").values())
    return clerk


@pytest.fixture(scope="module")
def dying(django_db_setup) -> Iterator["subprocess.Popen[str]"]:
    """Starts processes that are to die, once it has loaded what they need."""
    database = connection.settings_dict
    url = (
        f"sqlite:///{database['NAME']}"
        if connection.vendor == "sqlite"
        else f"postgres://{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
        f"/{database['NAME']}"
    )
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "agentapp.settings",
        "DEBUG": "true",
        "TOOL_MODULES": ",".join(TOOL_MODULES),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "REDIS_URL": "",
    }
    command = [sys.executable, "-m", "tests.faults.crash"]
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def die(dying, tmp_path):
    """Have a process do something and die at a point, and check that it did."""

    def die(point: str, what: str, subject: object) -> None:
        log = tmp_path / "dying.log"
        told = {"point": point, "what": what, "subject": str(subject), "world": os.environ["WORLD"], "log": str(log)}
        dying.stdin.write(json.dumps(told) + "\n")
        dying.stdin.flush()
        code = dying.stdout.readline().strip()
        assert code == "137", f"{point} was not reached: {code} {log.read_text()}"

    return die


def take_over(run: Run) -> Run:
    """What happens next: the dead worker's lease expires, a sweep finds the run, a worker drives it."""
    Run.objects.filter(pk=run.pk, state="running").update(lease_until=timezone.now() - timedelta(seconds=1))
    for _ in range(3):
        if run.pk not in sweep():
            break
        loop.drive(run.pk)
    run.refresh_from_db()
    return run


def approved_run(clerk, dana, tool: str, count: int = 1) -> Run:
    """A run with approved calls that nobody has acted on yet."""
    run = clerk.run(calls(*[call(f"c{n}", tool, item=f"item-{n}") for n in range(count)]), says("done"))
    for approval in clerk.open(run):
        clerk.decide(approval, dana)
    return run


def state_of(run: Run) -> tuple[str, str, int]:
    execution = ToolExecution.objects.get(run=run, call_id="c0")
    return run.state, execution.state, len(effects())


def assert_record_holds(run: Run) -> None:
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None
    used = Approval.objects.filter(run_id=run.pk, state="used").values_list("execution_id", flat=True)
    begun = run.executions.filter(started_at__isnull=False).values_list("pk", flat=True)
    assert sorted(used) == sorted(begun), "an approval lets its call begin, and no call begins without one"


@pytest.mark.parametrize("tool", TOOLS)
def test_p0_a_decision_nobody_was_told_about_is_found_by_the_sweep(world, dana, tool, die):
    run = world.run(calls(call("c0", tool, item="x")), says("done"))
    die("P0", "decide", world.open(run)[0].pk)
    assert state_of(take_over(run)) == ("succeeded", "finished", 1)
    assert_record_holds(run)


@pytest.mark.parametrize(
    ("point", "plain", "keyed"),
    [
        ("P1", ("waiting", "outcome_unknown", 0), ("succeeded", "finished", 1)),
        ("P2", ("waiting", "outcome_unknown", 0), ("succeeded", "finished", 1)),
        ("P3", ("waiting", "outcome_unknown", 1), ("succeeded", "finished", 1)),
        ("P4", ("waiting", "outcome_unknown", 1), ("succeeded", "finished", 1)),
        ("P5", ("succeeded", "finished", 1), ("succeeded", "finished", 1)),
        ("P6", ("succeeded", "finished", 1), ("succeeded", "finished", 1)),
        ("P8", ("succeeded", "finished", 1), ("succeeded", "finished", 1)),
    ],
)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_worker_killed_around_a_call_leaves_what_can_be_known(world, dana, tool, point, plain, keyed, die):
    run = approved_run(world, dana, tool)
    recorded = Event.objects.filter(chain=ledger.run_chain(run.pk))
    before = recorded.count()
    die(point, "drive", run.pk)
    if point == "P8":
        kept = [event.type for event in recorded.order_by("seq")[before:]]
        assert kept == ["run.claimed"], "events are kept of the transaction that was open"
    expected = keyed if tool == "charge_once" else plain
    assert state_of(take_over(run)) == expected
    if expected[1] == "outcome_unknown":
        unknown = ToolExecution.objects.get(run=run, call_id="c0")
        actions.resolve_outcome(unknown.pk, "happened" if expected[2] else "did_not_happen", "I looked.", dana)
        assert take_over(run).state == "succeeded"
        assert len(effects()) == expected[2]
    assert_record_holds(run)


@pytest.mark.parametrize("tool", TOOLS)
def test_p6_a_message_delivered_twice_makes_no_second_step(world, dana, tool):
    run = approved_run(world, dana, tool)
    loop.drive(run.pk)
    loop.drive(run.pk)
    run.refresh_from_db()
    assert (run.state, run.step_count, len(effects())) == ("succeeded", 2, 1)


@pytest.mark.parametrize("tool", TOOLS)
def test_p7_a_reply_that_was_not_stored_is_asked_for_again_and_proposed_once(world, dana, tool, die):
    run = world.start(calls(call("c0", tool, item="x")), says("done"))
    die("P7", "drive", run.pk)
    assert take_over(run).state == "waiting"
    assert ToolExecution.objects.filter(run=run).count() == 1
    assert len(world.open(run)) == 1
    assert effects() == []
    assert_record_holds(run)


@pytest.mark.parametrize("tool", TOOLS)
def test_p9_a_worker_killed_between_calls_leaves_their_order_and_runs_each_once(world, dana, tool, die):
    run = approved_run(world, dana, tool, count=5)
    die("P9", "drive", run.pk)
    assert [effect["item"] for effect in effects()] == ["item-0", "item-1"]
    assert take_over(run).state == "succeeded"
    assert [effect["item"] for effect in effects()] == [f"item-{n}" for n in range(5)]
    assert_record_holds(run)


@pytest.mark.parametrize("point", ["P10", "P11"])
def test_a_worker_killed_while_it_asks_the_agent_leaves_the_question_to_the_next(world, dana, point, die):
    answer = {"text": "The order says so.", "usage": {"input_tokens": 7, "output_tokens": 3}}
    run = world.run(calls(call("c0", "charge", item="x")) | {"answer": answer}, says("done"))
    [approval] = world.open(run)
    run.refresh_from_db()
    before = run.input_tokens
    actions.ask_agent(approval.pk, "Why?", dana)
    die(point, "drive", run.pk)
    approval.refresh_from_db()
    assert (approval.state, Question.objects.get().answer) == ("asked", "")
    assert take_over(run).state == "waiting"
    approval.refresh_from_db()
    run.refresh_from_db()
    assert (approval.state, Question.objects.get().answer) == ("pending", "The order says so.")
    assert (run.input_tokens - before, effects()) == (7, [])
    world.decide(approval, dana)
    assert take_over(run).state == "succeeded"
    assert len(effects()) == 1
    assert_record_holds(run)
