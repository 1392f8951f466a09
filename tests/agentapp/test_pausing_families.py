"""A pause reaches the agents that a run has asked: none of them runs until somebody resumes it."""

import threading

import pytest
from django.contrib.auth.models import Group, Permission, User

from agentapp import actions, loop
from agentapp.actions import Refused
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.models import Run
from agentapp.sweep import sweep
from approvals.models import Approval, Event
from tests import clerk_tools
from tests.conftest import call, calls, says
from tests.teams import Team, child_of

PAY = calls(call("p", "pay", account="ana", amount=5))


@pytest.fixture
def starter(sam):
    """Starts runs, and may not pause others' runs."""
    Group.objects.get(name="operator").permissions.remove(Permission.objects.get(codename="pause_run"))
    return User.objects.get(pk=sam.pk)


@pytest.fixture
def team(clerk, starter) -> Team:
    made = Team(clerk)
    made.may_ask("payer", PAY, says("Paid."))
    return made


@pytest.fixture
def asking(team) -> Run:
    """A run that waits for an agent, which waits for people."""
    return team.run(calls(call("a", "ask_payer", input="Pay.")), says("done"))


def states(run: Run) -> tuple[str, str]:
    run.refresh_from_db()
    return run.state, child_of(run).state


def pauses_of(run: Run) -> list[str]:
    asked = Event.objects.filter(run_id=run.pk, type__in=("run.paused", "run.pause_requested")).order_by("seq")
    return list(asked.values_list("type", flat=True))


def test_nothing_below_a_paused_run_runs_and_it_all_goes_on_together(team, asking, starter, dana):
    actions.pause_run(asking.pk, starter)
    assert states(asking) == ("paused", "paused")
    for approval in Approval.objects.filter(state="pending"):
        team.clerk.decide(approval, dana)
    assert sweep() == []
    actions.resume_run(asking.pk, starter)
    assert team.drive_all(asking).state == "succeeded"
    assert states(asking) == ("succeeded", "succeeded")


def test_an_agent_that_works_is_put_aside_before_its_next_step(team, starter):
    team.may_ask("looker", calls(call("h", "hang", name="below")), says("Looked."))
    run = team.clerk.start(calls(call("a", "ask_looker", input="Look.")), says("done"))
    clerk_tools.GATES["below"] = threading.Event()
    clerk_tools.GATES["below"].wait = lambda timeout: actions.pause_run(run.pk, starter)
    team.drive_all(run)
    assert states(run) == ("paused", "paused")
    actions.resume_run(run.pk, starter)
    assert team.drive_all(run).state == "succeeded"


def test_what_was_paused_by_itself_stays_so(team, asking, starter, dana):
    child = child_of(asking)
    actions.pause_run(child.pk, starter)
    actions.pause_run(asking.pk, starter)
    actions.resume_run(asking.pk, starter)
    team.drive_all(asking)
    assert states(asking) == ("waiting", "paused")
    actions.resume_run(child.pk, starter)
    team.drive_all(asking)
    assert states(asking)[1] == "waiting"


def test_who_has_paused_a_run_can_pause_one_it_asked_for_by_itself_too(team, asking, starter):
    child = child_of(asking)
    for run in (asking, asking, child, child):
        actions.pause_run(run.pk, starter)
    assert pauses_of(asking) == ["run.paused"]
    assert pauses_of(child) == ["run.paused", "run.pause_requested"]
    actions.resume_run(asking.pk, starter)
    team.drive_all(asking)
    assert states(asking) == ("waiting", "paused")
    actions.resume_run(child.pk, starter)
    team.drive_all(asking)
    assert states(asking) == ("waiting", "waiting")


def test_a_manager_who_pauses_it_too_holds_all_of_it(asking, starter, mia):
    for who in (starter, mia, mia):
        actions.pause_run(asking.pk, who)
    child = child_of(asking)
    assert pauses_of(asking) == pauses_of(child) == ["run.paused", "run.pause_requested"]
    for run in (asking, child):
        with pytest.raises(Refused, match="has paused this run"):
            actions.resume_run(run.pk, starter)
    actions.resume_run(asking.pk, mia)
    assert "paused" not in states(asking)


def test_handing_back_lets_nothing_go_on_that_a_manager_holds(clerk, team, starter, dana, mia):
    run = team.run(calls(call("a", "ask_payer", input="Pay.")), says("done"), conversation="ticket-7")
    actions.take_over_run(run.pk, starter)
    actions.pause_run(child_of(run).pk, mia)
    with pytest.raises(Refused, match="has paused a run that it asked for"):
        actions.hand_back_run(run.pk, starter)
    assert states(run) == ("paused", "paused")
    actions.hand_back_run(run.pk, mia)
    assert "paused" not in states(run)


def test_what_was_put_aside_with_a_run_goes_on_when_it_is_handed_back(team, starter):
    run = team.run(calls(call("a", "ask_payer", input="Pay.")), says("done"), conversation="ticket-7")
    actions.pause_run(run.pk, starter)
    actions.take_over_run(run.pk, starter)
    actions.hand_back_run(run.pk, starter)
    assert "paused" not in states(run)


def test_a_pause_that_came_too_late_keeps_nobody_from_handing_back(clerk, starter, mia, monkeypatch):
    run = clerk.start(says("done"), conversation="ticket-7")
    real = ScriptedDriver.next_step

    def next_step(self, *arguments):
        actions.pause_run(run.pk, mia)
        return real(self, *arguments)

    monkeypatch.setattr(ScriptedDriver, "next_step", next_step)
    run = clerk.drive(run)
    assert (run.state, run.pause_requested_at is not None) == ("succeeded", True)
    actions.take_over_run(run.pk, starter)
    assert actions.hand_back_run(run.pk, starter).taken_over_by is None


def test_a_message_to_a_paused_run_waits_behind_it(clerk, starter, mia):
    clerk.agent.on_new_message = "cancel"
    clerk.agent.save()
    run = clerk.run(PAY, says("done"), conversation="ticket-7")
    actions.pause_run(run.pk, mia)
    new = actions.NewRun("clerk", "And now?", conversation="ticket-7", script=[says("Now.")])
    later = actions.start_run(new, starter)
    assert sweep() == []
    assert loop.drive(later.pk) is None
    run.refresh_from_db()
    later.refresh_from_db()
    assert (run.state, later.state) == ("paused", "queued")
    actions.resume_run(run.pk, mia)
    run.refresh_from_db()
    assert run.state == "queued"
