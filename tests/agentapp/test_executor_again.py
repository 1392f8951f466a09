"""What is checked again: calls that waited, cards that replace cards, endings in the middle of a call."""

import json
import sys
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connection
from django.db.models import Sum
from django.utils import timezone

from agentapp import actions, auth, cards, concluding, contracts, executions, executor, loop, other_code, runs, waiting
from agentapp.answers import answer
from agentapp.executions import Outcome, finish_late
from agentapp.messages import Reply, StopRun, ToolResult
from agentapp.models import Agent, Conversation, Run, Spending, Step, Tool, ToolExecution
from agentapp.sweep import sweep
from agentapp.tools import python_source
from agentapp.tools.base import OutcomeUnknown, ToolContext, ToolError, tool
from approvals import configuration, decisions, delegations, ledger, snapshots, standing
from approvals.digest import canonical
from approvals.models import Approval, Event, Rule
from tests import clerk_tools
from tests.clerk_tools import effects_of, note
from tests.conftest import call, calls, make_user, says
from tests.rows import a_claimed_run

PAY = call("a", "pay", account="ana", amount=20)


def paying(amount: int) -> str:
    return json.dumps({"account": "ana", "amount": amount, "memo": ""})


def set_aside_meanwhile(monkeypatch, approval):
    """Reset a request's call to proposed, as the next worker does when it begins to look up a card's data."""
    real = cards.take_snapshot

    def meanwhile(*args):
        monkeypatch.setattr(cards, "take_snapshot", real)
        with ledger.transaction():
            runs.lock(approval.run_id)
            decisions.supersede(approval, "Its tool has changed.")
            executions.set_aside(ToolExecution.objects.get(pk=approval.execution_id), "Its tool has changed.")
        return real(*args)

    monkeypatch.setattr(cards, "take_snapshot", meanwhile)


def test_a_call_that_is_set_aside_while_another_of_its_step_runs_is_asked_about_again(clerk, dana, monkeypatch):
    """As when its tool's server is asked again: the worker read the call while it still waited for its request."""
    run = clerk.run(calls(PAY, call("b", "pay", account="bo", amount=30)), says("done"))
    first, second = clerk.open(run)
    clerk.decide(first, dana)
    set_aside_meanwhile(monkeypatch, second)
    run = clerk.drive(run)
    assert (run.state, run.waiting_for) == ("waiting", "approval")
    assert len(effects_of("pay")) == 1
    [again] = clerk.open(run)
    assert (again.execution_id, again.pk != second.pk) == (second.execution_id, True)


def test_a_call_behind_one_that_goes_on_waiting_is_asked_about_again_as_well(clerk, dana, monkeypatch):
    later = [call("b", "pay", account="bo", amount=30), call("c", "label", text="l")]
    run = clerk.run(calls(PAY, *later), says("done"))
    first, second, third = clerk.open(run)
    clerk.decide(first, dana)
    set_aside_meanwhile(monkeypatch, third)
    run = clerk.drive(run)
    assert [each.execution_id for each in clerk.open(run)] == [second.execution_id, third.execution_id]


@pytest.fixture
def behind_unknown(clerk, dana):
    """A run whose first call has an unknown outcome, and the undecided request about its second."""
    run = clerk.run(calls(call("a", "send", to="ana", how="lost"), call("b", "label", text="l")), says("done"))
    first, second = clerk.open(run)
    clerk.decide(first, dana)
    assert clerk.drive(run).waiting_for == "outcome"
    return run, second


def ask_again(approval, user):
    """Let a request expire, and ask people about its call once more."""
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    sweep()
    actions.ask_again(approval.pk, user)


def test_a_call_behind_one_whose_outcome_is_unknown_is_asked_about_again(clerk, dana, behind_unknown):
    run, second = behind_unknown
    ask_again(second, dana)
    run = clerk.drive(run)
    [again] = clerk.open(run)
    assert (again.execution_id, again.supersedes) == (second.execution_id, second)
    assert (run.state, run.waiting_for, run.wake_at) == ("waiting", "outcome", None)
    clerk.decide(again, dana)
    assert (clerk.drive(run).waiting_for, effects_of("label")) == ("outcome", [])
    actions.resolve_outcome(clerk.execution(run, "a").pk, "happened", "I saw it.", dana)
    assert (clerk.drive(run).state, effects_of("label")) == ("succeeded", [{"text": "l"}])


@pytest.mark.parametrize(("outcome", "asked"), [("happened", ["label"]), ("retry", ["send", "label"])])
def test_an_outcome_that_is_found_out_while_a_call_behind_it_is_put_on_a_card_is_seen(
    clerk, dana, behind_unknown, monkeypatch, outcome, asked
):
    run, second = behind_unknown
    ask_again(second, dana)
    real = cards.take_snapshot

    def meanwhile(*args):
        monkeypatch.setattr(cards, "take_snapshot", real)
        actions.resolve_outcome(clerk.execution(run, "a").pk, outcome, "I looked.", dana)
        return real(*args)

    monkeypatch.setattr(cards, "take_snapshot", meanwhile)
    run = clerk.drive(run)
    assert (run.waiting_for, [each.tool for each in clerk.open(run)]) == ("approval", asked)


def test_a_call_that_is_set_aside_just_before_its_run_waits_for_an_outcome_is_asked_about_again(
    clerk, dana, monkeypatch
):
    run = clerk.run(calls(call("a", "send", to="ana", how="lost"), call("b", "label", text="l")), says("done"))
    first, second = clerk.open(run)
    clerk.decide(first, dana)
    real = waiting.park

    def meanwhile(*args):
        monkeypatch.setattr(waiting, "park", real)
        ask_again(second, dana)
        return real(*args)

    monkeypatch.setattr(waiting, "park", meanwhile)
    clerk.drive(run)
    run = clerk.drive(run)
    [again] = clerk.open(run)
    assert (again.execution_id, run.waiting_for) == (second.execution_id, "outcome")


