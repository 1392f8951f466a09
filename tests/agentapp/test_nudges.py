"""Telling workers: by the right name, and never in the way of what was done."""

import uuid
from datetime import timedelta

from agentapp import nudges, tasks
from agentapp.models import Heartbeat
from approvals import broker
from approvals.clock import Now
from tests.conftest import call, calls, says
from tests.teams import Team


def test_a_nudge_names_the_task_that_drives_a_run():
    assert tasks.drive_run.name == nudges.DRIVE_RUN


def test_of_sweeps_that_have_waited_for_a_worker_one_nudges_each_run(clerk, monkeypatch):
    run, told = clerk.start(says("done")), []
    monkeypatch.setattr(tasks, "nudge", told.append)
    for _ in range(5):
        tasks.sweep()
    assert told == [run.pk]
    Heartbeat.objects.update(at=Now() - timedelta(minutes=1))
    tasks.sweep()
    assert told == [run.pk, run.pk]


def test_a_broker_that_is_down_is_noted_and_stops_nobody(monkeypatch, caplog):
    def down(*arguments, **more):
        raise OSError("no route to host")

    monkeypatch.setattr(broker.current_app, "send_task", down)
    run_id = uuid.uuid4()
    nudges.nudge(run_id)
    assert f"about run {run_id}" in caplog.text


def test_an_asking_run_goes_on_though_every_nudge_is_lost(clerk, monkeypatch):
    team = Team(clerk)
    team.may_ask("refunds", says("yes"))
    monkeypatch.setattr(broker.current_app, "send_task", lambda *arguments, **more: None)
    assert team.run(calls(call("a", "ask_refunds", input="?")), says("done")).state == "succeeded"
