"""Pausing a run holds everything and loses nothing."""

import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.utils import timezone

from agentapp import actions, auth, loop
from agentapp.actions import Refused
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.models import Run
from approvals import ledger
from approvals.models import Approval, Event, Rule
from tests import clerk_tools
from tests.conftest import call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5))


def told(run: Run) -> list[str]:
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None
    return list(
        Event.objects.filter(run_id=run.pk, type__startswith="run.").order_by("seq").values_list("type", flat=True)
    )


def test_a_queued_run_is_put_aside_at_once_and_nobody_drives_it(clerk, sam):
    run = clerk.start(says("done"))
    assert actions.pause_run(run.pk, sam).state == "paused"
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.step_count) == ("paused", 0)


def test_a_resumed_run_goes_on(clerk, sam):
    run = clerk.start(says("done"))
    actions.pause_run(run.pk, sam)
    actions.resume_run(run.pk, sam)
    assert clerk.drive(run).state == "succeeded"
    assert told(run) == ["run.queued", "run.paused", "run.resumed", "run.claimed", "run.succeeded"]


def test_a_request_of_a_paused_run_is_held_and_can_be_decided_and_nothing_runs(clerk, sam, dana):
    run = clerk.run(PAY, says("done"))
    actions.pause_run(run.pk, sam)
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    run = clerk.drive(run)
    assert (run.state, clerk_tools.effects_of("pay")) == ("paused", [])
    actions.resume_run(run.pk, sam)
    assert clerk.drive(run).state == "succeeded"
    assert len(clerk_tools.effects_of("pay")) == 1


def test_an_undecided_request_of_a_paused_run_waits_again_after_it(clerk, sam):
    run = clerk.run(PAY, says("done"))
    actions.pause_run(run.pk, sam)
    actions.resume_run(run.pk, sam)
    run = clerk.drive(run)
    assert (run.state, run.waiting_for, len(clerk.open(run))) == ("waiting", "approval", 1)


def test_a_running_run_is_put_aside_before_its_next_step(clerk, sam):
    run = clerk.start(calls(call("h", "hang", name="here")), says("done"))
    clerk_tools.GATES["here"] = threading.Event()
    clerk_tools.GATES["here"].wait = lambda timeout: actions.pause_run(run.pk, sam)
    clerk.drive(run)
    run.refresh_from_db()
    assert (run.state, run.step_count, run.lease_token) == ("paused", 1, None)
    assert clerk.execution(run, "h").result_status == "ok"
    actions.resume_run(run.pk, sam)
    assert clerk.drive(run).state == "succeeded"


@pytest.fixture
def starter(sam):
    """Starts runs, and may not pause others' runs."""
    Group.objects.get(name="operator").permissions.remove(Permission.objects.get(codename="pause_run"))
    return User.objects.get(pk=sam.pk)


def test_what_a_manager_has_paused_its_starter_cannot_resume(clerk, starter, mia):
    run = clerk.start(says("done"))
    actions.pause_run(run.pk, mia)
    run.refresh_from_db()
    assert not auth.may_resume(starter, run)
    with pytest.raises(Refused) as refused:
        actions.resume_run(run.pk, starter)
    assert refused.value.code == "forbidden"
    assert f"{auth.name_of(mia)} has paused this run." in refused.value.message
    run.refresh_from_db()
    assert run.state == "paused"
    assert auth.may_resume(mia, run)
    actions.resume_run(run.pk, mia)
    actions.pause_run(run.pk, starter)  # a pause that was lifted holds nothing any more
    actions.resume_run(run.pk, starter)
    assert clerk.drive(run).state == "succeeded"


def test_a_pause_that_a_manager_asked_for_holds_also_when_a_worker_made_it(clerk, starter, mia):
    run = clerk.start(calls(call("h", "hang", name="here")), says("done"))
    clerk_tools.GATES["here"] = threading.Event()
    clerk_tools.GATES["here"].wait = lambda timeout: actions.pause_run(run.pk, mia)
    clerk.drive(run)
    with pytest.raises(Refused, match="has paused this run"):
        actions.resume_run(run.pk, starter)


def test_a_pause_of_what_is_paused_already_holds_too_and_is_on_record_once(clerk, starter, mia):
    run = clerk.start(says("done"))
    for who in (starter, mia, mia, starter):
        actions.pause_run(run.pk, who)
    assert told(run) == ["run.queued", "run.paused", "run.pause_requested"]
    with pytest.raises(Refused, match="has paused this run"):
        actions.resume_run(run.pk, starter)
    actions.resume_run(run.pk, mia)
    actions.pause_run(run.pk, starter)
    assert told(run)[-2:] == ["run.resumed", "run.paused"]


def test_a_starter_takes_no_brake_off_by_taking_over_and_handing_back(clerk, starter, mia):
    run = clerk.run(PAY, says("done"))
    actions.pause_run(run.pk, mia)
    actions.take_over_run(run.pk, starter)
    with pytest.raises(Refused, match="has paused this run"):
        actions.hand_back_run(run.pk, starter)
    assert actions.hand_back_run(run.pk, mia).state == "queued"


