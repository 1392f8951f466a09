"""The driver asks with what the run keeps, and drops a text that only repeats a call."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from agentapp.drivers.base import ModelError, StepRequest
from agentapp.drivers.tool_calling import repeated_call
from agentapp.messages import AssistantMessage, Note, Reply, ToolCall, ToolMessage, ToolSpec, UserMessage
from tests.agentapp.drivers.binding import Door, bound
from tests.wire import DIALECTS, Answer, ProviderServer

DIALECT = DIALECTS["openai"]
TOOLS = (ToolSpec("refund", "Pay back.", {"type": "object", "properties": {"order": {"type": "string"}}}),)
CALL = ToolCall("call_a", "refund", '{"order": "A-1", "amount": 12.50}')


def state(**changes: Any) -> StepRequest:
    agent: Mapping[str, Any] = {
        "instructions": "Be kind.",
        "model": DIALECT.model,
        "model_settings": {"temperature": 0},
        "parallel_tool_calls": False,
    } | changes
    return StepRequest("run", 1, agent, None, (UserMessage("Where is A-1?"),), TOOLS)


def test_a_step_is_asked_for_as_the_run_was_configured(provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply("On its way.", [("call_a", "refund", {"order": "A-1"})])))
    reply = bound("tool_calling").next_step(state())
    question = provider.questions[0]
    sent = DIALECT.read(question)
    assert (sent.instructions, sent.users, list(sent.tools)) == ("Be kind.", ["Where is A-1?"], ["refund"])
    assert question.body["parallel_tool_calls"] is False
    assert question.body["temperature"] == 0
    assert (reply.text, reply.tool_calls) == ("On its way.", (ToolCall("call_a", "refund", '{"order": "A-1"}'),))


def test_a_leaked_text_is_dropped_and_the_calls_stay(provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply('{"order":"A-1"}', [("call_a", "refund", {"order": "A-1"})])))
    reply = bound("tool_calling").next_step(state())
    assert reply.text == ""
    assert len(reply.tool_calls) == 1
    assert reply.usage.input_tokens == 100
    assert reply.notes == (Note("content_dropped", {"characters": 15, "call": "call_a"}),)


def test_a_text_beside_a_call_stays_and_nothing_is_noted(provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply("Calling tool", [("call_a", "refund", {"order": "A-1"})])))
    reply = bound("tool_calling").next_step(state())
    assert (reply.text, reply.notes) == ("Calling tool", ())


@pytest.mark.parametrize("choice", ["auto", "required", "none", "refund"])
def test_the_steps_choice_reaches_the_models_door(provider: ProviderServer, choice: str) -> None:
    provider.answer(Answer(DIALECT.reply("Done.")))
    door = Door()
    bound("tool_calling", door).next_step(dataclasses.replace(state(), tool_choice=choice))
    assert [request.tool_choice for request in door.asked] == [choice]


def test_the_next_step_carries_the_results(provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply("Done.")))
    before = state()
    messages = (*before.messages, AssistantMessage("", (CALL,)), ToolMessage("call_a", "refund", "Paid back."))
    bound("tool_calling").next_step(StepRequest("run", 2, before.agent, None, messages, TOOLS))
    assert DIALECT.read(provider.questions[0]).results == [("call_a", "Paid back.")]


def test_an_agents_own_time_limit_counts(provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply("Done."), ending="never"))
    with pytest.raises(ModelError, match=r"within 0\.3 seconds") as caught:
        bound("tool_calling").next_step(state(model_settings={"timeout": 0.3}))
    assert caught.value.retryable


def test_without_one_the_installations_counts(provider: ProviderServer, settings: Any) -> None:
    settings.MODEL_TIMEOUT_SECONDS = 0.3
    provider.answer(Answer(DIALECT.reply("Done."), ending="never"))
    with pytest.raises(ModelError, match=r"within 0\.3 seconds"):
        bound("tool_calling").next_step(state())


@pytest.mark.parametrize("timeout", [0, -1, 1e9, True, "10", None, float("nan")])
def test_a_time_limit_that_makes_no_sense_is_ignored(provider: ProviderServer, timeout: Any) -> None:
    provider.answer(Answer(DIALECT.reply("Done.")))
    assert bound("tool_calling").next_step(state(model_settings={"timeout": timeout})).text == "Done."


def test_an_agent_without_a_model_says_so() -> None:
    with pytest.raises(ModelError, match="is not a model name") as caught:
        bound("tool_calling").next_step(state(model=""))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "text",
    [
        '{"order": "A-1", "amount": 12.50}',
        ' {"amount": 12.5, "order": "A-1"}\n',
        '```json\n{"order": "A-1", "amount": 12.50}\n```',
        'I call the tool now:\n```\n{"amount": 12.5,\n "order": "A-1"}\n```\nPlease wait.',
        'Calling refund with {"order": "A-1", "amount": 12.5} now.',
        'First {this} then {"x": 1} then {"order": "A-1", "amount": 12.5}.',
    ],
)
def test_a_text_that_repeats_a_calls_arguments_is_recognised(text: str) -> None:
    other = ToolCall("call_b", "refund", '{"order": "B-2"}')
    assert repeated_call(Reply(text, (other, CALL))) == CALL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I refund order A-1.",
        '{"order": "A-1"}',
        '{"order": "A-1", "amount": "12.5"}',
        '{"order": "A-1", "amount": 12.5',
        "{" * 5000,
        '{"a":' * 5000,
    ],
)
def test_another_text_stays(text: str) -> None:
    assert not repeated_call(Reply(text, (CALL,)))


def test_without_calls_json_is_an_answer_like_any_other() -> None:
    assert not repeated_call(Reply('{"order": "A-1"}'))


def test_an_empty_pair_of_braces_in_a_sentence_is_no_repetition() -> None:
    nothing = ToolCall("call_a", "list_orders", "{}")
    assert not repeated_call(Reply("The template has {} in it.", (nothing,)))
    assert repeated_call(Reply("{}", (nothing,)))


def test_one_is_not_true() -> None:
    assert not repeated_call(Reply('{"express": 1}', (ToolCall("call_a", "refund", '{"express": true}'),)))


def test_malformed_arguments_are_never_repeated() -> None:
    assert not repeated_call(Reply("not json", (ToolCall("call_a", "refund", "not json"),)))