@pytest.mark.parametrize("type", ["approve", "reject"])
def test_a_decision_that_is_held_keeps_no_later_call_from_asking_again(clerk, dana, type):
    run = clerk.run(calls(PAY, call("b", "label", text="l")), says("done"))
    first, second = clerk.open(run)
    Approval.objects.filter(pk=first.pk).update(hold_seconds=60)
    clerk.decide(first, dana, type, message="No.")
    Approval.objects.filter(pk=second.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    sweep()
    actions.ask_again(second.pk, dana)
    run = clerk.drive(run)
    assert (run.state, run.waiting_for) == ("waiting", "approval")
    [again] = clerk.open(run)
    assert (again.execution_id, again.pk != second.pk) == (second.execution_id, True)
    first.refresh_from_db()
    assert run.wake_at == first.runs_at


@pytest.mark.parametrize("ended", ["approval_denied", "approval_expired"])
def test_a_worker_that_dies_behind_the_answer_of_people_leaves_a_run_that_they_stopped(clerk, dana, monkeypatch, ended):
    run = clerk.run(calls(PAY, call("b", "label", text="l")), says("never said"))
    first, _ = clerk.open(run)
    if ended == "approval_denied":
        clerk.decide(first, dana, "reject", message="Fraud.", stop_run=True)
    else:
        Approval.objects.filter(pk=first.pk).update(on_expiry="stop", expires_at=timezone.now() - timedelta(seconds=1))
        sweep()
    with monkeypatch.context() as patched:
        patched.setattr(concluding, "end", lambda *_, **__: (_ for _ in ()).throw(clerk_tools.WorkerDies))
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    assert (run.state, run.stop_reason) == ("stopped", ended)
    assert (effects_of("pay"), effects_of("label")) == ([], [])


class TestAReadThatWaitedBehindAWrite:
    @pytest.fixture
    def run(self, clerk):
        return clerk.run(calls(PAY, call("r", "look_up", what="x")), says("done"))

    def test_it_asks_when_its_tool_has_become_a_write(self, clerk, dana, run):
        Tool.objects.filter(name="look_up").update(effect_class="irreversible")
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).waiting_for == "approval"
        assert effects_of("look_up") == []
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).state == "succeeded"
        assert clerk.execution(run, "r").idempotency_key

    def test_it_asks_when_its_tool_always_asks_now(self, clerk, dana, run):
        Tool.objects.filter(name="look_up").update(approval_mode="always")
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).waiting_for == "approval"
        assert effects_of("look_up") == []

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda: Tool.objects.filter(name="look_up").update(enabled=False), "tool_disabled"),
            (lambda: Rule.objects.create(name="no", tool="look_up", verdict="deny"), "policy_changed"),
        ],
    )
    def test_it_is_refused_when_it_is_not_free_any_more(self, clerk, dana, run, change, reason):
        change()
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).state == "succeeded"
        assert (clerk.execution(run, "r").reason, effects_of("look_up")) == (reason, [])

    def test_it_runs_when_nothing_has_changed(self, clerk, dana, run):
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).state == "succeeded"
        assert effects_of("look_up") == [{"what": "x"}]


def test_a_write_that_a_rule_allowed_is_refused_when_the_rules_forbid_it_by_the_time_of_its_turn(clerk, dana):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(calls(PAY, call("l", "label", text="red")), says("done"))
    Rule.objects.create(name="freeze", tool="label", verdict="deny", description="No labels today.")
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    execution = clerk.execution(run, "l")
    assert (execution.reason, effects_of("label")) == ("policy_changed", [])
    assert "The rules now forbid this call: No labels today." in answer(execution).text


