"""What a new version does to an older one's rows."""

import importlib

from django.apps import apps
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader

from agentapp.models import Agent, Run
from agentapp.toolset import snapshot_of
from approvals import append_only, ledger
from approvals.models import Event
from tests.conftest import call, calls, says

runtime = importlib.import_module("agentapp.migrations.0003_runtime")
limits = importlib.import_module("agentapp.migrations.0004_limits")
console = importlib.import_module("agentapp.migrations.0005_console")
traces = importlib.import_module("agentapp.migrations.0026_traces")
links = importlib.import_module("approvals.migrations.0019_event_links")
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


def test_events_that_were_there_before_are_found_by_what_their_text_says(clerk):
    run = clerk.start(calls(call("a", "look_up", what="1")), says("done"))
    assert clerk.drive(run).state == "succeeded"
    append_only.remove(connection)
    Event.objects.update(actor_key="", execution_id=None, tool="", took_ms=None)
    assert ledger.verify()[1] is not None
    links.fill(apps, None)
    assert ledger.verify()[1] is None
    completed = Event.objects.get(type="tool_call.completed")
    assert (completed.tool, completed.execution_id) == ("look_up", clerk.execution(run, "a").pk)
    assert completed.took_ms is not None


def test_runs_of_before_there_were_traces_are_each_in_one_with_those_they_asked(clerk):
    one, other = clerk.start(says("one")), clerk.start(says("other"))
    child = clerk.start(says("asked"))
    below = clerk.start(says("asked too"))
    Run.objects.filter(pk=child.pk).update(parent=one, depth=1)
    Run.objects.filter(pk=below.pk).update(parent=child, depth=2)
    Run.objects.update(trace_id="")
    traces.trace_older_runs(apps, None)
    found = dict(Run.objects.values_list("pk", "trace_id"))
    assert found[one.pk] == found[child.pk] == found[below.pk] == one.pk.hex
    assert found[other.pk] == other.pk.hex


def test_a_new_database_is_made_as_one_that_went_through_every_migration():
    single = MigrationLoader(None, replace_migrations=False)
    squashed = MigrationLoader(None)
    found = MigrationAutodetector(single.project_state(), squashed.project_state())._detect_changes()
    assert found == {}
