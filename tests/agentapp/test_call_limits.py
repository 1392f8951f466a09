"""How many calls a run may make."""

import pytest

from agentapp.answers import answer
from agentapp.models import Agent, Tool
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says


def looking(*numbers: int):
    return calls(*[call(f"c{number}", "look_up", what=str(number)) for number in numbers])


def reasons(clerk, run):
    return [execution.reason for execution in run.executions.order_by("step__number", "index")]


def test_the_call_beyond_a_tools_limit_is_refused_and_the_others_run(clerk):
    Tool.objects.filter(name="look_up").update(max_calls_per_run=2)
    third = calls(call("c3", "look_up", what="3"), call("m", "read_mail"))
    run = clerk.run(looking(1), looking(2), third, says("done"))
    assert run.state == "succeeded"
    assert reasons(clerk, run) == ["", "", "call_limit_exceeded", ""]
    told = answer(clerk.execution(run, "c3")).text
    assert "Tool call limit exceeded. Do not call 'look_up' again." in told
    assert "2/2" in told
    assert len(effects_of("look_up")) == 2


def test_the_calls_of_one_reply_are_counted_in_their_order(clerk):
    Tool.objects.filter(name="look_up").update(max_calls_per_run=2)
    run = clerk.run(looking(1, 2, 3), says("done"))
    assert reasons(clerk, run) == ["", "", "call_limit_exceeded"]


def test_exactly_at_the_limit_is_allowed(clerk):
    Tool.objects.filter(name="look_up").update(max_calls_per_run=3)
    assert reasons(clerk, clerk.run(looking(1, 2, 3), says("done"))) == ["", "", ""]


def test_an_agents_limit_counts_the_calls_of_all_tools(clerk):
    Agent.objects.update(max_calls=2)
    run = clerk.run(looking(1), calls(call("m", "read_mail")), looking(2), says("done"))
    assert reasons(clerk, run) == ["", "", "call_limit_exceeded"]
    assert "2/2 calls" in answer(clerk.execution(run, "c2")).text


def test_what_was_refused_uses_nothing_up(clerk):
    Tool.objects.filter(name="look_up").update(max_calls_per_run=1)
    wrong = calls(call("w", "look_up", where="nowhere"))
    assert reasons(clerk, clerk.run(wrong, looking(1), says("done"))) == ["missing_arguments", ""]


def test_a_call_that_waits_counts(clerk):
    Tool.objects.filter(name="pay").update(max_calls_per_run=1)
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1), call("b", "pay", account="bob", amount=1)))
    assert (run.waiting_for, clerk.execution(run, "b").reason) == ("approval", "call_limit_exceeded")


def test_each_run_begins_with_none(clerk):
    Tool.objects.filter(name="look_up").update(max_calls_per_run=1)
    for _ in range(2):
        assert reasons(clerk, clerk.run(looking(1), says("done"))) == [""]


def test_a_limit_of_none_refuses_every_call(clerk):
    Tool.objects.filter(name="look_up").update(max_calls_per_run=0)
    assert reasons(clerk, clerk.run(looking(1), says("done"))) == ["call_limit_exceeded"]


@pytest.mark.parametrize("count", [0, 5])
def test_counting_asks_the_database_nothing(clerk, count, django_assert_max_num_queries):
    from agentapp import call_limits

    Tool.objects.filter(name="look_up").update(max_calls_per_run=9)
    run = clerk.start(says("done"))
    tool = Tool.objects.get(name="look_up")
    with django_assert_max_num_queries(0):
        assert call_limits.exceeded(run, tool, [], []) == ""
