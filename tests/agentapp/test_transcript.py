"""What a model is shown: a history any provider accepts, with one answer for each call."""

from dataclasses import replace

import pytest

from agentapp.answers import answer
from agentapp.compilers import GO_ON, compile_messages, load_earlier
from agentapp.messages import AssistantMessage, ToolMessage, UserMessage
from agentapp.models import Agent, ToolExecution
from agentapp.transcript import load_steps
from tests import clerk_hooks
from tests.conftest import call, calls, says


def history(run):
    return compile_messages(run, load_earlier(run), load_steps(run))


def test_each_step_is_followed_by_the_answers_to_its_calls_in_order(clerk):
    run = clerk.run(
        calls(call("a", "look_up", what="x"), call("b", "nothing"), text="Let me see."),
        calls(call("a", "look_up", what="y")),
        says("done"),
    )
    messages = history(run)
    kinds = [type(message) for message in messages]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, ToolMessage, AssistantMessage, ToolMessage,
                     AssistantMessage]  # fmt: skip
    assert [c.id for c in messages[1].tool_calls] == ["a", "b"]
    assert [(m.call_id, m.ok) for m in messages[2:4]] == [("a", True), ("b", False)]
    assert messages[5].text == '{"found": "y"}'


def test_a_call_without_an_answer_is_never_sent(clerk):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1)))
    with pytest.raises(ValueError, match="no answer yet"):
        history(run)


def test_a_long_result_is_cut_with_a_note(clerk):
    run = clerk.run(calls(call("a", "look_up", what="x" * 20_000)), says("ok"))
    text = answer(clerk.execution(run, "a")).text
    assert len(text) < 16 * 1024 + 200
    assert "characters in all" in text


def test_results_keep_their_letters(clerk):
    run = clerk.run(calls(call("a", "look_up", what="Grüße, 世界")), says("ok"))
    assert "Grüße, 世界" in answer(clerk.execution(run, "a")).text


def test_metadata_is_never_shown_to_the_model(clerk):
    run = clerk.run(calls(call("a", "look_up", what="x")), says("ok"))
    ToolExecution.objects.update(metadata={"key": "canary"})
    assert "canary" not in answer(clerk.execution(run, "a")).text


def test_an_answer_that_did_not_end_the_run_is_followed_by_the_wish_for_more_and_the_last_is_not(clerk):
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"])
    clerk_hooks.DO["after_step"] = lambda context: replace(context, continue_run=context.step == 1)
    run = clerk.run(says("half"), says("whole"))
    assert history(run) == (
        UserMessage(run.input), AssistantMessage("half"), UserMessage(GO_ON), AssistantMessage("whole"),
    )  # fmt: skip
