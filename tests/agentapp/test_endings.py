"""When the results of calls end a run: an answer that a tool gives, and failures that must not be ignored."""

import threading

import pytest

from agentapp import endings, loop
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.models import Agent, Run, Tool
from agentapp.tools.base import tool
from approvals.models import Approval, Rule
from tests import clerk_tools
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says


def states(run: Run) -> dict[str, tuple[str, str]]:
    return {e.call_id: (e.state, e.result_status) for e in run.executions.all()}


def allow(*tools: str) -> None:
    for name in tools:
        Rule.objects.create(name=name, tool=name, verdict="allow")


# --- A result that is the answer ---------------------------------------------------------------


@tool(effect="read", return_direct=True)
def quote(how: str) -> object:
    """Quote a price."""
    if how == "fail":
        raise RuntimeError("no price")
    return "It costs €12." if how == "text" else {"price": 12, "für": how}


def test_the_result_of_a_direct_tool_is_the_runs_answer_and_the_model_is_not_asked_again(clerk, offer):
    offer(quote)
    run = clerk.run(calls(call("a", "quote", how="text")), says("never said"))
    assert (run.state, run.stop_reason, run.answer) == ("succeeded", "completed", "It costs €12.")
    assert run.step_count == 1


def test_what_is_no_text_is_answered_as_json_with_its_letters(clerk, offer):
    offer(quote)
    assert clerk.run(calls(call("a", "quote", how="Grüße"))).answer == '{"price": 12, "für": "Grüße"}'


def test_a_direct_tool_that_fails_leaves_the_word_to_the_model(clerk, offer):
    offer(quote)
    run = clerk.run(calls(call("a", "quote", how="fail")), says("I could not find it."))
    assert (run.state, run.answer) == ("succeeded", "I could not find it.")


def test_a_direct_answer_waits_for_every_call_of_its_step(clerk, offer, dana):
    offer(quote)
    run = clerk.run(calls(call("a", "quote", how="text"), call("b", "pay", account="ana", amount=1)))
    assert (run.state, run.waiting_for) == ("waiting", "approval")
    clerk.decide(clerk.open(run)[0], dana)
    assert (clerk.drive(run).state, run.answer) == ("succeeded", "It costs €12.")
    assert len(effects_of("pay")) == 1


def test_a_worker_that_died_before_the_end_leaves_the_answer_to_the_next(clerk, offer, monkeypatch):
    offer(quote)
    run = clerk.start(calls(call("a", "quote", how="text")), says("wrong"))
    answered = ScriptedDriver.next_step

    def die_in_the_second(driver, request):
        if request.step == 2:
            raise KeyboardInterrupt
        return answered(driver, request)

    with monkeypatch.context() as patched:
        patched.setattr(endings, "of_calls", lambda run, executions: None)
        patched.setattr(ScriptedDriver, "next_step", die_in_the_second)
        with pytest.raises(KeyboardInterrupt):
            loop.drive(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_until="2020-01-01T00:00:00Z")
    assert (clerk.drive(run).state, run.answer, run.step_count) == ("succeeded", "It costs €12.", 1)


# --- Failures ----------------------------------------------------------------------------------


def test_by_default_a_failure_is_told_to_the_model_and_the_run_goes_on(clerk):
    run = clerk.run(calls(call("a", "fail", how="bug"), call("b", "look_up", what="x")), says("done"))
    assert (run.state, run.had_tool_errors) == ("succeeded", True)


def test_an_agent_may_fail_with_the_first_failed_call_and_keep_what_its_siblings_did(clerk):
    Agent.objects.update(raise_on_tool_failure=True)
    allow("label")
    run = clerk.run(
        calls(
            call("ok", "look_up", what="x"),
            call("bad", "fail", how="bug"),
            call("write", "label", text="red"),
            call("card", "pay", account="ana", amount=1),
        ),
        says("never said"),
    )
    assert (run.state, run.stop_reason) == ("failed", "tool_failure")
    assert "fail failed (tool_failure): RuntimeError: bug" in run.stop_message
    assert states(run) == {
        "ok": ("finished", "ok"), "bad": ("finished", "fatal_error"),
        "write": ("cancelled", ""), "card": ("cancelled", ""),
    }  # fmt: skip
    assert effects_of("label") == effects_of("pay") == []
    assert run.step_count == 1


def test_what_people_were_asked_is_taken_back_when_an_earlier_write_fails(clerk, dana):
    Agent.objects.update(raise_on_tool_failure=True)
    run = clerk.run(calls(call("a", "send", to="ana", how="refused"), call("b", "pay", account="ana", amount=1)))
    first, second = clerk.open(run)
    clerk.decide(first, dana)
    assert clerk.drive(run).state == "failed"
    assert Approval.objects.get(pk=second.pk).state == "withdrawn"
    assert states(run)["b"] == ("cancelled", "")


def test_a_read_that_runs_beside_the_failed_one_is_stored_first(clerk):
    Agent.objects.update(raise_on_tool_failure=True)
    clerk_tools.GATES["slow"] = threading.Event()
    clerk_tools.GATES["slow"].set()
    run = clerk.run(calls(call("bad", "fail", how="never"), call("slow", "hang", name="slow")))
    assert states(run) == {"bad": ("finished", "fatal_error"), "slow": ("finished", "ok")}
    assert run.state == "failed"


@pytest.mark.parametrize("reason", ["invalid_arguments", "tool_not_disclosed", "approval_rejected"])
def test_what_is_refused_is_no_failure(clerk, dana, reason):
    Agent.objects.update(raise_on_tool_failure=True)
    proposed = {
        "invalid_arguments": call("a", "look_up", what=5),
        "tool_not_disclosed": call("a", "nothing"),
        "approval_rejected": call("a", "pay", account="ana", amount=1),
    }[reason]
    run = clerk.run(calls(proposed), says("done"))
    if reason == "approval_rejected":
        clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
        clerk.drive(run)
    assert clerk.execution(run, "a").reason == reason
    assert run.state == "succeeded"


def test_a_tool_may_stop_the_run_when_it_fails(clerk):
    Tool.objects.filter(name="fail").update(stop_on_failure=True)
    run = clerk.run(calls(call("a", "fail", how="never"), call("b", "pay", account="ana", amount=1)), says("no"))
    assert (run.state, run.stop_reason) == ("stopped", "tool_failure")
    assert states(run)["b"] == ("cancelled", "")
    assert "there is no such thing" in run.stop_message


def test_another_tools_failure_does_not_stop_the_run(clerk):
    Tool.objects.filter(name="look_up").update(stop_on_failure=True)
    assert clerk.run(calls(call("a", "fail", how="never")), says("done")).state == "succeeded"


def test_a_lost_call_waits_for_a_person_before_it_counts_as_a_failure(clerk, dana):
    Agent.objects.update(raise_on_tool_failure=True)
    allow("send")
    run = clerk.run(calls(call("a", "send", to="ana", how="lost")), says("done"))
    assert (run.state, run.waiting_for) == ("waiting", "outcome")


def test_an_agents_runs_may_not_succeed_after_a_tool_has_failed(clerk):
    Agent.objects.update(fail_run_on_tool_error=True)
    run = clerk.run(calls(call("a", "fail", how="never")), says("It could not be found."))
    assert (run.state, run.stop_reason, run.had_tool_errors) == ("failed", "tool_failure", True)
    assert run.answer == "It could not be found."


def test_an_agents_runs_succeed_when_no_tool_failed(clerk):
    Agent.objects.update(fail_run_on_tool_error=True)
    assert clerk.run(calls(call("a", "look_up", what="x")), says("done")).state == "succeeded"
