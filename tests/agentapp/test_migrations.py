"""What a new version does to the rows of an older one."""

import importlib

from django.apps import apps

from agentapp.models import Agent, Run
from agentapp.toolset import snapshot_of
from tests.conftest import call, calls, says

runtime = importlib.import_module("agentapp.migrations.0003_runtime")
limits = importlib.import_module("agentapp.migrations.0004_limits")
console = importlib.import_module("agentapp.migrations.0005_console")
BEFORE = {
    "name", "instructions", "driver", "model", "model_settings", "parallel_tool_calls", "max_steps", "max_tokens",
    "max_cost", "tools", "routes",
}  # fmt: skip


def test_a_run_that_began_before_there_were_limits_goes_on_without_them(clerk):
    run = clerk.start(*[calls(call(f"c{n}", "look_up", what=str(n))) for n in range(7)], says("done"))
    Run.objects.update(agent_snapshot={name: value for name, value in run.agent_snapshot.items() if name in BEFORE})
    runtime.complete_snapshots(apps, None)
    console.complete_snapshots(apps, None)
    assert clerk.drive(run).state == "succeeded"


def test_everything_a_new_run_is_given_an_old_one_is_given_too(clerk):
    added = {*runtime.UNLIMITED, *limits.AS_BEFORE, *console.UNSEEN}
    assert set(snapshot_of(clerk.agent)) == {*added, *BEFORE}


def test_a_run_that_began_before_a_call_too_many_could_end_it_goes_on_without(clerk):
    Agent.objects.update(max_calls=1)
    run = clerk.start(calls(call("a", "look_up", what="1"), call("b", "look_up", what="2")), says("done"))
    before = {name: value for name, value in run.agent_snapshot.items() if name not in limits.AS_BEFORE}
    Run.objects.update(agent_snapshot=before)
    limits.complete_snapshots(apps, None)
    run.refresh_from_db()
    assert run.agent_snapshot == {**before, "on_call_limit": "refuse"}
    assert clerk.drive(run).state == "succeeded"
    assert (clerk.execution(run, "a").reason, clerk.execution(run, "b").reason) == ("", "call_limit_exceeded")