class TestAnEdit:
    def test_it_cannot_lift_a_call_into_high_risk_on_the_editors_word_alone(self, clerk, dana, marco):
        Rule.objects.create(name="small", tool="pay", verdict="ask", condition="args.amount <= 100.0", risk="low")
        Rule.objects.create(name="big", tool="pay", verdict="ask", condition="args.amount > 100.0", risk="high")
        run = clerk.run(calls(PAY), says("done"))
        clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text=paying(900))
        clerk.drive(run)
        assert effects_of("pay") == []
        (again,) = clerk.open(run)
        assert (again.title, again.risk, again.rule) == ("Pay $900.00 to Ana", "high", "big")
        with pytest.raises(actions.Refused, match="somebody else must approve"):
            clerk.decide(again, dana)
        clerk.decide(again, marco)
        assert clerk.drive(run).state == "succeeded"
        assert effects_of("pay") == [{"account": "ana", "amount": 900.0}]

    def test_a_card_that_replaces_it_has_the_terms_of_what_it_asks(self, clerk, dana, marco):
        Rule.objects.create(name="small", tool="pay", verdict="ask", condition="args.amount <= 100.0", risk="low")
        Rule.objects.create(
            name="big", tool="pay", verdict="ask", condition="args.amount > 100.0", risk="medium", approvals_needed=2
        )
        run = clerk.run(calls(PAY), says("done"))
        clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text=paying(900))
        clerk.drive(run)
        (again,) = clerk.open(run)
        assert (again.approvals_needed, again.rule) == (2, "big")
        clerk.decide(again, dana)
        clerk.decide(again, marco)
        assert clerk.drive(run).state == "succeeded"
        assert effects_of("pay") == [{"account": "ana", "amount": 900.0}]

    def test_its_editor_does_not_approve_it_on_a_card_that_replaces_it_at_high_risk(self, clerk, dana, marco):
        Rule.objects.create(name="r", tool="pay", verdict="ask", risk="high")
        run = clerk.run(calls(PAY), says("done"))
        (first,) = clerk.open(run)
        clerk.decide(first, dana, "edit", arguments_text=paying(900))
        clerk.decide(first, marco)
        clerk_tools.BALANCES["ana"] = 5
        clerk.drive(run)
        (second,) = clerk.open(run)
        assert second.editor == dana
        with pytest.raises(actions.Refused, match="somebody else must approve"):
            clerk.decide(second, dana)
        assert effects_of("pay") == []

    def test_nor_does_whoever_lent_them_the_right(self, clerk, dana, marco):
        finance = Group.objects.create(name="finance")
        finance.user_set.add(dana)
        rule = Rule.objects.create(name="r", tool="pay", verdict="ask", risk="high")
        rule.groups.set([finance])
        now = timezone.now()
        scope = delegations.Scope(groups=[finance.pk], highest_risk="high")
        lent = delegations.begin(dana, marco, now - timedelta(minutes=1), now + timedelta(days=1), scope)
        assert not isinstance(lent, standing.Refusal), lent
        run = clerk.run(calls(PAY), says("done"))
        (first,) = clerk.open(run)
        clerk.decide(first, marco, "edit", arguments_text=paying(900))
        finance.user_set.add(nora := make_user("nora", "approver"))
        clerk.decide(first, nora)
        for balance in (5, 6):  # the second card gets it from the first
            clerk_tools.BALANCES["ana"] = balance
            clerk.drive(run)
            (again,) = clerk.open(run)
            assert (again.editor, again.editor_lender) == (marco, dana)
            with pytest.raises(actions.Refused, match="changed for you, so somebody else must approve"):
                clerk.decide(again, dana)
            clerk.decide(again, nora)
        clerk.drive(run)
        assert effects_of("pay") == [{"account": "ana", "amount": 900.0}]

    def test_it_is_kept_however_often_the_card_is_replaced(self, clerk, dana):
        Rule.objects.create(name="r", tool="pay", verdict="ask", risk="low")
        run = clerk.run(calls(call("a", "pay", account="ana", amount=900)), says("done"))
        clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text=paying(20))
        for balance in (5, 6):
            clerk_tools.BALANCES["ana"] = balance
            clerk.drive(run)
            (card,) = clerk.open(run)
            assert card.title == "Pay $20.00 to Ana"
            clerk.decide(card, dana)
        clerk.drive(run)
        assert effects_of("pay") == [{"account": "ana", "amount": 20.0}]


