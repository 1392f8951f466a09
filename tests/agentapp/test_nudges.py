"""Telling workers: by the right name, and never in the way of what was done."""

import uuid

from agentapp import nudges, tasks
from approvals import broker
from tests.conftest import call, calls, says
from tests.teams import Team


def test_a_nudge_names_the_task_that_drives_a_run():
    assert tasks.drive_run.name == nudges.DRIVE_RUN


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
