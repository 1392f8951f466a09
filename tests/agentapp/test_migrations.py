"""What a new version does to the rows of an older one."""

import importlib

from django.apps import apps

from agentapp.models import Run
from agentapp.toolset import snapshot_of
from tests.conftest import call, calls, says

runtime = importlib.import_module("agentapp.migrations.0003_runtime")
BEFORE = {
    "name", "instructions", "driver", "model", "model_settings", "parallel_tool_calls", "max_steps", "max_tokens",
    "max_cost", "tools", "routes",
}  # fmt: skip


def test_a_run_that_began_before_there_were_limits_goes_on_without_them(clerk):
    run = clerk.start(*[calls(call(f"c{n}", "look_up", what=str(n))) for n in range(7)], says("done"))
    Run.objects.update(agent_snapshot={name: value for name, value in run.agent_snapshot.items() if name in BEFORE})
    runtime.complete_snapshots(apps, None)
    assert clerk.drive(run).state == "succeeded"


def test_everything_a_new_run_is_given_an_old_one_is_given_too(clerk):
    assert set(snapshot_of(clerk.agent)) == {*runtime.UNLIMITED, *BEFORE}
