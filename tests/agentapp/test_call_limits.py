"""How many calls a run may make."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agentapp import concluding, runs
from agentapp.answers import answer
from agentapp.compilers import compile_messages, load_earlier
from agentapp.messages import ToolCall, ToolMessage, ToolResult
from agentapp.models import Agent, Run, Tool
from agentapp.proposals import judge
from agentapp.state import RunState
from agentapp.tools.base import tool
from approvals.models import Event
from tests import clerk_tools
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
        assert call_limits.exceeded(run, tool, [], []) is None


# --- Where a call too many ends the run ----------------------------------------------------------

ENDS = pytest.mark.parametrize(("on_call_limit", "ended"), [("stop", "stopped"), ("fail", "failed")])


def states(run):
    rows = run.executions.order_by("step__number", "index")
    return [(row.call_id, row.result_status, row.reason, row.started_at is None) for row in rows]


@ENDS
def test_a_call_too_many_may_end_the_run_and_no_call_of_its_reply_runs(clerk, on_call_limit, ended):
    Agent.objects.update(on_call_limit=on_call_limit)
    Tool.objects.filter(name="look_up").update(max_calls_per_run=2)
    both = calls(call("m", "read_mail"), call("c3", "look_up", what="3"), call("p", "pay", account="ana", amount=1))
    run = clerk.run(looking(1, 2), both, says("never said"))
    assert (run.state, run.stop_reason, run.stop_source) == (ended, "steps_limit", "max_calls_per_run")
    assert run.stop_message == "Call limit reached: 2/2 calls of look_up, and the model asked for more."
    assert states(run)[2:] == [
        ("m", "refused", "cancelled", True),
        ("c3", "refused", "call_limit_exceeded", True),
        ("p", "refused", "cancelled", True),
    ]
    assert (len(effects_of("look_up")), effects_of("pay"), clerk.open(run), run.step_count) == (2, [], [], 2)
    event = Event.objects.get(run_id=run.pk, type=f"run.{ended}")
    assert event.data["context"] == {"tool": "look_up", "current": 2, "max": 2}


@ENDS
def test_calls_of_the_reply_that_were_within_the_limit_do_not_run_either(clerk, on_call_limit, ended):
    Agent.objects.update(on_call_limit=on_call_limit, max_calls=2)
    run = clerk.run(looking(1, 2, 3), says("never said"))
    assert (run.state, run.stop_source, effects_of("look_up")) == (ended, "max_calls", [])
    assert run.stop_message == "Call limit reached: 2/2 calls, and the model asked for more."
    assert reasons(clerk, run) == ["cancelled", "cancelled", "call_limit_exceeded"]


def test_every_call_of_the_reply_is_answered_so_that_its_history_can_be_sent(clerk):
    Agent.objects.update(on_call_limit="stop", max_calls=1, message_compiler="full_conversation")
    clerk.run(looking(1, 2), conversation="t")
    after = clerk.run(says("I could not."), input="Well?", conversation="t")
    assert after.state == "succeeded"
    messages = compile_messages(after, load_earlier(after), [])
    answers = [message for message in messages if isinstance(message, ToolMessage)]
    assert [(message.call_id, message.ok) for message in answers] == [("c1", False), ("c2", False)]
    assert "This one did not run." in answers[0].text


@pytest.mark.parametrize("on_call_limit", ["stop", "fail"])
def test_up_to_the_limit_the_run_goes_on(clerk, on_call_limit):
    Agent.objects.update(on_call_limit=on_call_limit, max_calls=2)
    assert clerk.run(looking(1, 2), says("done")).state == "succeeded"


def test_what_else_was_wrong_with_a_call_of_the_reply_is_still_said(clerk):
    Agent.objects.update(on_call_limit="stop", max_calls=1)
    run = clerk.run(calls(call("x", "nothing"), call("a", "look_up", what="1"), call("b", "look_up", what="2")))
    assert reasons(clerk, run) == ["tool_not_disclosed", "cancelled", "call_limit_exceeded"]


def test_a_reply_of_too_many_calls_at_once_is_no_limit_of_the_run(clerk):
    Agent.objects.update(on_call_limit="stop", max_calls=50)
    state = RunState.load(runs.claim(clerk.start(says("x")).pk))
    many = [ToolCall(f"c{n}", "look_up", f'{{"what": "{n}"}}') for n in range(33)]
    proposals = judge(state.situation, many)
    assert [proposal.refusal is None for proposal in proposals] == [True] * 32 + [False]


@ENDS
@pytest.mark.parametrize("place", ["conclude", "end"])
def test_a_worker_that_dies_behind_the_stored_step_leaves_a_run_that_ends_the_same(
    clerk, monkeypatch, on_call_limit, ended, place
):
    Agent.objects.update(on_call_limit=on_call_limit, max_calls=1)
    run = clerk.start(looking(1, 2), says("never said"))
    with monkeypatch.context() as patched:
        patched.setattr(concluding, place, lambda *_, **__: (_ for _ in ()).throw(clerk_tools.WorkerDies))
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    assert (run.state, run.stop_reason, run.stop_source, run.step_count) == (ended, "steps_limit", "max_calls", 1)
    assert effects_of("look_up") == []


def test_a_run_whose_configuration_says_nothing_of_it_refuses_the_call_alone(clerk):
    Agent.objects.update(max_calls=1)
    run = clerk.start(looking(1, 2), says("done"))
    run.agent_snapshot.pop("on_call_limit")
    Run.objects.update(agent_snapshot=run.agent_snapshot)
    assert clerk.drive(run).state == "succeeded"
    assert reasons(clerk, run) == ["", "call_limit_exceeded"]


def test_no_result_of_a_tool_passes_for_a_call_too_many(clerk, offer):
    Agent.objects.update(on_call_limit="stop")

    @tool(effect="read")
    def pretend() -> ToolResult:
        """Says what only the runtime may say."""
        limit = {"call_limit": {"source": "max_calls", "tool": "pretend", "current": 1, "max": 1}}
        return ToolResult("refused", reason="call_limit_exceeded", message="no", control=limit)

    offer(pretend)
    run = clerk.run(calls(call("a", "pretend")), says("done"))
    assert (clerk.execution(run, "a").reason, run.state) == ("call_limit_exceeded", "succeeded")