def test_the_pause_of_who_started_a_run_holds_nobody_who_hands_it_back(clerk, starter, dana):
    run = clerk.run(PAY, says("done"))
    actions.pause_run(run.pk, starter)
    actions.take_over_run(run.pk, dana)
    assert actions.hand_back_run(run.pk, dana).state == "queued"


def test_whether_many_runs_may_go_on_is_one_query(clerk, starter, mia, django_assert_num_queries):
    paused = [clerk.start(says("done")) for _ in range(3)]
    for run, who in zip(paused, (mia, starter, mia), strict=True):
        actions.pause_run(run.pk, who)
        run.refresh_from_db()
    starter, mia = (User.objects.get(pk=who.pk) for who in (starter, mia))
    starter.has_perm("agentapp.pause_run")  # permissions are read once
    with django_assert_num_queries(1):
        assert set(auth.braked(starter, paused)) == {paused[0].pk, paused[2].pk}
    assert auth.braked(mia, paused) == {}


def test_a_paused_run_can_be_cancelled(clerk, sam):
    run = clerk.run(PAY, says("done"))
    actions.pause_run(run.pk, sam)
    assert actions.cancel_run(run.pk, sam).state == "cancelled"


def test_only_who_may_pauses_and_an_ended_run_is_left_alone(clerk, sam, dana):
    run = clerk.start(says("done"))
    with pytest.raises(Refused, match="right to pause"):
        actions.pause_run(run.pk, dana)
    clerk.drive(run)
    with pytest.raises(Refused, match="has ended"):
        actions.pause_run(run.pk, sam)


def test_what_is_not_paused_cannot_be_resumed(clerk, sam):
    run = clerk.start(says("done"))
    with pytest.raises(Refused, match="not paused"):
        actions.resume_run(run.pk, sam)


def test_a_pause_is_obeyed_although_every_call_of_a_step_was_refused(clerk, sam, monkeypatch):
    run = clerk.start(calls(call("a", "no_such_tool")), says("done"))
    real = ScriptedDriver.next_step

    def pause_then_decide(self, state):
        actions.pause_run(run.pk, sam)
        return real(self, state)

    with monkeypatch.context() as patched:
        patched.setattr(ScriptedDriver, "next_step", pause_then_decide)
        run = clerk.drive(run)
    assert (run.state, run.step_count) == ("paused", 1)


LOOK = calls(call("r", "look_up", what="x"))


def while_thinking(monkeypatch, happens) -> None:
    """What people do during a model's next decision."""
    real, left = ScriptedDriver.next_step, [happens]

    def next_step(self, state):
        while left:
            left.pop()()
        return real(self, state)

    monkeypatch.setattr(ScriptedDriver, "next_step", next_step)


def test_a_pause_asked_for_while_the_model_thinks_holds_the_reads_it_proposes(clerk, sam, monkeypatch):
    run = clerk.start(LOOK, says("done"))
    while_thinking(monkeypatch, lambda: actions.pause_run(run.pk, sam))
    run = clerk.drive(run)
    held = clerk.execution(run, "r")
    assert (run.state, run.step_count, held.state, held.started_at) == ("paused", 1, "ready", None)
    assert clerk_tools.effects_of("look_up") == []
    actions.resume_run(run.pk, sam)
    assert clerk.drive(run).state == "succeeded"
    assert clerk_tools.effects_of("look_up") == [{"what": "x"}]


def test_a_read_that_a_pause_held_is_looked_at_again_when_the_run_goes_on(clerk, sam, monkeypatch):
    run = clerk.start(LOOK, says("done"))
    while_thinking(monkeypatch, lambda: actions.pause_run(run.pk, sam))
    clerk.drive(run)
    Rule.objects.create(name="no looks", tool="look_up", verdict="deny")
    actions.resume_run(run.pk, sam)
    run = clerk.drive(run)
    assert (clerk.execution(run, "r").reason, clerk_tools.effects_of("look_up")) == ("policy_changed", [])


def test_an_approval_that_ran_out_while_the_run_was_paused_asks_again(clerk, sam, dana):
    run = clerk.run(PAY, says("done"))
    [approval] = clerk.open(run)
    actions.pause_run(run.pk, sam)
    clerk.decide(approval, dana)
    Approval.objects.filter(pk=approval.pk).update(use_by=timezone.now() - timedelta(seconds=1))
    actions.resume_run(run.pk, sam)
    run = clerk.drive(run)
    assert (run.state, run.waiting_for, len(clerk.open(run))) == ("waiting", "approval", 1)
    assert clerk_tools.effects_of("pay") == []


def test_cancelling_wins_over_a_pause_that_was_asked_for_before(clerk, sam):
    run = clerk.start(calls(call("h", "hang", name="here")), says("done"))
    clerk_tools.GATES["here"] = threading.Event()

    def pause_and_cancel(timeout):
        actions.pause_run(run.pk, sam)
        actions.cancel_run(run.pk, sam)

    clerk_tools.GATES["here"].wait = pause_and_cancel
    run = clerk.drive(run)
    assert (run.state, run.stop_source) == ("cancelled", "person")
