"""The gate and the calls: what runs, when, how often, and what the model is told."""

import json
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from agentapp import actions, contracts
from agentapp.answers import answer
from agentapp.models import Run, Tool
from agentapp.tools.base import OutcomeUnknown, ToolContext, tool
from approvals import configuration, ledger
from approvals.masking import CHANGED_MASK, MASK
from approvals.models import Approval, Event, Rule
from tests import clerk_tools
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says


def told(clerk, run, call_id):
    """What the model reads about one call."""
    return answer(clerk.execution(run, call_id)).text


def test_reads_run_without_a_person(clerk):
    run = clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    assert (run.state, run.answer) == ("succeeded", "done")
    assert effects_of("look_up") == [{"what": "x"}]


def test_neighbouring_reads_run_at_the_same_time(clerk):
    clerk_tools.GATES.update(one=threading.Event(), two=threading.Event())
    # Each is released by the start of the other: in sequence they would wait for ever.
    original = clerk_tools.GATES["one"].wait
    clerk_tools.GATES["one"].wait = lambda timeout: clerk_tools.GATES["two"].set() or original(timeout)
    original_two = clerk_tools.GATES["two"].wait
    clerk_tools.GATES["two"].wait = lambda timeout: clerk_tools.GATES["one"].set() or original_two(timeout)
    run = clerk.run(calls(call("a", "hang", name="one"), call("b", "hang", name="two")), says("done"))
    assert [clerk.execution(run, c).result_status for c in "ab"] == ["ok", "ok"]


def test_the_same_read_twice_in_one_step_runs_once_and_answers_twice(clerk):
    run = clerk.run(calls(call("a", "look_up", what="x"), call("b", "look_up", what="x")), says("done"))
    assert effects_of("look_up") == [{"what": "x"}]
    assert told(clerk, run, "a") == told(clerk, run, "b") == '{"found": "x"}'


def test_a_consequential_call_waits_and_runs_once_when_approved(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("done"))
    assert (run.state, run.waiting_for) == ("waiting", "approval")
    assert effects_of("pay") == []
    (approval,) = clerk.open(run)
    assert (approval.title, approval.button) == ("Pay $20.00 to Ana", "$20.00")
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == [{"account": "ana", "amount": 20.0}]
    execution = clerk.execution(run, "a")
    approval.refresh_from_db()
    assert (execution.approval_id, approval.state) == (approval.pk, "used")
    assert json.loads(execution.executed_text) == {"account": "ana", "amount": 20, "memo": ""}


def test_what_people_see_includes_the_defaults_that_will_run(clerk):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    (approval,) = clerk.open(run)
    assert json.loads(approval.arguments_text) == {"account": "ana", "amount": 20, "memo": ""}


def test_a_rule_for_exactly_this_tool_lets_it_run_and_the_row_says_so(clerk):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(calls(call("a", "label", text="red")), says("done"))
    assert run.state == "succeeded"
    assert clerk.execution(run, "a").allowed_by == "rule:labels"


def test_a_tool_that_always_asks_asks_in_spite_of_a_rule(clerk):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    Tool.objects.filter(name="label").update(approval_mode="always")
    assert clerk.run(calls(call("a", "label", text="red"))).waiting_for == "approval"


def test_a_rule_can_make_a_read_wait(clerk, dana):
    Rule.objects.create(name="private", tool="look_up", verdict="ask")
    run = clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    assert run.waiting_for == "approval"
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("look_up") == [{"what": "x"}]


def test_a_tool_nobody_classified_asks(clerk):
    assert clerk.run(calls(call("a", "undeclared", text="x"))).waiting_for == "approval"


def test_nothing_overtakes_an_earlier_write_of_its_step(clerk, dana):
    run = clerk.run(
        calls(
            call("a", "look_up", what="before"),
            call("b", "pay", account="ana", amount=1),
            call("c", "look_up", what="after"),
            call("d", "pay", account="bob", amount=2),
        ),
        says("done"),
    )
    first, second = clerk.open(run)
    assert effects_of("look_up") == [{"what": "before"}]
    clerk.decide(second, dana)
    assert clerk.drive(run).state == "waiting"
    assert effects_of("pay") == []
    clerk.decide(first, dana)
    assert clerk.drive(run).state == "succeeded"
    assert [name for name, *_ in clerk_tools.EFFECTS] == ["look_up", "pay", "look_up", "pay"]
    assert [paid["account"] for paid in effects_of("pay")] == ["ana", "bob"]


