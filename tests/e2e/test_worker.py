"""A real Celery worker, killed whole in the middle of a call, and the next one that takes over."""

import subprocess
import threading

import pytest
import redis

from agentapp import actions
from agentapp.models import Agent, Run, ToolExecution
from approvals import ledger
from tests.conftest import call, calls, install_tools, says
from tests.faults.world import effects
from tests.processes import PATIENCE_SECONDS, Processes, until
from tests.wire import DIALECTS, Answer, Question, provider

__all__ = ["provider"]

pytestmark = pytest.mark.redis
OPENAI = DIALECTS["openai"]


@pytest.fixture
def world(tmp_path, monkeypatch, clerk, settings):
    """The clerk with tools that act on a world outside the database, and a queue of this test's own."""
    monkeypatch.setenv("WORLD", str(tmp_path / "world.jsonl"))
    settings.TOOL_MODULES = ["tests.faults.world"]
    clerk.agent.tools.set(install_tools("tests.faults.world").values())
    return clerk


@pytest.fixture
def worker(world, tmp_path):
    """Starts workers with beat; `crash_at` makes a worker's tools kill its process. All are stopped in the end."""
    processes = Processes(tmp_path, TOOL_MODULES="tests.faults.world")

    def start(crash_at: str = "", threads: int = 2, **variables: str) -> subprocess.Popen[bytes]:
        process = processes.worker(threads, CRASH_AT=crash_at, **variables)
        processes.beat()
        return process

    yield start
    processes.end_all()


def state(run: Run) -> str:
    run.refresh_from_db()
    return run.state


@pytest.mark.parametrize(
    ("tool", "then", "happened"), [("charge", "waiting", 1), ("charge_once", "succeeded", 1)], ids=["plain", "keyed"]
)
def test_a_worker_that_dies_after_the_effect_never_repeats_it(world, worker, dana, tool, then, happened):
    run = world.start(calls(call("c0", tool, item="x")), says("done"))
    first = worker(crash_at="P3")
    until(lambda: state(run) == "waiting", "the call to wait for a person")
    (approval,) = world.open(run)
    world.decide(approval, dana)
    until(lambda: first.poll() is not None, "the worker to die in the call")
    worker()
    until(lambda: state(run) == then and run.waiting_for in ("", "outcome"), f"the run to be {then}")
    assert len(effects()) == happened
    if then == "waiting":
        unknown = ToolExecution.objects.get(run=run)
        assert unknown.state == "outcome_unknown"
        actions.resolve_outcome(unknown.pk, "happened", "The bank says so.", dana)
        until(lambda: state(run) == "succeeded", "the run to finish")
        assert len(effects()) == happened
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None


def test_thirty_two_runs_wait_for_their_models_at_once_in_one_worker(world, worker, provider):
    """The model answers nobody until everybody has asked: a worker that cannot hold them all never gets an answer."""
    everybody = threading.Barrier(32)

    def answer(question: Question) -> Answer:
        everybody.wait(PATIENCE_SECONDS)
        return Answer(OPENAI.reply("Done."))

    provider.answer_with = answer
    world.agent.driver, world.agent.model = "tool_calling", OPENAI.model
    world.agent.save()
    # Half as many connections as runs: a run that waits for its model holds none.
    worker(threads=32, LEASE_SECONDS="60", DATABASE_POOL_SIZE="16")
    started = [actions.start_run(actions.NewRun(agent="clerk", input=f"Number {n}."), world.starter) for n in range(32)]
    until(lambda: all(state(run) in Run.FINAL for run in started), "all runs to end")
    assert {(run.state, run.answer) for run in started} == {("succeeded", "Done.")}


def test_runs_of_an_agent_with_a_queue_of_its_own_are_left_to_its_workers(world, tmp_path, settings):
    settings.AGENT_QUEUES = {"clerk": "slow"}
    processes = Processes(tmp_path, TOOL_MODULES="tests.faults.world", AGENT_QUEUES="clerk=slow")
    usual, slow = processes.queue, f"{processes.queue}.slow"
    other = {"driver": "scripted", "driver_settings": {"script": [says("done")]}}
    Agent.objects.create(name="other", **other)
    kept_apart = world.start(says("done"))
    taken = actions.start_run(actions.NewRun("other", "Hello."), world.starter)
    try:
        processes.worker(queue=usual)
        processes.beat()
        until(lambda: state(taken) == "succeeded", "the usual worker to take a run")
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            until(lambda: list(client.scan_iter(f"{slow}*")), "a message in the other queue")
        another = actions.start_run(actions.NewRun("other", "Hello again."), world.starter)
        until(lambda: state(another) == "succeeded", "the usual worker to take a run that came later")
        assert (state(kept_apart), kept_apart.claimed_at) == ("queued", None)
        own = processes.worker(queue=slow)
        until(lambda: state(kept_apart) == "succeeded", "its own worker to take it")
        processes.end(own)
        later = world.start(says("done"))
        processes.worker()
        until(lambda: state(later) == "succeeded", "a worker that is told no queue to take it")
    finally:
        processes.end_all()