@pytest.mark.parametrize("how", ["undone", "undone and approved anew"])
def test_an_undo_that_overtakes_the_worker_leaves_the_request_as_it_was(clerk, offer, dana, how):
    """The worker has seen that it is approved and due, and does not have the run yet."""
    overtaking = []

    def on_record(account: str) -> dict[str, str]:
        for overtake in overtaking:
            overtaking.clear()
            overtake()
        return {"account": account}

    @tool(effect="irreversible", snapshot=on_record)
    def close_account(account: str) -> str:
        """Close an account."""
        note("close_account", account=account)
        return "closed"

    def undo() -> None:
        actions.undo_decision(approval.pk, dana)
        if how != "undone":
            clerk.decide(approval, dana)
        connection.close()

    offer(close_account)
    run = clerk.run(calls(call("c", "close_account", account="ana")), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    overtaking.append(undo)
    clerk.drive(run)

    approval.refresh_from_db()
    happened = len(effects_of("close_account"))
    assert (overtaking, Approval.objects.count()) == ([], 1)
    assert (approval.state, happened) == (("pending", 0) if how == "undone" else ("used", 1))
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None


class TestAnEndingInTheMiddleOfAWrite:
    @pytest.fixture
    def run(self, clerk, dana, sam):
        """A run whose worker died in the write, and which was cancelled meanwhile."""
        run = clerk.run(calls(PAY), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        claimed = runs.claim(run.pk)
        execution = clerk.execution(run, "a")
        with ledger.transaction():
            runs.held(run.pk, claimed.lease_token)
            ToolExecution.objects.filter(pk=execution.pk).update(
                state="executing", started_at=timezone.now(), idempotency_key="k", attempts=1
            )
        actions.cancel_run(run.pk, sam)
        Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
        assert run.pk in sweep()
        return clerk.drive(run)

    def test_the_call_is_shown_to_a_person(self, clerk, run):
        assert (run.state, clerk.execution(run, "a").state) == ("cancelled", "outcome_unknown")

    def test_a_late_answer_is_kept(self, clerk, run):
        with ledger.transaction():
            runs.lock(run.pk)
            assert finish_late(Outcome(clerk.execution(run, "a"), ToolResult(data="paid")), 1)
        assert clerk.execution(run, "a").result_text == '"paid"'

    def test_it_cannot_be_tried_again_in_a_run_that_has_ended(self, clerk, dana, run):
        with pytest.raises(actions.Refused) as refused:
            actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "I looked.", dana)
        assert refused.value.code == "run_ended"
        assert clerk.execution(run, "a").state == "outcome_unknown"


def test_a_result_that_cannot_be_written_down_does_not_hide_that_the_call_happened(clerk):
    run = clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    ToolExecution.objects.update(state="executing")
    execution = clerk.execution(run, "a")
    with ledger.transaction():
        runs.lock(run.pk)
        from agentapp.executions import finish

        finish([Outcome(execution, ToolResult(data={"n": 10**5000}))])
    assert "unreadable" in clerk.execution(run, "a").result_text


def test_undoing_does_not_take_back_a_waking_that_has_another_cause(clerk, dana, settings):
    run = clerk.run(calls(PAY, call("b", "pay", account="bob", amount=1)), says("done"))
    first, second = clerk.open(run)
    Approval.objects.filter(pk=second.pk).update(hold_seconds=60)
    clerk.decide(second, dana)
    Approval.objects.filter(pk=first.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert run.pk in sweep()
    actions.undo_decision(second.pk, dana)
    assert run.pk in sweep()


def test_a_rejection_that_stops_the_run_does_not_wait_for_the_calls_before_it(clerk, dana):
    run = clerk.run(calls(PAY, call("b", "label", text="l")), says("done"))
    first, second = clerk.open(run)
    clerk.decide(second, dana, "reject", message="Fraud.", stop_run=True)
    assert clerk.drive(run).state == "stopped"
    first.refresh_from_db()
    assert (first.state, effects_of("pay")) == ("withdrawn", [])


class TestAHeldRejectionThatStopsTheRun:
    """The run is released by its worker for another reason during the hold; it must not sleep through the moment."""

    @pytest.fixture
    def held_stop(self, clerk, dana):
        def make(first):
            run = clerk.run(calls(first, call("b", "label", text="l")), says("done"))
            other, stopping = clerk.open(run)
            Approval.objects.filter(pk=stopping.pk).update(hold_seconds=60)
            clerk.decide(stopping, dana, "reject", message="Fraud.", stop_run=True)
            clerk.decide(other, dana)
            return run

        return make

    def stops(self, clerk, run):
        assert run.wake_at is not None
        past = timezone.now() - timedelta(seconds=1)
        Approval.objects.filter(state="rejected").update(runs_at=past)
        Run.objects.filter(pk=run.pk).update(wake_at=past)
        return clerk.drive(run).state == "stopped"

    def test_while_the_call_before_it_is_asked_about_again(self, clerk, held_stop):
        run = held_stop(PAY)
        clerk_tools.BALANCES["ana"] = 1
        assert clerk.drive(run).waiting_for == "approval"
        assert clerk.execution(run, "a").times_asked == 2
        assert self.stops(clerk, run)

    def test_while_nobody_knows_what_became_of_the_call_before_it(self, clerk, held_stop):
        run = held_stop(call("a", "send", to="ana", how="lost"))
        assert clerk.drive(run).waiting_for == "outcome"
        assert self.stops(clerk, run)
        assert clerk.execution(run, "a").state == "outcome_unknown"


def test_the_row_names_the_rule_that_lets_the_call_run_when_it_runs(clerk, dana):
    old = Rule.objects.create(name="old", tool="label", verdict="allow")
    run = clerk.run(calls(PAY, call("b", "label", text="l")), says("done"))
    old.delete()
    Rule.objects.create(name="new", tool="label", verdict="allow")
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    assert clerk.execution(run, "b").allowed_by == "rule:new"


def test_a_secret_is_not_quoted_when_it_does_not_fit(clerk):
    Tool.objects.filter(name="pay").update(secret_fields=["memo"])
    wrong = {"id": "a", "name": "pay", "arguments": {"account": "ana", "amount": 5, "memo": 778899665544}}
    run = clerk.run(calls(wrong), says("done"))
    told = answer(clerk.execution(run, "a")).text
    assert "778899665544" not in told
    assert "memo" in told


def test_one_failure_of_the_database_does_not_let_go_of_a_run_that_is_well(clerk, monkeypatch, settings):
    settings.LEASE_SECONDS = 1
    real, calls_made = runs.renew, []

    def flaky(run_id, token):
        calls_made.append(run_id)
        if len(calls_made) == 1:
            raise OperationalError("database is locked")
        return real(run_id, token)

    monkeypatch.setattr(runs, "renew", flaky)
    renewed = clerk_tools.GATES["one"] = _Gate(lambda: len(calls_made) >= 3)
    run = clerk.run(calls(call("a", "hang", name="one")), says("done"))
    assert renewed.opened
    assert run.state == "succeeded"


class _Gate:
    """Something a tool waits for, until a condition holds."""

    def __init__(self, condition):
        self.condition, self.opened = condition, False

    def wait(self, seconds):
        import time

        deadline = time.monotonic() + seconds
        while not self.condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.opened = self.condition()


def test_an_absurd_figure_of_a_provider_does_not_stop_the_run(clerk):
    with pytest.raises(actions.Refused, match="maximum"):
        clerk.start({"text": "x", "usage": {"cost": 1e14}})
    run = clerk.start(says("x"))
    Run.objects.filter(pk=run.pk).update(script=[{"text": "x", "usage": {"cost": 1e14, "input_tokens": 10**12}}])
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.cost, run.cost_is_partial) == ("succeeded", 0, True)


def test_nor_does_it_burden_the_day_of_its_agent(clerk):
    Agent.objects.update(max_daily_cost=5)
    run = clerk.start(says("x"))
    Run.objects.filter(pk=run.pk).update(script=[{"text": "x", "usage": {"cost": 1e14, "input_tokens": 10**12}}])
    assert loop.drive(run.pk) is None
    assert Spending.objects.aggregate(cost=Sum("cost"))["cost"] is None
    assert clerk.run(says("y")).state == "succeeded"


def test_nobody_joins_a_conversation_to_read_what_others_said_in_it(clerk, roles):
    clerk.run(says("It is hunter2."), input="What is my password?", conversation="cust-17")
    eve = User.objects.create_user("eve")
    eve.user_permissions.add(*roles["operator"].permissions.filter(codename="start_run"))
    with pytest.raises(actions.Refused) as refused:
        actions.start_run(actions.NewRun(agent="clerk", input="hi", conversation="cust-17"), eve)
    assert (refused.value.code, refused.value.field) == ("forbidden", "conversation")
    assert Conversation.objects.get().runs.count() == 1


def test_what_stops_a_run_and_what_its_provider_wants_back_keep_no_secret(clerk, offer):
    @tool(effect="read")
    def connect(to: str) -> str:
        """Connect, which fails for good."""
        raise StopRun("The gateway said: password=hunter22!", {"sent": "password=hunter22!"})

    offer(connect)
    run = clerk.run(calls(call("a", "connect", to="x"), call("b", "pay", account="ana", amount=5)), says("no"))
    assert run.state == "stopped"
    kept = json.dumps([[row.control, row.message] for row in ToolExecution.objects.filter(run=run)])
    assert ("hunter22" in kept, "password=" in kept) == (False, True)


@pytest.mark.parametrize(("text", "kept"), [("Done.", True), ("The key is password=hunter22!", False)])
def test_what_a_provider_wants_back_is_kept_unless_its_text_names_a_secret(clerk, text, kept):
    run, token = a_claimed_run()
    parts = [{"kind": "response", "parts": [{"content": text}]}]
    with ledger.transaction():
        reply = Reply(text=text, provider_parts=parts)
        runs.record_step(run, token, reply, [], timezone.now(), timezone.now())
    assert Step.objects.get(run=run).provider_parts == (parts if kept else None)


def test_a_read_that_was_begun_is_not_run_as_the_write_it_has_become(clerk, monkeypatch):
    run = clerk.start(calls(call("a", "look_up", what="x")), says("ok"))
    with monkeypatch.context() as patched:
        patched.setattr(loop, "settle", lambda state: (_ for _ in ()).throw(clerk_tools.WorkerDies))
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
    assert clerk.execution(run, "a").state == "executing"
    Tool.objects.filter(name="look_up").update(effect_class="irreversible")
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    assert effects_of("look_up") == []
    assert (run.state, clerk.execution(run, "a").reason) == ("succeeded", "action_changed")


def test_of_an_approved_read_that_had_become_a_write_nobody_knows_what_happened_if_its_worker_dies(
    clerk, monkeypatch, dana
):
    Tool.objects.filter(name="look_up").update(approval_mode="always")
    run = clerk.run(calls(call("a", "look_up", what="x")), says("ok"))
    Tool.objects.filter(name="look_up").update(effect_class="irreversible")
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)  # the request was about a read, so people are asked again
    clerk.decide(clerk.open(run)[0], dana)
    with monkeypatch.context() as patched:
        patched.setattr(executor, "_call", lambda *_: (_ for _ in ()).throw(clerk_tools.WorkerDies))
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    execution = clerk.execution(run, "a")
    assert (run.waiting_for, execution.state) == ("outcome", "outcome_unknown")
    assert (execution.effect_class, execution.consequential) == ("irreversible", True)