def test_all_cards_of_a_step_appear_at_once(clerk):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1), call("b", "pay", account="bob", amount=2)))
    assert len(clerk.open(run)) == 2


def test_a_rejected_call_never_runs_and_the_model_reads_why(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("sorry"))
    clerk.decide(clerk.open(run)[0], dana, "reject", message="Shipping is not refundable.")
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == []
    assert "Shipping is not refundable." in told(clerk, run, "a")
    assert clerk.execution(run, "a").reason == "approval_rejected"


def test_a_rejected_call_cannot_be_proposed_again_in_its_run(clerk, dana):
    again = calls(call("b", "pay", amount=20, account="ana"))
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), again, says("sorry"))
    clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
    assert clerk.drive(run).state == "succeeded"
    assert clerk.execution(run, "b").reason == "previously_rejected"


def test_a_rejection_can_stop_the_run(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20), call("b", "label", text="x")), says("no"))
    clerk.decide(clerk.open(run)[0], dana, "reject", message="Fraud.", stop_run=True)
    clerk.drive(run)
    assert (run.state, run.stop_reason) == ("stopped", "approval_denied")
    assert clerk.execution(run, "b").state == "cancelled"
    assert clerk.open(run) == []


def test_a_person_can_answer_in_the_tools_place(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana, "respond", message="I paid her in cash.")
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == []
    assert "I paid her in cash." in told(clerk, run, "a")
    assert clerk.execution(run, "a").result_status == "ok"


def test_edited_arguments_run_and_the_model_is_told_what_changed(clerk, dana):
    Rule.objects.create(name="pay-medium", tool="pay", verdict="ask", risk="medium")
    run = clerk.run(calls(call("a", "pay", account="ana", amount=214.5)), says("ok"))
    edited = '{"account": "ana", "amount": 184.5, "memo": ""}'
    taken = clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text=edited)
    assert taken.approval.shown_title == "Pay $184.50 to Ana"
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == [{"account": "ana", "amount": 184.5}]
    assert "amount from 214.5 to 184.5" in told(clerk, run, "a")


@pytest.mark.parametrize(
    ("edited", "code"),
    [
        ('{"account": "bob", "amount": 1, "memo": ""}', "locked_field"),
        ('{"account": "ana", "amount": 5000, "memo": ""}', "invalid_arguments"),
        ('{"account": "ana", "amount": "1"}', "invalid_arguments"),
        ('{"account": "ana", "amount": 1, "amount": 2}', "invalid_arguments"),
        ('{"account": "ana", "amount": NaN}', "invalid_arguments"),
        ("[1]", "invalid_arguments"),
    ],
)
def test_an_edit_is_checked_like_a_proposal(clerk, dana, edited, code):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    (approval,) = clerk.open(run)
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(approval, dana, "edit", arguments_text=edited)
    assert refused.value.code == code
    approval.refresh_from_db()
    assert (approval.state, approval.version) == ("pending", 1)


def test_of_two_calls_of_one_tool_only_the_approved_one_runs(clerk, dana):
    both = calls(call("a", "pay", account="ana", amount=1), call("b", "pay", account="bob", amount=2))
    run = clerk.run(both, says("ok"))
    first, second = clerk.open(run)
    clerk.decide(first, dana, "reject", message="Not ana.")
    clerk.decide(second, dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == [{"account": "bob", "amount": 2.0}]
    assert "Not ana." in told(clerk, run, "a")
    assert "paid 2.0 to bob" in told(clerk, run, "b")


def test_an_edit_cannot_reach_what_a_rule_forbids(clerk, dana):
    Rule.objects.create(name="cap", tool="pay", verdict="deny", condition="args.amount > 500.0")
    Rule.objects.create(name="pay-medium", tool="pay", verdict="ask", risk="medium")
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"account": "ana", "amount": 600, "memo": ""}')
    assert refused.value.code == "policy_denied"


