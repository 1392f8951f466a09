"""A run is replayed: everything decided, given and said is repeated, nothing happens, and it ends as it did."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from agentapp import actions
from agentapp.actions import Fork
from agentapp.models import Agent, Conversation, Message, Run, Tool, ToolExecution
from agentapp.sweep import sweep
from agentapp.tools.base import tool
from approvals import rule_terms
from approvals.models import Approval, Decision, Notification, Rule, RuleVersion
from tests import clerk_tools
from tests.conftest import Clerk, call, calls, says
from tests.forks import DONE, LOOK, PAY, acts, fork, sent
from tests.teams import Team

State = Run.State


def settle(clerk: Clerk, run: Run) -> Run:
    """Drive a run as long as it goes on by itself."""
    for _ in range(50):
        clerk.drive(run)
        if run.is_final or run.wake_at is None:
            return run
    raise AssertionError(f"{run} does not come to rest")


def replayed(clerk: Clerk, run: Run) -> Run:
    """A replay of a run, driven to its end, which has had no effect."""
    before = list(clerk_tools.EFFECTS)
    replay = settle(clerk, actions.replay_run(run.pk, clerk.starter))
    assert before == clerk_tools.EFFECTS, "nothing happens in a replay"
    return replay


def shape(run: Run) -> list[tuple[Any, ...]]:
    """What became of each call."""
    rows = ToolExecution.objects.filter(run=run).order_by("step__number", "index")
    return list(rows.values_list("name", "arguments_text", "state", "result_status", "result_text"))


def ended(run: Run) -> tuple[str, str, str, str, int]:
    return (run.state, run.stop_reason, run.stop_message, run.answer, run.step_count)


def same(clerk: Clerk, run: Run) -> Run:
    run.refresh_from_db()
    replay = replayed(clerk, run)
    assert ended(replay) == ended(run)
    assert shape(replay) == shape(run)
    assert (replay.retry_of, replay.branch, replay.is_mocked) == (run, "replay", True)
    return replay


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    """Looked up, paid, and said so."""
    run = clerk.run(LOOK, PAY, DONE)
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == State.SUCCEEDED
    return run


def test_it_ends_as_it_did_and_nothing_happens(clerk, paid):
    replay = same(clerk, paid)
    assert [step.text for step in replay.steps.order_by("number")] == ["I look.", "I pay.", "Paid."]
    assert replay.script is None, "nothing of the record is copied"
    assert replay.mocks == {"record": str(paid.pk)}


def test_what_people_said_is_said_again_by_the_record_and_nobody_is_asked(clerk, paid):
    told = Notification.objects.count()
    replay = replayed(clerk, paid)
    asked = Approval.objects.get(run_id=replay.pk)
    decision = Decision.objects.get(approval=asked)
    assert (asked.mocked, asked.state, decision.mocked, decision.user, decision.name) == (
        True, "used", True, None, "The record")  # fmt: skip
    assert Notification.objects.count() == told


@pytest.mark.parametrize(
    ("type", "more"),
    [
        ("reject", {"message": "No."}),
        ("reject", {"message": "No.", "stop_run": True}),
        ("respond", {"message": "Ask the bank."}),
        ("edit", {"arguments_text": '{"account": "ana", "amount": 3}'}),
    ],
)
def test_whatever_they_said_it_goes_the_same_way(clerk, dana, marco, type, more):
    run = clerk.run(LOOK, PAY, DONE)
    (asked,) = clerk.open(run)
    clerk.decide(asked, dana, type, **more)
    if type == "edit":  # the person who changed it does not count
        clerk.decide(asked, marco)
    clerk.drive(run)
    replay = same(clerk, run)
    execution = ToolExecution.objects.get(run=replay, name="pay")
    assert execution.executed_text == clerk.execution(run, "p").executed_text


def test_that_nobody_decided_goes_the_same_way(clerk, sam):
    run = clerk.run(PAY, DONE)
    Approval.objects.update(expires_at=run.created_at)
    sweep()
    clerk.drive(run)
    assert clerk.execution(run, "p").reason == "approval_expired"
    same(clerk, run)


def test_a_run_that_a_person_ended_ends_where_they_did(clerk, sam):
    run = clerk.run(LOOK, PAY, DONE)
    actions.cancel_run(run.pk, sam)
    replay = same(clerk, run)
    assert replay.stop_source == "record"


def test_a_run_whose_model_failed_fails_again(clerk):
    same(clerk, clerk.run(LOOK, {"error": "The provider is gone."}))


def test_a_run_at_its_limit_stops_at_it(clerk):
    Agent.objects.update(max_steps=2)
    run = clerk.run(LOOK, LOOK, LOOK, DONE)
    assert run.stop_reason == "steps_limit"
    replay = same(clerk, run)
    assert replay.stop_source == run.stop_source, "by the limit, not by the record"


@pytest.mark.parametrize("how", ["refused", "lost", "broken"])
def test_a_call_that_failed_fails_again(clerk, dana, sam, how):
    run = clerk.run(calls(call("s", "send", to="ana", how=how)), DONE)
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    if run.waiting_for == "outcome":
        actions.cancel_run(run.pk, sam)
        run.refresh_from_db()
    same(clerk, run)


def test_of_an_unknown_outcome_it_takes_what_a_person_found_out(clerk, dana):
    Group.objects.get(name="approver").permissions.add(*Group.objects.get(name="admin").permissions.all())
    run = clerk.run(calls(call("s", "send", to="ana", how="lost")), DONE)
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    actions.resolve_outcome(clerk.execution(run, "s").pk, "happened", "I asked Ana.", User.objects.get(pk=dana.pk))
    clerk.drive(run)
    same(clerk, run)


def test_a_tool_that_failed_at_first_and_what_stood_beside_it(clerk):
    same(clerk, clerk.run(calls(call("f", "fail", how="never"), call("m", "read_mail"), call("l", "look_up", what="x")),
                          DONE))  # fmt: skip


def test_a_tool_that_ended_the_run_ends_it_again(clerk):
    replay = same(clerk, clerk.run(LOOK, calls(call("h", "hand_over", to="Mia")), DONE))
    assert replay.stop_reason == "stop_requested"


def test_the_same_call_with_another_result_each_time(clerk, offer):
    numbers = iter(range(10))

    @tool(effect="read")
    def count() -> int:
        """Counts."""
        return next(numbers)

    offer(count)
    once = calls(call("c", "count"))
    replay = same(clerk, clerk.run(once, once, once, DONE))
    assert [e.value for e in ToolExecution.objects.filter(run=replay).order_by("step__number")] == [0, 1, 2]
    assert next(numbers) == 3


# --- What today would do otherwise ------------------------------------------------------------


def test_a_rule_of_today_that_forbids_a_call_shows(clerk, paid):
    Rule.objects.create(name="no pay", tool="pay", verdict="deny", order=1)
    replay = replayed(clerk, paid)
    execution = ToolExecution.objects.get(run=replay, name="pay")
    assert (execution.result_status, execution.reason) == ("refused", "policy_denied")
    assert (replay.state, replay.answer) == (State.SUCCEEDED, "Paid."), "its model says what it said"


def test_a_rule_of_today_that_asks_is_answered_as_if_people_agreed(clerk):
    run = clerk.run(LOOK, DONE)
    Rule.objects.create(name="ask", tool="look_up", verdict="ask", order=1)
    replay = replayed(clerk, run)
    assert ended(replay) == ended(run)
    assert Approval.objects.get(run_id=replay.pk).tool == "look_up"


def test_a_tool_that_is_gone_or_takes_other_arguments_shows(clerk, paid):
    Tool.objects.filter(name="pay").update(enabled=False)
    schema = Tool.objects.get(name="look_up").input_schema
    Tool.objects.filter(name="look_up").update(
        input_schema=schema | {"required": ["what", "where"], "properties": schema["properties"] | {"where": {}}}
    )
    reasons = ToolExecution.objects.filter(run=replayed(clerk, paid)).order_by("step__number")
    assert list(reasons.values_list("reason", flat=True)) == ["missing_arguments", "tool_disabled"]


def test_a_call_that_was_refused_then_and_runs_today_is_not_on_record(clerk):
    rule = Rule.objects.create(name="no looking", tool="look_up", verdict="deny", order=1)
    run = clerk.run(LOOK, DONE)
    rule.delete()
    execution = ToolExecution.objects.get(run=replayed(clerk, run))
    assert (execution.result_status, execution.reason) == ("fatal_error", "not_mocked")
    assert "not on record" in execution.message


# --- Forks, conversations, agents -------------------------------------------------------------


def test_a_fork_is_replayed_with_what_it_kept(clerk, paid, sam, dana):
    forked = clerk.drive(fork(paid, sam, 2, call=0, arguments={"account": "ana", "amount": 7}))
    clerk.decide(clerk.open(forked)[0], dana)
    clerk.drive(forked)
    replay = same(clerk, forked)
    assert sent(replay) == sent(forked)
    again = same(clerk, replay)
    assert sent(again) == sent(forked), "a replay of a replay"


def test_a_run_of_a_conversation_says_nothing_there(clerk, sam):
    clerk.run(says("Hello."), input="Hi.", conversation="t-1")
    run = clerk.run(LOOK, says("Here."), input="Where is it?", conversation="t-1")
    said = Message.objects.count()
    replay = same(clerk, run)
    assert sent(replay) == sent(run)
    assert (replay.conversation, replay.asked_in) == (None, Conversation.objects.get())
    assert Message.objects.count() == said


def test_what_another_agent_answered_is_answered_by_the_record(clerk):
    team = Team(clerk)
    team.may_ask("finder", says("In the attic."))
    run = team.run(calls(call("q", "ask_finder", input="Where?")), DONE)
    assert (run.state, run.children.count()) == (State.SUCCEEDED, 1)
    count = Run.objects.count()
    replay = same(clerk, run)
    assert Run.objects.count() == count + 1, "no other agent began anything"
    assert replay.children.count() == 0


# --- A sandbox --------------------------------------------------------------------------------


def sandbox(clerk: Clerk, run: Run, user: User, step: int = 1, **changed: Any) -> Run:
    before = list(clerk_tools.EFFECTS)
    forked = settle(clerk, actions.fork_run(run.pk, Fork(step=step, sandbox=True, **changed), user))
    assert before == clerk_tools.EFFECTS, "nothing happens in a sandbox"
    return forked


def test_in_a_sandbox_the_model_is_asked_and_the_record_answers(clerk, paid, sam):
    Run.objects.filter(pk=paid.pk).update(script=[LOOK, LOOK, PAY, says("Both.")])
    forked = sandbox(clerk, paid, sam)
    assert (forked.state, forked.answer, forked.is_mocked, forked.branch) == (State.SUCCEEDED, "Both.", True, "fork")
    results = ToolExecution.objects.filter(run=forked).order_by("step__number").values_list("result_text", flat=True)
    assert list(results) == ['{"found": "kettle"}', '{"found": "kettle"}', '"paid 5.0 to ana"']


def test_another_call_of_the_tool_gets_what_the_one_in_its_turn_got_and_then_nothing(clerk, paid, sam):
    cup = calls(call("l", "look_up", what="cup"))
    Run.objects.filter(pk=paid.pk).update(script=[cup, calls(call("l", "look_up", what="mug")), DONE])
    first, second = ToolExecution.objects.filter(run=sandbox(clerk, paid, sam)).order_by("step__number")
    assert (first.result_text, second.reason) == ('{"found": "kettle"}', "not_mocked")


def test_what_people_wrote_into_one_call_is_not_put_into_another(clerk, sam, dana, marco):
    run = clerk.run(LOOK, PAY, DONE)
    (asked,) = clerk.open(run)
    clerk.decide(asked, dana, "edit", arguments_text='{"account": "ana", "amount": 3}')
    clerk.decide(asked, marco)
    clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(script=[calls(call("p", "pay", account="bob", amount=9)), DONE])
    forked = sandbox(clerk, run, sam)
    paid = ToolExecution.objects.get(run=forked)
    assert (forked.state, paid.args["account"], paid.args["amount"]) == (State.SUCCEEDED, "bob", 9)


def test_a_sandbox_goes_on_from_a_step(clerk, paid, sam):
    forked = sandbox(clerk, paid, sam, 2, call=0, arguments={"account": "ana", "amount": 7})
    assert forked.state == State.SUCCEEDED
    assert ToolExecution.objects.get(run=forked).args == {"account": "ana", "amount": 7, "memo": ""}
    assert len(clerk_tools.effects_of("pay")) == 1


def test_other_rules_are_tried_in_a_sandbox_and_in_no_real_run(clerk, sam, ada):
    Rule.objects.create(name="no looking", tool="look_up", verdict="deny", order=1)
    run = clerk.run(LOOK, DONE)
    assert ToolExecution.objects.get(run=run).reason == "policy_denied"
    changed = {"without_rules": ("no looking",)}
    for user, told in ((ada, "only be tried in a sandbox"), (sam, "needs the right to view rules")):
        with pytest.raises(actions.Refused) as refused:
            actions.fork_run(run.pk, Fork(sandbox=user is sam, **changed), user)
        assert told in refused.value.message
    ada.groups.add(Group.objects.get(name="operator"))
    ada = User.objects.get(pk=ada.pk)
    forked = sandbox(clerk, run, ada, **changed)
    assert ToolExecution.objects.get(run=forked).reason == "not_mocked", "allowed now, and not on record"
    assert forked.agent_snapshot["rules"] == {"without": ["no looking"], "drafts": []}
    assert forked.changed == ["rules"]
    with pytest.raises(actions.Refused) as refused:
        actions.fork_run(run.pk, Fork(sandbox=True, with_drafts=("no looking",)), ada)
    assert "has no draft" in refused.value.message


def test_a_draft_of_a_rule_is_as_if_in_force_in_a_sandbox(clerk, paid, ada):
    ada.groups.add(Group.objects.get(name="operator"))
    ada = User.objects.get(pk=ada.pk)
    rule = Rule.objects.create(name="no pay", tool="pay", verdict="deny", order=1, active=False)
    terms = rule_terms.terms_of(rule) | {"active": True}
    RuleVersion.objects.create(
        rule=rule, terms=terms, terms_digest=rule_terms.digest_of(terms), edited_at=paid.created_at
    )
    forked = sandbox(clerk, paid, ada, with_drafts=("no pay",))
    assert ToolExecution.objects.get(run=forked, name="pay").reason == "policy_denied"
    assert ToolExecution.objects.get(run=sandbox(clerk, paid, ada), name="pay").result_status == "ok"


def test_what_is_mocked_is_forked_in_a_sandbox_alone(clerk, paid, sam):
    replay = replayed(clerk, paid)
    with pytest.raises(actions.Refused) as refused:
        fork(replay, sam)
    assert refused.value.field == "sandbox"
    assert sandbox(clerk, replay, sam).state == State.SUCCEEDED
    with pytest.raises(actions.Refused):
        actions.retry_run(replay.pk, sam)


def test_one_key_starts_one_replay_and_whoever_may_not_start_runs_starts_none(clerk, paid, sam, mia):
    assert actions.replay_run(paid.pk, sam, "k") == actions.replay_run(paid.pk, sam, "k")
    with pytest.raises(actions.Refused) as refused:
        actions.replay_run(paid.pk, mia)
    assert refused.value.code == "forbidden"
    assert acts(paid) == ["pay"]