@pytest.mark.parametrize(("on_reject", "ended"), [("continue", "succeeded"), ("stop", "stopped")])
def test_an_agent_may_stop_when_a_person_rejects_a_call(clerk, dana, on_reject, ended):
    clerk.agent.on_reject = on_reject
    clerk.agent.save()
    run = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana, "reject", message="Not this one.")
    run = clerk.drive(run)
    assert run.state == ended
    assert clerk.execution(run, "a").reason == "approval_rejected"
    assert (run.stop_reason == "approval_denied") == (ended == "stopped")


def test_a_request_made_late_whose_group_is_gone_goes_by_the_rules_of_now(clerk, dana):
    old, new = Group.objects.create(name="Old"), Group.objects.create(name="New")
    dana.groups.add(old, new)
    Rule.objects.create(name="sends", tool="send", verdict="allow")
    rule = Rule.objects.create(name="pays", tool="pay", verdict="ask")
    rule.groups.set([old])
    run = clerk.run(
        calls(call("s", "send", to="ann", how="lost"), call("p", "pay", account="ann", amount=5)), says("done")
    )
    assert (run.waiting_for, clerk.open(run)) == ("outcome", [])
    # The rule now names another group, and the old one, which nothing names any more, is deleted.
    rule.groups.set([new])
    configuration.delete(old, "system")
    actions.resolve_outcome(clerk.execution(run, "s").pk, "happened", "I looked.", dana)
    run = clerk.drive(run)
    assert (run.state, run.waiting_for) == ("waiting", "approval")
    assert [group.name for group in clerk.open(run)[0].groups.all()] == ["New"]