def test_a_decision_in_its_hold_does_not_act_yet_and_can_be_undone(clerk, dana, settings):
    settings.UNDO_HOLD_SECONDS = 60
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "waiting"
    actions.undo_decision(approval.pk, dana)
    Approval.objects.filter(pk=approval.pk).update(hold_seconds=0)
    run.refresh_from_db()
    assert run.wake_at is None
    assert effects_of("pay") == []
    clerk.decide(approval, dana, "reject", message="On second thought.")
    clerk.drive(run)
    assert effects_of("pay") == []


def test_a_secret_that_was_looked_up_is_masked_on_the_card_that_says_it_has_changed(clerk, dana, offer):
    world = {"pin": "Zq-90817"}

    @tool(
        effect="compensable", title="Close {account}, whose PIN is {snapshot.pin}", secret=("pin",),
        snapshot=lambda: dict(world),
    )  # fmt: skip
    def close(account: str) -> str:
        """Close an account."""
        return "closed"

    offer(close)
    run = clerk.run(calls(call("a", "close", account="ana")), says("done"))
    [first] = clerk.open(run)
    clerk.decide(first, dana)
    world["pin"] = "Zq-90818"
    clerk.drive(run)
    [second] = clerk.open(run)
    assert [first.title, second.title] == [f"Close ana, whose PIN is {MASK}"] * 2
    assert second.difference == [{"name": "pin", "was": MASK, "now": CHANGED_MASK}]


def test_a_changed_world_goes_back_to_the_queue_with_the_difference(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("done"))
    (first,) = clerk.open(run)
    clerk.decide(first, dana)
    clerk_tools.BALANCES["ana"] = 7
    assert clerk.drive(run).state == "waiting"
    assert effects_of("pay") == []
    (second,) = clerk.open(run)
    assert second.supersedes_id == first.pk
    assert second.difference == [{"name": "balance", "was": 100, "now": 7}]
    clerk.decide(second, dana)
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1


def test_a_changed_tool_voids_the_approval(clerk, dana, offer, monkeypatch):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    clerk.decide(clerk.open(run)[0], dana)
    changed = replace(clerk_tools.pay, description="Pay, and say what for.")
    monkeypatch.setattr(clerk_tools, "pay", changed)
    offer()  # its code is read again, as by a process that has just started
    Tool.objects.filter(name="pay").update(**contracts.contract_columns(changed))
    assert clerk.drive(run).state == "waiting"
    assert effects_of("pay") == []


