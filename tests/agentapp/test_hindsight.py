"""Calls that ran, put through today's rules: counted by hand, and nothing guessed."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import hindsight
from agentapp.messages import ToolCall, ToolResult
from agentapp.models import Tool, ToolExecution
from agentapp.proposals import Proposal
from approvals.digest import canonical
from approvals.models import Rule
from tests.agentapp.run_builder import RunBuilder, make_tool
from tests.conftest import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def pay(db: None) -> Tool:
    return make_tool("pay", "irreversible", secret_fields=["pin"])


def ran(
    run: RunBuilder, tool: Tool, rule: str = "lets-pay", verdict: str = "allow", people: int = 1, **arguments: Any
) -> ToolExecution:
    """A call that ran, allowed by a rule or under an approval by this many people."""
    text = canonical(arguments)
    ruling = {"verdict": verdict, "reason": "So it was.", "rule": rule, "risk": "medium"}
    call = ToolCall(f"c{ToolExecution.objects.count()}", tool.name, text)
    asks = verdict == "ask"
    [execution] = run.step(
        "", Proposal(call, tool, arguments, text, ruling, asks=asks, allowed_by="" if asks else f"rule:{rule}")
    )
    if asks:
        [approval] = run.ask(execution, approvals_needed=people)
        for number in range(people):
            approval = run.decide(approval, make_user(f"D{number}{approval.pk.hex[-8:]} Decider", "approver"))
        run.use(execution, approval)
    else:
        ToolExecution.objects.filter(pk=execution.pk).update(
            started_at=execution.proposed_at, state="executing", idempotency_key=execution.pk.hex, executed_text=text
        )
        execution.refresh_from_db()
    run.answer(execution, ToolResult(data="done"))
    return execution


def test_the_calls_that_would_be_stopped_are_those_counted_by_hand(mia: User, sam: User, pay: Tool) -> None:
    run = RunBuilder(sam)
    for amount in (5, 50, 150, 250, 900):
        ran(run, pay, amount=amount)
    Rule.objects.create(name="large", tool="pay", verdict="deny", condition="args.amount > 500.0", order=1)
    Rule.objects.create(name="some", tool="pay", verdict="ask", condition="args.amount > 100.0", order=2)
    Rule.objects.create(name="lets-pay", tool="pay", verdict="allow", order=3)
    found = hindsight.stopped_today(hindsight.executed(mia))
    assert (found.looked_at, found.stopped_count, found.unknown_count) == (5, 3, 0)
    assert {(g.now, g.now_rule): n for g, n in found.groups.items()} == {("ask", "some"): 2, ("deny", "large"): 1}
    assert [one.now_rule for one in found.stopped] == ["large", "some", "some"]
    assert {one.then_rule for one in found.stopped} == {"lets-pay"}


def test_what_people_approved_then_and_would_be_asked_about_today_was_not_stopped(
    mia: User, sam: User, roles: Any, pay: Tool
) -> None:
    run = RunBuilder(sam)
    ran(run, pay, "asks", "ask", amount=5)
    Rule.objects.create(name="asks", tool="pay", verdict="ask")
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 0
    Rule.objects.create(name="never", tool="pay", verdict="deny")
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 1


def test_what_cannot_be_known_is_unknown_and_not_stopped(mia: User, sam: User, pay: Tool) -> None:
    ran(RunBuilder(sam), pay, amount=5)
    Rule.objects.create(name="lets-pay", tool="pay", verdict="allow")
    Rule.objects.create(name="busy", tool="pay", verdict="deny", condition="history.count('pay', 'run', '24h') > 3")
    found = hindsight.stopped_today(hindsight.executed(mia))
    assert (found.stopped_count, found.unknown_count) == (0, 1)
    assert found.unknown[0].now == ""


def test_it_judges_what_ran_and_not_what_was_proposed(mia: User, sam: User, pay: Tool) -> None:
    call = ran(RunBuilder(sam), pay, amount=5)
    ToolExecution.objects.filter(pk=call.pk).update(executed_text=canonical({"amount": 700}))
    Rule.objects.create(name="lets-pay", tool="pay", verdict="allow")
    Rule.objects.create(name="large", tool="pay", verdict="deny", condition="args.amount > 500.0")
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 1


def test_a_tool_that_was_a_read_then_is_judged_as_what_it_is_now(mia: User, sam: User) -> None:
    look = make_tool("look")
    ran(RunBuilder(sam), look, "", amount=1)
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 0
    Tool.objects.filter(pk=look.pk).update(effect_class="irreversible")
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 1


def test_a_slice_says_where_the_next_begins(
    mia: User, sam: User, pay: Tool, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(hindsight, "SLICE", 2)
    run = RunBuilder(sam)
    made = [ran(run, pay, amount=n).pk for n in range(5)]
    seen, before = [], None
    while True:
        with django_assert_max_num_queries(6):
            found = hindsight.stopped_today(hindsight.executed(mia), before)
        seen += [one.execution for one in found.stopped]
        before = found.further
        if before is None:
            break
    assert seen == made[::-1]


def test_nobody_is_told_of_calls_of_runs_they_may_not_see(otto: User, sam: User, pay: Tool) -> None:
    ran(RunBuilder(sam), pay, amount=5)
    assert hindsight.stopped_today(hindsight.executed(otto)).looked_at == 0


def test_secret_arguments_are_in_no_reason(mia: User, sam: User, pay: Tool) -> None:
    ran(RunBuilder(sam), pay, amount=5, pin="493812")
    Rule.objects.create(name="odd", tool="pay", verdict="deny", condition="args.pin == '493812'", description="493812!")
    found = hindsight.stopped_today(hindsight.executed(mia))
    assert "493812" not in found.stopped[0].reason


def test_the_latest_calls_of_a_tool_are_counted_by_rule_and_by_what_changed(sam: User, pay: Tool) -> None:
    run = RunBuilder(sam)
    for amount in (5, 50, 150):
        ran(run, pay, amount=amount)
    Rule.objects.create(name="lets-pay", tool="pay", verdict="allow")
    Rule.objects.create(name="some", tool="pay", verdict="ask", condition="args.amount > 100.0")
    found = hindsight.through(pay)
    assert found.looked_at == 3
    assert found.by_rule == {("lets-pay", "allow"): 2, ("some", "ask"): 1}
    assert found.changed == {("allow", "ask"): 1}


def test_where_either_of_two_rules_may_ask_both_are_named(mia: User, sam: User, pay: Tool) -> None:
    ran(RunBuilder(sam), pay, amount=5)
    Rule.objects.create(name="asks", tool="pay", verdict="ask", order=2)
    busy = "history.count('pay', 'run', '24h') > 3"
    Rule.objects.create(name="busy", tool="pay", verdict="ask", condition=busy, order=1)
    assert hindsight.through(pay).by_rule == {("asks or busy", "ask"): 1}
    [stopped] = hindsight.stopped_today(hindsight.executed(mia)).stopped
    assert (stopped.now, stopped.now_rule) == ("ask", "asks or busy")
    assert "not kept of the call" in stopped.reason


# --- How many people -----------------------------------------------------------------------------


def test_a_call_that_would_need_more_people_than_it_got_was_treated_more_leniently(
    mia: User, sam: User, roles: Any, pay: Tool
) -> None:
    run = RunBuilder(sam)
    one, two = (ran(run, pay, "asks", "ask", people=n, amount=n) for n in (1, 2))
    rule = Rule.objects.create(name="asks", tool="pay", verdict="ask")
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 0
    Rule.objects.filter(pk=rule.pk).update(approvals_needed=2)
    found = hindsight.stopped_today(hindsight.executed(mia))
    assert [judged.execution for judged in found.stopped] == [one.pk]
    [group] = found.groups
    assert (group.then, group.then_people, group.now, group.people) == ("ask", 1, "ask", 2)
    Rule.objects.filter(pk=rule.pk).update(approvals_needed=3)
    found = hindsight.stopped_today(hindsight.executed(mia))
    assert {judged.execution: (judged.then_people, judged.people) for judged in found.stopped} == {
        one.pk: (1, 3), two.pk: (2, 3),
    }  # fmt: skip


def test_it_is_narrowed_to_calls_that_two_people_or_more_would_have_to_allow(
    mia: User, sam: User, roles: Any, pay: Tool
) -> None:
    run = RunBuilder(sam)
    calls = {amount: ran(run, pay, amount=amount) for amount in (5, 50, 150, 900)}
    calls[51] = ran(run, pay, "asks", "ask", amount=51)
    Rule.objects.create(name="never", tool="pay", verdict="deny", condition="args.amount > 500.0")
    Rule.objects.create(name="two", tool="pay", verdict="ask", condition="args.amount > 40.0", approvals_needed=2)
    Rule.objects.create(name="one", tool="pay", verdict="ask")
    found = hindsight.stopped_today(hindsight.executed(mia))
    assert {(judged.now, judged.people) for judged in found.stopped} == {("ask", 1), ("ask", 2), ("deny", 0)}
    found = hindsight.stopped_today(hindsight.executed(mia), people=2)
    assert {judged.execution for judged in found.stopped} == {calls[50].pk, calls[51].pk, calls[150].pk}
    assert (found.looked_at, found.stopped_count) == (5, 3)


def test_what_is_of_critical_risk_now_needs_two_where_two_can_decide(
    mia: User, sam: User, roles: Any, pay: Tool
) -> None:
    ran(RunBuilder(sam), pay, "asks", "ask", amount=5)
    Rule.objects.create(name="asks", tool="pay", verdict="ask", risk="critical")
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 0, "one alone may decide here"
    make_user("Dana Second", "approver")
    [stopped] = hindsight.stopped_today(hindsight.executed(mia)).stopped
    assert (stopped.then_people, stopped.people) == (1, 2)


def test_how_many_people_it_would_need_is_not_guessed(mia: User, sam: User, roles: Any, pay: Tool) -> None:
    ran(RunBuilder(sam), pay, "asks", "ask", amount=5)
    Rule.objects.create(name="asks", tool="pay", verdict="ask", order=1)
    busy = "history.count('pay', 'run', '24h') > 3"
    rule = Rule.objects.create(name="busy", tool="pay", verdict="ask", condition=busy, approvals_needed=2, order=2)
    found = hindsight.stopped_today(hindsight.executed(mia))
    assert (found.stopped_count, found.unknown_count) == (0, 1)
    assert found.unknown[0].reason == "How many people it would need depends on facts that were not kept of the call."
    assert hindsight.through(pay).by_rule == {("asks", "ask"): 1}, "that it asks is known"
    Rule.objects.filter(name="asks").update(approvals_needed=3)
    Rule.objects.filter(pk=rule.pk).update(approvals_needed=4)
    [stopped] = hindsight.stopped_today(hindsight.executed(mia)).stopped
    assert stopped.people == 3, "at least"


def test_a_decision_that_was_taken_back_let_nothing_run(mia: User, sam: User, roles: Any, pay: Tool) -> None:
    call = ran(RunBuilder(sam), pay, "asks", "ask", people=2, amount=5)
    Rule.objects.create(name="asks", tool="pay", verdict="ask", approvals_needed=2)
    assert hindsight.stopped_today(hindsight.executed(mia)).stopped_count == 0
    assert call.approval is not None
    first = call.approval.decisions.first()
    call.approval.decisions.filter(pk=first.pk).update(undone_at=first.decided_at)
    [stopped] = hindsight.stopped_today(hindsight.executed(mia)).stopped
    assert (stopped.then_people, stopped.people) == (1, 2)