class TestWhatASnapshotRefuses:
    @pytest.fixture
    def accounts(self, offer):
        """Accounts that there are. A call about another is refused while the state it rests on is looked up."""
        known = {"ana"}

        def on_record(account: str) -> dict[str, str]:
            if account not in known:
                raise ToolError(f"There is no account {account}.", refused=True)
            return {"account": account}

        @tool(effect="irreversible", snapshot=on_record)
        def close_account(account: str) -> str:
            """Close an account."""
            note("close_account", account=account)
            return "closed"

        @tool(effect="reversible")
        def open_account(account: str) -> str:
            """Open an account."""
            note("open_account", account=account)
            known.add(account)
            return "opened"

        offer(close_account, open_account)
        return known

    def test_is_told_to_the_model_and_nobody_is_asked(self, clerk, accounts):
        both = calls(call("a", "close_account", account="bob"), call("b", "close_account", account="ana"))
        run = clerk.run(both, says("done"))
        refused = clerk.execution(run, "a")
        assert (refused.state, refused.result_status) == ("finished", "refused")
        assert "There is no account bob." in answer(refused).text
        [approval] = clerk.open(run)
        assert approval.arguments == {"account": "ana"}

    def test_ends_a_request_that_was_approved_before(self, clerk, accounts, dana):
        run = clerk.run(calls(call("a", "close_account", account="ana")), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        accounts.clear()
        run = clerk.drive(run)
        refused = clerk.execution(run, "a")
        assert (run.state, refused.result_status, effects_of("close_account")) == ("succeeded", "refused", [])
        assert "There is no account ana." in answer(refused).text

    def test_is_left_to_people_where_an_earlier_call_of_the_step_may_make_it_possible(self, clerk, accounts, dana):
        both = calls(call("a", "open_account", account="bo"), call("b", "close_account", account="bo"))
        run = clerk.run(both, says("done"))
        first, second = clerk.open(run)
        assert "There is no account bo." in json.loads(second.snapshot_text)["unavailable"]
        clerk.decide(first, dana)
        clerk.decide(second, dana)
        run = clerk.drive(run)
        [again] = clerk.open(run)  # an account exists by now, which is not what was approved
        assert (again.supersedes, json.loads(again.snapshot_text)) == (second, {"account": "bo"})
        clerk.decide(again, dana)
        assert (clerk.drive(run).state, effects_of("close_account")) == ("succeeded", [{"account": "bo"}])

    def test_is_told_to_the_model_once_nothing_is_open_before_it(self, clerk, accounts, dana):
        both = calls(call("a", "open_account", account="bo"), call("b", "close_account", account="bob"))
        run = clerk.run(both, says("done"))
        first, second = clerk.open(run)
        clerk.decide(first, dana)
        clerk.decide(second, dana)
        accounts.add("bob")  # what it was approved on no longer holds, so it is looked up once more
        run = clerk.drive(run)
        [again] = clerk.open(run)
        accounts.remove("bob")
        clerk.decide(again, dana)
        run = clerk.drive(run)
        assert (run.state, clerk.execution(run, "b").result_status) == ("succeeded", "refused")
        assert effects_of("close_account") == []

    @pytest.mark.parametrize("asked_first", [False, True])
    def test_is_told_to_the_model_where_only_a_read_is_before_it(self, clerk, accounts, asked_first):
        if asked_first:
            Rule.objects.create(name="looks", tool="look_up", verdict="ask")
        both = calls(call("a", "look_up", what="bo"), call("b", "close_account", account="bo"))
        run = clerk.run(both, says("done"))
        assert clerk.execution(run, "b").result_status == "refused"
        assert [each.tool for each in clerk.open(run)] == (["look_up"] if asked_first else [])

    def test_is_left_to_people_where_they_want_a_call_tried_again_that_may_have_happened(self, clerk, offer, dana):
        """What it was to close is already closed: by the very call whose outcome was unknown."""
        closed: list[str] = []

        def still_open(account: str) -> dict[str, str]:
            if account in closed:
                raise ToolError(f"{account} is closed.", refused=True)
            return {"account": account}

        @tool(effect="irreversible", snapshot=still_open)
        def close_for_good(account: str) -> str:
            """Close an account for good."""
            closed.append(account)
            raise OutcomeUnknown("the line went dead")

        offer(close_for_good)
        run = clerk.run(calls(call("a", "close_for_good", account="ana")), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).waiting_for == "outcome"
        actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "Try it again.", dana)
        run = clerk.drive(run)
        assert (run.waiting_for, clerk.execution(run, "a").state) == ("approval", "waiting")
        [again] = clerk.open(run)
        assert json.loads(again.snapshot_text) == {"unavailable": "ToolError: ana is closed."}
        assert closed == ["ana"]


class TestAStateThatCannotBeLookedUp:
    def test_is_said_on_the_card_and_in_the_api_with_its_reason_and_without_secrets(self, clerk, offer, dana, client):
        def away(account: str, pin: str) -> dict[str, str]:
            raise ConnectionError(f"the CRM does not take {pin}")

        @tool(effect="irreversible", snapshot=away, secret=("pin",))
        def wipe(account: str, pin: str) -> str:
            """Wipe an account."""
            return "gone"

        offer(wipe)
        run = clerk.run(calls(call("a", "wipe", account="ana", pin="48151623")), says("done"))
        [approval] = clerk.open(run)
        client.force_login(dana)
        said = "What this rests on could not be looked up:</strong> ConnectionError: the CRM does not take ••••••."
        for page in (f"/approvals/{approval.pk}/", f"/inbox/peek/{approval.pk}/"):
            assert said in client.get(page).text
        _, secret = auth.issue_token(dana, "t", ["approvals:read"], "user:ada")
        bearer = {"Authorization": f"Bearer {secret}"}
        seen = client.get(f"/api/v1/approvals/{approval.pk}", headers=bearer).json()
        assert seen["state_unavailable"] == ["ConnectionError: the CRM does not take ••••••"]

    def test_of_a_plan_names_the_call(self):
        state = canonical({"1. wipe": {"version": "x", "state": snapshots.unseen("away")}, "2. pay": {"version": "y"}})
        assert snapshots.unseen_in(state) == ["1. wipe: away"]

    @pytest.mark.parametrize("text", ["", "{}", '{"unavailable": 1, "left": 2}', '{"a": {"state": "["}}', "[1]"])
    def test_is_not_found_in_a_state_that_was(self, text):
        assert snapshots.unseen_in(text) == []