def test_a_disabled_tool_does_not_run_though_approved(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    Tool.objects.filter(name="pay").update(enabled=False)
    assert clerk.drive(run).state == "succeeded"
    assert clerk.execution(run, "a").reason == "tool_disabled"
    assert effects_of("pay") == []


def test_a_new_rule_that_denies_stops_an_approved_call(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    Rule.objects.create(name="freeze", tool="pay", verdict="deny")
    assert clerk.drive(run).state == "succeeded"
    assert clerk.execution(run, "a").reason == "policy_changed"
    assert effects_of("pay") == []


def test_a_new_rule_that_wants_two_people_asks_again(clerk, dana, marco):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2)
    assert clerk.drive(run).state == "waiting"
    (again,) = clerk.open(run)
    assert again.approvals_needed == 2
    clerk.decide(again, dana)
    clerk.decide(again, marco)
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1


def test_an_approver_who_lost_the_right_does_not_count(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    clerk.decide(clerk.open(run)[0], dana)
    dana.groups.clear()
    assert clerk.drive(run).state == "waiting"
    assert effects_of("pay") == []
    assert len(clerk.open(run)) == 1


def test_a_starter_who_was_deactivated_acts_no_more(clerk, dana, sam):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    sam.is_active = False
    sam.save()
    clerk.drive(run)
    assert clerk.execution(run, "a").reason == "permission_denied"
    assert effects_of("pay") == []


def test_an_approval_not_used_in_time_does_not_run(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    Approval.objects.filter(pk=approval.pk).update(use_by=timezone.now() - timedelta(seconds=1))
    from agentapp.sweep import sweep

    sweep()
    clerk.drive(run)
    assert effects_of("pay") == []
    told = clerk.execution(run, "a")
    assert (told.reason, told.message.startswith("It was approved, but could not run in time.")) == (
        "approval_expired",
        True,
    )


def test_the_same_write_twice_in_one_reply_runs_once(clerk, dana):
    twice = calls(call("a", "pay", account="ana", amount=20), call("b", "pay", amount=20, account="ana"))
    run = clerk.run(twice, says("ok"))
    assert clerk.execution(run, "b").reason == "duplicate_call"
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    assert len(effects_of("pay")) == 1


def test_a_repeated_write_is_answered_with_the_first_and_does_not_run(clerk, dana):
    again = calls(call("b", "pay", account="ana", amount=20))
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), again, says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    second = clerk.execution(run, "b")
    assert second.reason == "idempotency_key_consumed"
    assert second.replay_of == clerk.execution(run, "a")
    assert len(effects_of("pay")) == 1


def test_a_write_that_says_it_failed_is_an_error_and_the_run_goes_on(clerk, dana):
    run = clerk.run(calls(call("a", "send", to="ana", how="refused")), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    assert (run.state, run.had_tool_errors) == ("succeeded", True)
    assert "the address is unknown" in told(clerk, run, "a")


@pytest.mark.parametrize("how", ["lost", "broken"])
def test_a_write_that_does_not_know_waits_for_a_person_to_find_out(clerk, dana, how):
    run = clerk.run(calls(call("a", "send", to="ana", how=how)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    execution = clerk.execution(run, "a")
    assert (run.state, run.waiting_for, execution.state) == ("waiting", "outcome", "outcome_unknown")
    actions.resolve_outcome(execution.pk, "happened", "I saw it arrive.", dana)
    clerk.drive(run)
    assert run.state == "succeeded"
    assert "did happen" in told(clerk, run, "a")
    assert len(effects_of("send")) == 1


def test_a_lost_write_can_be_tried_again_but_only_with_a_new_approval(clerk, dana):
    run = clerk.run(calls(call("a", "send", to="ana", how="lost")), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "Nothing arrived.", dana)
    clerk.drive(run)
    assert run.waiting_for == "approval"
    assert len(effects_of("send")) == 1
    (again,) = clerk.open(run)
    clerk.decide(again, dana, "reject", message="Enough.")
    clerk.drive(run)
    assert run.state == "succeeded"


def test_a_lost_write_is_tried_again_as_a_person_had_changed_it_under_the_same_key(clerk, offer, dana, marco):
    acted = []

    @tool(effect="irreversible", idempotency="key", max_attempts=1)
    def wire(to: str, context: ToolContext) -> str:
        """Wire something over a line that goes dead."""
        acted.append((to, context.idempotency_key))
        raise OutcomeUnknown("The line went dead.")

    offer(wire)
    run = clerk.run(calls(call("a", "wire", to="mallory")), says("ok"))
    (before,) = clerk.open(run)
    clerk.decide(before, dana, "edit", arguments_text='{"to": "bob"}')
    clerk.decide(before, marco)
    for _ in range(2):
        clerk.drive(run)
        actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "Nothing arrived.", marco)
        clerk.drive(run)
        (again,) = clerk.open(run)
        assert (again.arguments, again.editor, again.supersedes, again.difference) == ({"to": "bob"}, dana, before, [])
        with pytest.raises(actions.Refused) as refused:
            clerk.decide(again, dana)
        assert refused.value.code == "editor"
        clerk.decide(again, marco)
        before = again
    clerk.drive(run)
    assert ([to for to, _ in acted], len({key for _, key in acted})) == (["bob"] * 3, 1)


def test_a_lost_write_that_is_to_be_tried_again_asks_with_what_has_changed_since_it_was_approved(clerk, offer, dana):
    @tool(effect="irreversible", snapshot=clerk_tools.balance_of)
    def draw(account: str) -> str:
        """Draw on an account over a line that goes dead behind it."""
        clerk_tools.BALANCES[account] = 95
        raise OutcomeUnknown("The line went dead.")

    offer(draw)
    run = clerk.run(calls(call("a", "draw", account="ana")), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "Nothing arrived.", dana)
    clerk.drive(run)
    (again,) = clerk.open(run)
    assert again.difference == [{"name": "balance", "was": 100, "now": 95}]


def test_a_lost_write_that_ran_under_a_rule_asks_when_it_is_tried_again(clerk, dana):
    Rule.objects.create(name="sends", tool="send", verdict="allow")
    run = clerk.run(calls(call("a", "send", to="ana", how="lost")), says("ok"))
    assert run.waiting_for == "outcome"
    actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "Nothing arrived.", dana)
    clerk.drive(run)
    assert run.waiting_for == "approval"


def test_the_starter_cannot_say_what_became_of_a_call(clerk, dana, sam):
    run = clerk.run(calls(call("a", "send", to="ana", how="lost")), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    with pytest.raises(actions.Refused) as refused:
        actions.resolve_outcome(clerk.execution(run, "a").pk, "happened", "Trust me.", sam)
    assert refused.value.code == "forbidden"


def test_a_tool_that_honours_its_key_is_repeated_with_the_same_key(clerk, dana):
    run = clerk.run(calls(call("a", "sync", text="x")), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    assert [attempt["attempt"] for attempt in effects_of("sync")] == [1, 2, 3]
    assert len({key for name, _, key in clerk_tools.EFFECTS if name == "sync"}) == 1
    assert clerk.execution(run, "a").attempts == 3


def test_a_failing_read_is_tried_again_only_when_it_may_work_later(clerk):
    run = clerk.run(calls(call("a", "fail", how="later"), call("b", "fail", how="never")), says("ok"))
    assert clerk.execution(run, "a").attempts == 3
    assert clerk.execution(run, "b").attempts == 1
    assert run.had_tool_errors
    assert "there is no such thing" in told(clerk, run, "b")


def test_one_failing_read_loses_nothing_of_its_siblings(clerk):
    run = clerk.run(calls(call("a", "fail", how="bug"), call("b", "look_up", what="x")), says("ok"))
    assert clerk.execution(run, "a").reason == "tool_failure"
    assert told(clerk, run, "b") == '{"found": "x"}'


def test_a_read_that_does_not_answer_in_time_is_an_error(clerk):
    clerk_tools.GATES["one"] = threading.Event()
    Tool.objects.filter(name="hang").update(timeout_seconds=1)
    run = clerk.run(calls(call("a", "hang", name="one")), says("ok"))
    clerk_tools.GATES["one"].set()
    assert clerk.execution(run, "a").reason == "tool_timeout"


def test_a_write_that_does_not_answer_in_time_is_unknown(clerk, dana):
    clerk_tools.GATES["one"] = threading.Event()
    Tool.objects.filter(name="hang").update(effect_class="compensable", timeout_seconds=1)
    run = clerk.run(calls(call("a", "hang", name="one")), says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    clerk_tools.GATES["one"].set()
    assert clerk.execution(run, "a").state == "outcome_unknown"


def test_a_run_does_not_go_on_while_one_of_its_calls_is_unknown(clerk, dana):
    step = calls(call("a", "send", to="ana", how="lost"), call("b", "look_up", what="x"))
    run = clerk.run(step, says("ok"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    assert clerk.drive(run).waiting_for == "outcome"
    assert effects_of("look_up") == []


def test_cancelling_a_waiting_run_closes_its_calls_and_requests(clerk, sam):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)))
    (approval,) = clerk.open(run)
    actions.cancel_run(run.pk, sam)
    run.refresh_from_db()
    approval.refresh_from_db()
    assert (run.state, approval.state) == ("cancelled", "withdrawn")
    assert clerk.execution(run, "a").state == "cancelled"


def test_cancelling_a_running_run_stops_it_before_its_next_model_call(clerk, sam):
    started, go_on = threading.Event(), threading.Event()
    clerk_tools.GATES["one"] = go_on
    go_on.wait = lambda timeout, wait=go_on.wait: started.set() or wait(timeout)
    run = clerk.start(calls(call("a", "hang", name="one")), says("never said"))
    worker = threading.Thread(target=_drive, args=(clerk, Run.objects.get(pk=run.pk)))
    worker.start()
    assert started.wait(10)
    actions.cancel_run(run.pk, sam)
    go_on.set()
    worker.join(10)
    run.refresh_from_db()
    assert (run.state, run.stop_reason, run.answer) == ("cancelled", "user_requested", "")
    assert run.step_count == 1


def test_text_from_outside_reaches_the_model_only_inside_a_fence(clerk):
    run = clerk.run(calls(call("a", "read_mail")), says("ok"))
    text = told(clerk, run, "a")
    assert text.startswith("<<< untrusted content from read_mail")
    assert text.count("<<<") == 1
    assert text.count(">>>") == 1
    assert text.endswith(">>> end of untrusted content")


def test_the_ledger_of_a_run_tells_the_journey_in_order_and_verifies(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)

    types = list(Event.objects.filter(run_id=run.pk).order_by("seq").values_list("type", flat=True))
    order = ["tool_call.proposed", "approval.requested", "approval.approved", "approval.used", "tool_call.started"]
    assert [kind for kind in types if kind in order] == order
    assert types[-1] == "run.succeeded"
    held, broken = ledger.verify(ledger.run_chain(run.pk))
    assert (held, broken) == (len(types), None)


def test_a_tool_switched_off_while_a_run_goes_on_is_not_offered_for_the_next_step(clerk, ada):
    """Configuration is read again when its chain has grown."""
    clerk_tools.GATES["one"] = threading.Event()
    label = Tool.objects.get(name="label")

    def switch_off(timeout):
        tool = Tool.objects.get(pk=label.pk)
        tool.enabled = False
        configuration.save(tool, "user:ada")
        return True

    clerk_tools.GATES["one"].wait = switch_off
    run = clerk.run(calls(call("a", "hang", name="one")), calls(call("b", "label", text="x")), says("ok"))
    assert clerk.execution(run, "b").reason == "tool_disabled"
    assert "label" not in run.steps.get(number=2).disclosed_tools


def _drive(clerk, run):
    from django.db import connection

    try:
        clerk.drive(run)
    finally:
        connection.close()


def test_a_secret_that_a_tool_gives_back_stands_on_no_page(clerk, offer, dana, client):
    @tool(effect="compensable", secret=("iban",))
    def give(iban: str) -> dict[str, str]:
        """Give something."""
        return {"iban": iban, "said": f"It went to {iban}."}

    offer(give)
    iban = "DE89370400440532013000"
    run = clerk.run(calls(call("a", "give", iban=iban)), calls(call("b", "pay", account="ana", amount=5)), says("done"))
    (first,) = clerk.open(run)
    clerk.decide(first, dana)
    run = clerk.drive(run)
    (second,) = clerk.open(run)
    client.force_login(dana)
    pages = [f"/runs/{run.pk}/", f"/approvals/{first.pk}/", f"/approvals/{second.pk}/"]
    assert [page for page in pages if iban in client.get(page).content.decode()] == []


def test_a_secret_argument_reaches_no_card_and_no_event(clerk):
    Tool.objects.filter(name="pay").update(secret_fields=["account"], title_template="Pay {account}")
    run = clerk.run(calls(call("a", "pay", account="canary", amount=20)))
    (approval,) = clerk.open(run)
    shown = json.dumps([approval.title, approval.sentence, approval.effects, approval.button])
    assert "canary" not in shown
    assert "••••" in approval.title
    assert not Event.objects.filter(run_id=run.pk, body__contains="canary").exists()


def test_what_the_model_says_of_a_secret_argument_is_kept_without_it(clerk):
    Tool.objects.filter(name="pay").update(secret_fields=["account"])
    told = [calls(call(name, "pay", account="canary", amount=amount)) for name, amount in (("a", 20), ("b", 30))]
    told = [entry | {"text": "I pay into canary, which Ana owns."} for entry in told]
    run = clerk.run(*told)
    (approval,) = clerk.open(run)
    assert approval.explanation == run.steps.get().text == "I pay into ••••••, which Ana owns."


def test_an_approval_that_is_too_old_expires_when_it_is_used_and_not_only_by_the_sweep(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=20)), says("ok"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    Approval.objects.filter(pk=approval.pk).update(use_by=timezone.now() - timedelta(seconds=1))
    clerk.drive(run)
    assert (run.state, effects_of("pay")) == ("succeeded", [])
    assert clerk.execution(run, "a").reason == "approval_expired"


def test_a_second_decision_does_not_put_off_the_first(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1), call("b", "pay", account="bob", amount=2)))
    first, second = clerk.open(run)
    Approval.objects.filter(pk=first.pk).update(hold_seconds=20)
    Approval.objects.filter(pk=second.pk).update(hold_seconds=60)
    due = clerk.decide(first, dana).approval.runs_at
    clerk.decide(second, dana)
    run.refresh_from_db()
    assert run.wake_at == due
