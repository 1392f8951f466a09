"""A call that is stopped or forbidden while a worker waits for a lock to begin it does not begin."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from agentapp import actions, executor, runs, storing, totals
from agentapp.models import Agent, Run, Spending, Tool
from approvals import configuration, ledger
from approvals.models import CheckpointLeaf, Event, Rule
from approvals.proof import checkpoints
from tests.clerk_tools import WorkerDies, effects_of
from tests.conftest import call, calls, says
from tests.races import HeldUp
from tests.wire import DIALECTS, Answer, provider

__all__ = ["provider"]
DIALECT = DIALECTS["openai"]
pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
PAY = calls(call("p", "pay", account="ana", amount=20))
LOOK = calls(call("l", "look_up", what="x"))


@pytest.fixture(autouse=True)
def _kept(settings, clerk):
    """As in production: what was read at one state of the configuration is not read again."""
    settings.CONFIGURATION_KEPT_SECONDS = 10
    configuration.save(Rule(name="something", tool="send", verdict="ask"), "user:ada")


@pytest.fixture
def change(mia) -> Callable[[str, str], None]:
    def made(what: str, tool: str) -> None:
        if what == "everything is stopped":
            actions.engage_switch("all", "", "Something is wrong.", mia)
        elif what == "its tool is stopped":
            actions.engage_switch("tool", tool, "Something is wrong.", mia)
        elif what == "a rule forbids it":
            configuration.save(Rule(name="never", tool=tool, verdict="deny"), "user:ada")
        else:
            row = Tool.objects.get(name=tool)
            row.enabled = False
            configuration.save(row, "user:ada")

    return made


EVERY = ["everything is stopped", "its tool is stopped", "a rule forbids it", "its tool is switched off"]


def held_up(monkeypatch: Any, at: tuple[Any, str], lock: Callable[[], object], change: Callable[[], object]) -> HeldUp:
    """Make the worker find a lock held by somebody else when it comes to call a function of a module."""
    meanwhile = HeldUp(lock, change, getattr(*at))
    monkeypatch.setattr(*at, meanwhile)
    return meanwhile


def driven(clerk: Any, run: Run, meanwhile: HeldUp) -> Run:
    found: Run = clerk.drive(run)
    meanwhile.done()
    assert not Event.objects.filter(type="tool_call.started", chain=ledger.run_chain(run.pk)).exists()
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None
    return found


def outcome(clerk: Any, run: Run, id: str) -> str:
    """What the run waits for, or why the call was refused."""
    return str(run.waiting_for or clerk.execution(run, id).reason)


@pytest.mark.parametrize("what", EVERY)
def test_an_approved_call_whose_worker_waits_for_the_run(clerk, dana, monkeypatch, change, what):
    run = clerk.run(PAY, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    door = (executor.subagents, "lock_family")
    meanwhile = held_up(monkeypatch, door, lambda: runs.lock(run.pk), lambda: change(what, "pay"))
    found = driven(clerk, run, meanwhile)
    assert effects_of("pay") == []
    stopped = {EVERY[0]: "switch", EVERY[1]: "switch", EVERY[2]: "policy_changed", EVERY[3]: "tool_disabled"}
    assert outcome(clerk, found, "p") == stopped[what]
    kept = clerk.execution(run, "p").approval.state
    assert kept == ("approved" if stopped[what] == "switch" else "superseded")


@pytest.mark.parametrize("what", EVERY)
def test_an_allowed_call_whose_worker_waits_for_others_that_are_counted(clerk, monkeypatch, change, what):
    configuration.save(
        Rule(name="few", tool="pay", verdict="allow", condition="history.count('pay', '1h') < 5"), "user:ada"
    )
    run = clerk.start(PAY, says("done"))
    count = totals._one_at_a_time
    meanwhile = held_up(monkeypatch, (totals, "_one_at_a_time"), count, lambda: change(what, "pay"))
    found = driven(clerk, run, meanwhile)
    assert effects_of("pay") == []
    assert outcome(clerk, found, "p") in ("switch", "policy_changed", "tool_disabled")


@pytest.mark.parametrize("what", EVERY)
def test_a_read_that_begins_with_its_step_whose_worker_waits_for_the_run(clerk, monkeypatch, change, what):
    run = clerk.start(LOOK, says("done"))
    door = (storing.runs, "record_step")
    meanwhile = held_up(monkeypatch, door, lambda: runs.lock(run.pk), lambda: change(what, "look_up"))
    found = driven(clerk, run, meanwhile)
    assert effects_of("look_up") == []
    assert outcome(clerk, found, "l") in ("switch", "policy_denied", "tool_disabled")
    # What the model said is stored once, and was requested once.
    assert found.steps.filter(number=1).count() == 1
    assert found.step_count == found.steps.count() == (1 if found.waiting_for else 2)


@pytest.mark.usefixtures("one_day")
def test_a_read_that_begins_with_its_step_whose_worker_waits_for_the_day_of_its_agent(clerk, monkeypatch, change):
    Agent.objects.update(max_daily_cost=Decimal(3))
    Spending.objects.create(agent=clerk.agent, day=timezone.now().date(), cost=1)
    look = {**LOOK, "usage": {"input_tokens": 7, "output_tokens": 1, "cost": 0.5}}
    run = clerk.start(look, says("done"))

    def lock() -> None:
        Spending.objects.update(cost=1)

    meanwhile = held_up(monkeypatch, (storing.budgets, "spend"), lock, lambda: change(EVERY[0], "look_up"))
    found = driven(clerk, run, meanwhile)
    assert (effects_of("look_up"), found.waiting_for) == ([], "switch")
    assert (found.step_count, found.input_tokens, found.cost) == (1, 7, Decimal("0.5"))
    assert Spending.objects.get().cost == Decimal("1.5")


def test_a_read_behind_a_write_whose_worker_waits_for_the_run(clerk, dana, monkeypatch, change):
    run = clerk.run(calls(call("p", "pay", account="ana", amount=1), call("l", "look_up", what="x")), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    real = executor.leading_reads.start_late
    meanwhile = HeldUp(lambda: runs.lock(run.pk), lambda: change("a rule forbids it", "look_up"), real)
    monkeypatch.setattr(executor.leading_reads, "start_late", meanwhile)
    found = clerk.drive(run)
    meanwhile.done()
    assert (effects_of("look_up"), len(effects_of("pay")), found.state) == ([], 1, "succeeded")
    assert clerk.execution(run, "l").reason == "policy_changed"


def test_a_repetition_under_its_key_whose_worker_waits_for_the_run(clerk, monkeypatch, change):
    Rule.objects.create(name="syncs", tool="sync", verdict="allow")
    run = clerk.start(calls(call("a", "sync", text="x")), says("done"))
    with monkeypatch.context() as patched:
        patched.setattr(executor, "_run_begun", lambda *_: (_ for _ in ()).throw(WorkerDies))
        with pytest.raises(WorkerDies):
            clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    door = (executor, "_recover")
    meanwhile = held_up(monkeypatch, door, lambda: runs.lock(run.pk), lambda: change(EVERY[0], "sync"))
    found = clerk.drive(run)
    meanwhile.done()
    assert (effects_of("sync"), found.waiting_for) == ([], "switch")
    assert (clerk.execution(run, "a").state, clerk.execution(run, "a").attempts) == ("executing", 1)


def test_a_call_whose_worker_waits_for_a_checkpoint_that_covers_its_run(
    clerk, dana, monkeypatch, change, settings, tmp_path
):
    settings.LEDGER = replace(
        settings.LEDGER, signing_key="", signing_key_file=tmp_path / "ledger.key", makes_key=True, anchor_url=""
    )
    run = clerk.run(PAY, says("done"))
    checkpoints.make()  # of the configuration too, so that the next one does not hold who engages the switch
    clerk.decide(clerk.open(run)[0], dana)
    meanwhile = held_up(monkeypatch, (executor.subagents, "begin"), checkpoints.make, lambda: change(EVERY[0], "pay"))
    found = driven(clerk, run, meanwhile)
    assert (effects_of("pay"), found.waiting_for) == ([], "switch")
    assert CheckpointLeaf.objects.filter(chain=ledger.run_chain(run.pk)).count() == 2


def test_a_model_whose_worker_waits_for_the_run(clerk, monkeypatch, change, provider):
    Agent.objects.update(model=DIALECT.model, driver="tool_calling")
    provider.answer(Answer(DIALECT.reply(calls=[("l", "look_up", {"what": "x"})])), Answer(DIALECT.reply("done")))
    run = actions.start_run(actions.NewRun(agent="clerk", input="Look."), clerk.starter)
    # What a read returned is stored, and the next step would begin.
    meanwhile = held_up(monkeypatch, (runs, "held"), lambda: runs.lock(run.pk), lambda: change(EVERY[0], ""))
    found = clerk.drive(run)
    meanwhile.done()
    assert (len(provider.questions), found.waiting_for, effects_of("look_up")) == (1, "switch", [{"what": "x"}])
    assert clerk.execution(run, "l").result_status == "ok"


def test_what_is_configured_and_has_nothing_to_do_with_it_holds_no_call_up(clerk, dana, monkeypatch):
    run = clerk.run(PAY, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    other = Rule(name="labels", tool="label", verdict="deny")
    door = (executor.subagents, "lock_family")
    meanwhile = held_up(monkeypatch, door, lambda: runs.lock(run.pk), lambda: configuration.save(other, "user:ada"))
    assert clerk.drive(run).state == "succeeded"
    meanwhile.done()
    assert len(effects_of("pay")) == 1
    assert Event.objects.filter(type="tool_call.started", chain=ledger.run_chain(run.pk)).count() == 1