class TestAStateThatSpeaksOfRefusing:
    """What a tool looks up is its own data: no name in it means that the call is refused."""

    PAYMENT = ({"refused": True}, {"refused": True, "unavailable": "card number"})

    @pytest.fixture(params=PAYMENT)
    def payment(self, request, offer):
        state = dict(request.param)

        @tool(effect="irreversible", snapshot=lambda account: state)
        def retry_payment(account: str) -> str:
            """Try a payment again."""
            note("retry_payment", account=account)
            return "tried"

        offer(retry_payment)
        return state

    def test_is_shown_to_people_and_the_call_runs_as_they_decide(self, clerk, payment, dana):
        run = clerk.run(calls(call("a", "retry_payment", account="ana")), says("done"))
        [approval] = clerk.open(run)
        assert json.loads(approval.snapshot_text) == payment
        clerk.decide(approval, dana)
        assert (clerk.drive(run).state, effects_of("retry_payment")) == ("succeeded", [{"account": "ana"}])

    def test_is_shown_to_people_where_a_mock_gives_it(self, clerk, payment):
        mocks = {"tools": {"pay": {"answers": [{"sequence": [{"result": "paid"}]}], "snapshot": payment}}}
        run = clerk.run(calls(PAY), says("done"), mocks=mocks)
        [approval] = clerk.open(run)
        assert json.loads(approval.snapshot_text) == payment


