"""What a person has stopped: nothing it covers begins another model or tool call until it is released."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agentapp import actions, executor, loop, runs, tasks
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.models import Breaker, KillSwitch, Run, Tool, ToolExecution
from agentapp.sweep import sweep
from approvals import ledger
from approvals.models import Approval, Event, Rule
from tests.agentapp.stopping import configured
from tests.clerk_tools import WorkerDies, effects_of
from tests.conftest import call, calls, says

LOOK = calls(call("a", "look_up", what="x"))
PAY = calls(call("p", "pay", account="ana", amount=20))


@pytest.fixture
def stop(mia):
    def engage(scope, key=""):
        return actions.engage_switch(scope, key, "Something is wrong.", mia)

    return engage


@pytest.fixture
def release(mia):
    def let_go(switch):
        return actions.release_switch(switch.pk, mia, "It is well again.")

    return let_go


@pytest.mark.parametrize(("scope", "key"), [("all", ""), ("agent", "clerk")])
def test_a_run_parks_before_its_next_model_call_and_holds_no_worker(clerk, stop, release, monkeypatch, scope, key):
    asked = []
    real = ScriptedDriver.next_step
    monkeypatch.setattr(ScriptedDriver, "next_step", lambda self, state: asked.append(1) or real(self, state))
    switch = stop(scope, key)
    run = clerk.run(LOOK, says("done"))
    assert (run.state, run.waiting_for, run.lease_token, run.wake_at) == ("waiting", "switch", None, None)
    assert (asked, effects_of("look_up")) == ([], [])
    assert run.pk not in sweep()
    assert release(switch) == 1
    assert clerk.drive(run).state == "succeeded"


def test_a_switch_for_another_agent_stops_nothing(clerk, stop):
    clerk.agent.pk = clerk.agent.id = None
    clerk.agent._state.adding = True
    clerk.agent.name = "other"
    clerk.agent.save()
    stop("agent", "clerk")
    assert clerk.run(says("done")).state == "succeeded"


def test_a_run_under_way_parks_and_what_runs_already_finishes(clerk, stop, release, monkeypatch):
    switches = []

    def between(self, state):
        if state.step == 2:
            switches.append(stop("all"))
        return real(self, state)

    real = ScriptedDriver.next_step
    monkeypatch.setattr(ScriptedDriver, "next_step", between)
    run = clerk.run(LOOK, calls(call("b", "look_up", what="y")), says("done"))
    # The model was thinking when the switch was engaged: its decision is kept, and does not begin.
    assert (run.state, run.waiting_for, run.step_count) == ("waiting", "switch", 2)
    assert effects_of("look_up") == [{"what": "x"}]
    assert clerk.execution(run, "b").state == "ready"
    release(switches[0])
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("look_up") == [{"what": "x"}, {"what": "y"}]


def test_a_tool_that_is_switched_off_is_not_offered(clerk, stop, release):
    switch = stop("tool", "look_up")
    run = clerk.run(LOOK, says("done"))
    assert run.state == "succeeded"
    assert clerk.execution(run, "a").reason == "tool_disabled"
    assert "look_up" not in run.steps.get(number=1).disclosed_tools
    release(switch)
    again = clerk.run(LOOK, says("done"))
    assert clerk.execution(again, "a").result_status == "ok"


def test_a_tool_switched_off_while_the_model_thinks_does_not_start(clerk, stop, monkeypatch):
    real = ScriptedDriver.next_step

    def thinking(self, state):
        if state.step == 1:
            stop("tool", "look_up")
        return real(self, state)

    monkeypatch.setattr(ScriptedDriver, "next_step", thinking)
    run = clerk.run(LOOK, says("done"))
    assert (run.state, effects_of("look_up")) == ("succeeded", [])


def test_an_approved_call_of_a_stopped_tool_is_held_and_not_lost(clerk, dana, stop, release):
    run = clerk.run(PAY, says("done"))
    (approval,) = clerk.open(run)
    switch = stop("tool", "pay")
    approval.refresh_from_db()
    assert approval.state == "pending"
    clerk.decide(approval, dana)
    clerk.drive(run)
    approval.refresh_from_db()
    assert (run.state, run.waiting_for, approval.state, effects_of("pay")) == ("waiting", "switch", "approved", [])
    release(switch)
    assert clerk.drive(run).state == "succeeded"
    approval.refresh_from_db()
    assert (approval.state, len(effects_of("pay"))) == ("used", 1)


def test_people_can_go_on_deciding_about_other_calls_of_the_step(clerk, dana, stop, release):
    run = clerk.run(calls(call("p", "pay", account="ana", amount=1), call("q", "label", text="x")), says("done"))
    first, second = clerk.open(run)
    switch = stop("tool", "pay")
    clerk.decide(first, dana)
    assert clerk.drive(run).waiting_for == "switch"
    clerk.decide(second, dana, "reject", message="No.")
    assert clerk.drive(run).waiting_for == "switch"
    release(switch)
    assert clerk.drive(run).state == "succeeded"
    assert (len(effects_of("pay")), effects_of("label")) == (1, [])


def test_a_call_that_a_rule_allows_waits_too(clerk, dana, stop, release):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(calls(call("p", "pay", account="ana", amount=1), call("q", "label", text="x")), says("done"))
    switch = stop("tool", "label")
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).waiting_for == "switch"
    assert (len(effects_of("pay")), effects_of("label")) == (1, [])
    release(switch)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("label") == [{"text": "x"}]


def test_an_approval_that_ran_out_while_a_switch_held_it_is_asked_again(clerk, dana, stop, release):
    run = clerk.run(PAY, says("done"))
    (approval,) = clerk.open(run)
    switch = stop("all")
    clerk.decide(approval, dana)
    assert clerk.drive(run).waiting_for == "switch"
    Approval.objects.filter(pk=approval.pk).update(use_by=timezone.now() - timedelta(seconds=1))
    sweep()
    release(switch)
    assert clerk.drive(run).waiting_for == "approval"
    (again,) = clerk.open(run)
    assert again.pk != approval.pk
    why = Event.objects.get(run_id=run.pk, type="tool_call.set_aside").data["why"]
    assert "while the run was held" in why
    clerk.decide(again, dana)
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1


def test_what_an_approver_changed_is_what_is_asked_again(clerk, dana, stop, release):
    Rule.objects.create(name="r", tool="pay", verdict="ask", risk="low")
    run = clerk.run(PAY, says("done"))
    (approval,) = clerk.open(run)
    switch = stop("all")
    clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 5, "memo": ""}')
    clerk.drive(run)
    Approval.objects.filter(pk=approval.pk).update(use_by=timezone.now() - timedelta(seconds=1))
    sweep()
    release(switch)
    clerk.drive(run)
    assert clerk.open(run)[0].title == "Pay $5.00 to Ana"


def test_a_read_whose_worker_died_is_not_made_again_while_its_tool_is_stopped(clerk, stop, release, dana):
    run = clerk.run(PAY, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    # The next worker finds it as if the last one had died in the middle of a read.
    ToolExecution.objects.filter(run=run).update(
        state="executing", consequential=False, approval=None, started_at=timezone.now()
    )
    switch = stop("tool", "pay")
    Run.objects.filter(pk=run.pk).update(wake_at=timezone.now() - timedelta(seconds=1))
    assert clerk.drive(run).waiting_for == "switch"
    assert effects_of("pay") == []
    release(switch)
    assert clerk.drive(run).state == "succeeded"


def test_a_waiting_run_can_be_cancelled_without_releasing_the_switch(clerk, stop, sam):
    stop("all")
    run = clerk.run(says("done"))
    actions.cancel_run(run.pk, sam)
    run.refresh_from_db()
    assert run.state == "cancelled"


def test_releasing_wakes_the_runs_and_tells_workers(clerk, stop, release, monkeypatch):
    told = []
    switch = stop("all")
    run = clerk.run(says("done"))
    monkeypatch.setattr(tasks, "nudge", lambda run_id, delay=0: told.append(run_id))
    release(switch)
    assert told == [run.pk]
    run.refresh_from_db()
    assert run.wake_at is not None


def test_a_run_that_another_switch_still_holds_parks_again(clerk, stop, release):
    one, other = stop("all"), stop("agent", "clerk")
    run = clerk.run(says("done"))
    release(one)
    assert clerk.drive(run).waiting_for == "switch"
    assert run.pk not in sweep()
    release(other)
    assert clerk.drive(run).state == "succeeded"


def test_the_sweep_finds_a_run_that_nobody_told_of_the_release(clerk, stop):
    stop("all")
    run = clerk.run(says("done"))
    assert run.pk not in sweep()
    KillSwitch.objects.all().delete()
    assert run.pk in sweep()
    assert clerk.drive(run).state == "succeeded"


@pytest.mark.parametrize(("scope", "key"), [("agent", "clerk"), ("tool", "pay")])
def test_the_sweep_leaves_a_run_that_is_held_by_its_agents_or_its_tools_switch(clerk, dana, stop, scope, key):
    run = clerk.run(PAY, says("done"))
    stop(scope, key)
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).waiting_for == "switch"
    assert run.pk not in sweep()


def test_a_release_between_look_and_wait_is_not_missed(clerk, stop, release, monkeypatch):
    switch = stop("all")
    run = clerk.start(says("done"))
    real = runs.held
    released = []

    def meanwhile(run_id, token, known=None):
        if not released:
            released.append(1)
            KillSwitch.objects.filter(pk=switch.pk).delete()
            ledger.record(ledger.CONFIGURATION, "switch.released", {"name": ""})
        return real(run_id, token, known)

    monkeypatch.setattr(runs, "held", meanwhile)
    assert clerk.drive(run).state == "succeeded"


def test_engaging_and_releasing_are_on_record_with_who_and_why(clerk, stop, release):
    switch = stop("tool", "pay")
    release(switch)
    assert configured() == ["switch.engaged", "switch.released"]
    engaged, released = Event.objects.filter(type__startswith="switch.").order_by("seq")
    assert engaged.actor.endswith(":mia")
    assert engaged.data == {"scope": "tool", "name": "pay", "reason": "Something is wrong."}
    assert released.data["note"] == "It is well again."


def test_no_mail_address_in_a_reason_comes_into_the_ledger(clerk, mia):
    switch = actions.engage_switch("tool", "pay", "It paid ana.pereira@example.com twice.", mia)
    actions.release_switch(switch.pk, mia, "ana.pereira@example.com has paid it back.")
    breaker = Breaker.objects.create(scope="tool", key="pay", state="open", opened_at=timezone.now())
    actions.reset_breaker(breaker.pk, mia, "ana.pereira@example.com waits.")
    found = Event.objects.filter(type__in=["switch.engaged", "switch.released", "breaker.reset"]).order_by("seq")
    said = [event.data.get("note") or event.data["reason"] for event in found]
    assert said == ["It paid •••••• twice.", "•••••• has paid it back.", "•••••• waits."]
    assert not Event.objects.filter(body__contains="pereira").exists()


@pytest.mark.parametrize(
    ("scope", "key", "reason", "code"),
    [
        ("planet", "", "x", "invalid"),
        ("agent", "nobody", "x", "invalid"),
        ("tool", "", "x", "invalid"),
        ("all", "clerk", "x", "invalid"),
        ("all", "", " ", "message_required"),
    ],
)
def test_a_switch_that_means_nothing_is_refused(clerk, mia, scope, key, reason, code):
    with pytest.raises(actions.Refused) as refused:
        actions.engage_switch(scope, key, reason, mia)
    assert refused.value.code == code
    assert not KillSwitch.objects.exists()


def test_a_switch_is_engaged_once_and_released_once(clerk, mia, stop, release):
    switch = stop("all")
    with pytest.raises(actions.Refused) as refused:
        stop("all")
    assert refused.value.code == "already_engaged"
    release(switch)
    with pytest.raises(actions.Refused) as refused:
        release(switch)
    assert refused.value.code == "not_found"


def test_only_managers_and_admins_may_stop_and_release(clerk, stop, ada, sam, dana):
    for user in (sam, dana):
        with pytest.raises(actions.Refused, match="kill switches"):
            actions.engage_switch("all", "", "x", user)
    switch = actions.engage_switch("all", "", "x", ada)
    with pytest.raises(actions.Refused, match="kill switches"):
        actions.release_switch(switch.pk, dana)


def test_a_parked_run_is_left_alone_by_a_second_nudge(clerk, stop):
    stop("all")
    run = clerk.run(says("done"))
    events = Event.objects.filter(run_id=run.pk).count()
    assert loop.drive(run.pk) is None
    assert Event.objects.filter(run_id=run.pk).count() == events
    assert Tool.objects.filter(name="pay", enabled=True).exists()


@pytest.mark.parametrize("by", ["switch", "cancel"])
def test_a_call_is_not_repeated_that_is_stopped_while_its_next_worker_looks_at_it(
    clerk, dana, sam, stop, release, monkeypatch, by
):
    Rule.objects.create(name="syncs", tool="sync", verdict="allow")
    run = clerk.start(calls(call("a", "sync", text="x")), says("done"))
    with monkeypatch.context() as patched:
        patched.setattr(executor, "_run_begun", lambda *_: (_ for _ in ()).throw(WorkerDies))
        with pytest.raises(WorkerDies):
            clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    done, real = [], executor._recover

    def looked_at(state, execution):
        if not done:
            done.append(stop("tool", "sync") if by == "switch" else actions.cancel_run(run.pk, sam))
        real(state, execution)

    monkeypatch.setattr(executor, "_recover", looked_at)
    run = clerk.drive(run)
    assert effects_of("sync") == []
    if by == "cancel":
        assert (run.state, clerk.execution(run, "a").state) == ("cancelled", "outcome_unknown")
        return
    assert (run.state, run.waiting_for) == ("waiting", "switch")
    release(done[0])
    assert clerk.drive(run).state == "succeeded"
    assert {effect["text"] for effect in effects_of("sync")} == {"x"}