class TestCodeOfAnotherVersion:
    """A newer process has synced its tools; this one still has the earlier code."""

    @pytest.fixture
    def newer(self, clerk, offer):
        """The tool as a newer process has it: its row says so, and the code here is older."""

        @tool(name="fill", effect="irreversible", sentence="Set {seats} seats.")
        def older(seats: int) -> str:
            """Set seats."""
            note("fill", seats=seats)
            return "older"

        @tool(name="fill", effect="irreversible", sentence="Set {seats} dozen seats.")
        def newer(seats: int) -> str:
            """Set seats."""
            note("fill", seats=seats * 12)
            return "newer"

        rows = offer(older)
        Tool.objects.filter(pk=rows["fill"].pk).update(**contracts.contract_columns(newer))
        return newer

    def restart(self, newer) -> None:
        sys.modules["tools_of_a_test"].fill = newer  # type: ignore[attr-defined]
        python_source._by_name.cache_clear()
        python_source._tools_of.cache_clear()

    def left_to_others(self, clerk, dana):
        """A run whose call people have approved, and which this process has not made."""
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        [approval] = clerk.open(run)
        clerk.decide(approval, dana)
        run = clerk.drive(run)
        approval.refresh_from_db()
        assert (run.state, approval.state, effects_of("fill")) == ("queued", "approved", [])
        return run

    def test_leaves_a_call_of_a_tool_that_it_does_not_have_at_all_to_others(self, clerk, newer, dana):
        del sys.modules["tools_of_a_test"].fill  # type: ignore[attr-defined]
        python_source._by_name.cache_clear()
        python_source._tools_of.cache_clear()
        run = self.left_to_others(clerk, dana)
        self.restart(newer)
        Run.objects.filter(pk=run.pk).update(wake_at=None)
        assert (clerk.drive(run).state, effects_of("fill")) == ("succeeded", [{"seats": 36}])

    def test_runs_nothing_that_people_were_not_asked_about(self, clerk, newer, dana):
        run = self.left_to_others(clerk, dana)
        assert (
            "another version" in Event.objects.filter(run_id=run.pk, type="run.released").latest("seq").data["reason"]
        )
        self.restart(newer)
        Run.objects.filter(pk=run.pk).update(wake_at=None)
        assert (clerk.drive(run).state, effects_of("fill")) == ("succeeded", [{"seats": 36}])

    def test_does_not_answer_reads_either(self, clerk, newer):
        Tool.objects.filter(name="fill").update(effect_class="read")
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        assert (run.state, run.wake_at is not None, effects_of("fill")) == ("queued", True, [])

    def come_back(self, clerk, run, times=1):
        """The run is due again, and goes to a process without the code: this one."""
        for _ in range(times):
            Run.objects.filter(pk=run.pk).update(wake_at=None)
            run = clerk.drive(run)
        return run

    def often_enough(self) -> int:
        return other_code.GIVEN_UP_AFTER_SECONDS // other_code.LOOK_AGAIN_SECONDS

    def test_is_waited_for_a_quarter_of_an_hour_and_then_a_read_is_answered(self, clerk, newer):
        Tool.objects.filter(name="fill").update(effect_class="read")
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        run = self.come_back(clerk, run, times=self.often_enough() - 1)
        left = Event.objects.filter(run_id=run.pk, type="run.released")
        assert (run.state, sum(event.data["delay_seconds"] for event in left)) == ("queued", 15 * 60)
        run = self.come_back(clerk, run)
        answered = clerk.execution(run, "a")
        assert (run.state, answered.result_status, answered.reason) == ("succeeded", "refused", "tool_disabled")
        assert "No process has the recorded version of fill" in answer(answered).text
        assert effects_of("fill") == []

    def test_is_given_up_for_a_call_that_a_rule_allows(self, clerk, newer, monkeypatch):
        monkeypatch.setattr(other_code, "GIVEN_UP_AFTER_SECONDS", 60)
        Rule.objects.create(name="fills", tool="fill", verdict="allow")
        Tool.objects.filter(name="fill").update(effect_class="reversible")
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        run = self.come_back(clerk, run, times=self.often_enough())
        assert (run.state, clerk.execution(run, "a").reason, effects_of("fill")) == ("succeeded", "tool_disabled", [])

    def test_has_people_asked_again_about_what_they_approved(self, clerk, newer, dana, monkeypatch):
        monkeypatch.setattr(other_code, "GIVEN_UP_AFTER_SECONDS", 60)
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        [approval] = clerk.open(run)
        clerk.decide(approval, dana)
        run = self.come_back(clerk, clerk.drive(run), times=self.often_enough())
        approval.refresh_from_db()
        [again] = clerk.open(run)
        assert (run.waiting_for, approval.state, again.supersedes) == ("approval", "superseded", approval)
        clerk.decide(again, dana)
        run = clerk.drive(run)
        # The earlier wait is over: the code is waited for again.
        assert (run.state, clerk.execution(run, "a").approval_id) == ("queued", again.pk)
        self.restart(newer)
        assert (self.come_back(clerk, run).state, effects_of("fill")) == ("succeeded", [{"seats": 36}])

    def test_leaves_the_outcome_of_an_interrupted_write_to_people(self, clerk, dana, offer, monkeypatch):
        monkeypatch.setattr(other_code, "GIVEN_UP_AFTER_SECONDS", 60)

        @tool(effect="irreversible", idempotency="key", max_attempts=3)
        def transfer(amount: int, context: ToolContext) -> str:
            """Transfer an amount."""
            note("transfer", context.idempotency_key, amount=amount)
            raise clerk_tools.WorkerDies

        rows = offer(transfer)
        run = clerk.run(calls(call("a", "transfer", amount=3)), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
        Tool.objects.filter(pk=rows["transfer"].pk).update(version="f" * 64)
        Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
        run = self.come_back(clerk, clerk.drive(run), times=self.often_enough())
        lost = clerk.execution(run, "a")
        assert (run.state, run.waiting_for, lost.state) == ("waiting", "outcome", "outcome_unknown")
        assert len(effects_of("transfer")) == 1

    @pytest.fixture
    def looking(self, clerk, offer):
        """A tool that looks up what its call rests on, and does so differently from the release now going out."""

        @tool(name="fill", effect="irreversible", snapshot=lambda seats: {"free": seats})
        def older(seats: int) -> str:
            """Set seats."""
            raise AssertionError("this code is of before")

        @tool(name="fill", effect="irreversible", sentence="Set {seats} seats.", snapshot=lambda seats: {"taken": 7})
        def newer(seats: int) -> str:
            """Set seats."""
            note("fill", seats=seats)
            return "newer"

        offer(older)
        return older, newer

    def sync(self, contract) -> None:
        Tool.objects.filter(name="fill").update(**contracts.contract_columns(contract))

    def test_is_no_reason_to_ask_again_about_a_state_that_has_not_changed(self, clerk, looking, dana):
        older, newer = looking
        self.sync(newer)
        self.restart(newer)
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        [approval] = clerk.open(run)
        clerk.decide(approval, dana)
        self.restart(older)
        run = clerk.drive(run)
        approval.refresh_from_db()
        assert (run.state, approval.state, clerk.open(run)) == ("queued", "approved", [])
        self.restart(newer)
        assert (self.come_back(clerk, run).state, effects_of("fill")) == ("succeeded", [{"seats": 3}])

    def test_looks_up_nothing_for_a_request(self, clerk, looking, dana):
        _older, newer = looking
        self.sync(newer)
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        assert (run.state, run.wake_at is not None, clerk.open(run)) == ("queued", True, [])
        self.restart(newer)
        run = self.come_back(clerk, run)
        [approval] = clerk.open(run)
        assert json.loads(approval.snapshot_text) == {"taken": 7}
        clerk.decide(approval, dana)
        assert (clerk.drive(run).state, effects_of("fill")) == ("succeeded", [{"seats": 3}])

    def test_is_said_on_a_request_where_no_process_could_look(self, clerk, looking, dana, monkeypatch):
        monkeypatch.setattr(other_code, "GIVEN_UP_AFTER_SECONDS", 60)
        _older, newer = looking
        self.sync(newer)
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        run = self.come_back(clerk, run, times=self.often_enough())
        [approval] = clerk.open(run)
        assert json.loads(approval.snapshot_text) == {"unavailable": "the code here is of another version of the tool"}
        clerk.decide(approval, dana)
        self.restart(newer)
        [again] = clerk.open(clerk.drive(run))
        assert (again.supersedes, json.loads(again.snapshot_text)) == (approval, {"taken": 7})

    def test_has_people_asked_again_at_once_after_others_were_waited_for(self, clerk, looking, dana, monkeypatch):
        monkeypatch.setattr(other_code, "GIVEN_UP_AFTER_SECONDS", 60)
        older, newer = looking
        self.sync(newer)
        self.restart(newer)
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        [approval] = clerk.open(run)
        clerk.decide(approval, dana)
        self.restart(older)
        run = self.come_back(clerk, clerk.drive(run), times=self.often_enough())
        [again] = clerk.open(run)
        assert (run.waiting_for, again.supersedes) == ("approval", approval)
        superseded = Event.objects.get(run_id=run.pk, type="approval.superseded")
        assert superseded.data["reason"] == other_code.ASKED_AGAIN.format("fill")

    def test_names_the_command_that_may_be_missing_in_the_log(self, clerk, newer, caplog):
        Tool.objects.filter(name="fill").update(effect_class="read")
        clerk.run(calls(call("a", "fill", seats=3)), says("done"))
        assert "run sync_tools" in caplog.text

    def test_is_no_matter_to_a_run_whose_tools_are_mocked(self, clerk, newer):
        Tool.objects.filter(name="fill").update(effect_class="read")
        mocks = {"tools": {"fill": {"answers": [{"sequence": [{"result": "mocked"}]}]}}}
        run = clerk.run(calls(call("a", "fill", seats=3)), says("done"), mocks=mocks)
        assert (run.state, effects_of("fill")) == ("succeeded", [])
