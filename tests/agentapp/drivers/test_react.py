"""A model that knows nothing of functions decides by what it writes."""

import dataclasses
import json
from typing import Any

import pytest

from agentapp.drivers import settings_problems
from agentapp.drivers.base import ModelError, StepRequest
from agentapp.messages import AssistantMessage, Note, ToolCall, ToolMessage, ToolSpec, UserMessage
from tests.agentapp.drivers.binding import Door, bound
from tests.wire import DIALECTS, Answer, ProviderServer

DIALECT = DIALECTS["openai"]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS = (ToolSpec("add", "Add two numbers.", SCHEMA),)
CALL = {"thought": "I must add.", "type": "call_tool", "tool": "add", "args": {"a": 2, "b": 3}}
FINAL = {"thought": "I know it.", "type": "final_answer", "answer": "It is 5."}


def state(*messages: Any, settings: dict[str, Any] | None = None, **changes: Any) -> StepRequest:
    agent = {
        "instructions": "Be kind.",
        "model": DIALECT.model,
        "model_settings": {"temperature": 0},
        "driver_settings": settings or {},
        "parallel_tool_calls": True,
    }
    request = StepRequest("run", 1, agent, None, messages or (UserMessage("What is 2 + 3?"),), TOOLS)
    return dataclasses.replace(request, **changes)


def says(provider: ProviderServer, *decisions: Any, **options: Any) -> None:
    for decision in decisions:
        text = decision if isinstance(decision, str) else json.dumps(decision)
        provider.answer(Answer(DIALECT.reply(text, **options)))


def test_the_tools_stand_in_the_instructions_and_nowhere_else(provider: ProviderServer) -> None:
    says(provider, CALL)
    bound("react").next_step(state())
    body = provider.questions[0].body
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    instructions = DIALECT.read(provider.questions[0]).instructions
    assert instructions.startswith("Be kind.")
    for told in ("add: Add two numbers.", json.dumps(SCHEMA), '"type": "call_tool"', '"type": "final_answer"'):
        assert told in instructions
    assert body["temperature"] == 0


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_every_provider_can_be_asked_without_functions(provider: ProviderServer, name: str) -> None:
    dialect = DIALECTS[name]
    provider.answer(Answer(dialect.reply(json.dumps(CALL))))
    first = state()
    agent = {**first.agent, "model": dialect.model}
    call, result = ToolCall("1", "add", '{"a":1,"b":1}'), ToolMessage("1", "add", "2")
    messages = (*first.messages, AssistantMessage("First.", (call,)), result)
    reply = bound("react").next_step(dataclasses.replace(first, agent=agent, messages=messages))
    sent = dialect.read(provider.questions[0])
    assert (sent.tools, sent.calls, sent.results) == ({}, [], [])
    assert sent.users == ["What is 2 + 3?", "Observation: 2"]
    assert [found.name for found in reply.tool_calls] == ["add"]


def test_a_call_carries_the_thought_as_text_and_an_id_of_its_own(provider: ProviderServer) -> None:
    says(provider, CALL, CALL)
    driver = bound("react")
    first, second = driver.next_step(state()), driver.next_step(state())
    assert (first.text, first.reasoning, first.finish_reason) == ("I must add.", "", "tool_call")
    (call,) = first.tool_calls
    assert (call.name, json.loads(call.arguments_text)) == ("add", {"a": 2, "b": 3})
    assert call.id != second.tool_calls[0].id
    assert first.notes == (Note("decided", {"type": "call_tool", "attempts": 1}),)


def test_an_answer_keeps_the_thought_apart(provider: ProviderServer) -> None:
    says(provider, FINAL)
    reply = bound("react").next_step(state())
    assert (reply.text, reply.reasoning, reply.tool_calls) == ("It is 5.", "I know it.", ())
    assert reply.notes == (Note("decided", {"type": "final_answer", "attempts": 1}),)


def test_the_run_is_shown_as_a_dialogue(provider: ProviderServer) -> None:
    says(provider, FINAL)
    call, again = ToolCall("1", "add", '{"a":2}'), ToolCall("2", "add", '{"a":2,"b":3}')
    bound("react").next_step(
        state(
            UserMessage("What is 2 + 3?"),
            AssistantMessage("I must add.", (call,), [{"kind": "response"}]),
            ToolMessage("1", "add", "Not executed (missing_arguments): b is missing.", ok=False),
            AssistantMessage("", (again,)),
            ToolMessage("2", "add", "5"),
            UserMessage("And quickly."),
        )
    )
    said = [(m["role"], m["content"]) for m in provider.questions[0].body["messages"] if m["role"] != "system"]
    assert said == [
        ("user", "What is 2 + 3?"),
        ("assistant", 'Thought: I must add.\nAction: add\nAction Input: {"a":2}'),
        ("user", "Observation: ERROR - Not executed (missing_arguments): b is missing."),
        ("assistant", 'Action: add\nAction Input: {"a":2,"b":3}'),
        # No side speaks twice in a row: some chat templates refuse that.
        ("user", "Observation: 5\n\nAnd quickly."),
    ]


def test_two_calls_of_one_step_keep_their_order(provider: ProviderServer) -> None:
    says(provider, FINAL)
    calls = (ToolCall("1", "add", '{"a":1}'), ToolCall("2", "add", '{"a":2}'))
    results = (ToolMessage("1", "add", "one"), ToolMessage("2", "add", "two"))
    bound("react").next_step(state(UserMessage("Go."), AssistantMessage("Both.", calls), *results))
    said = [m["content"] for m in provider.questions[0].body["messages"][2:]]
    assert said == [
        'Thought: Both.\nAction: add\nAction Input: {"a":1}\nAction: add\nAction Input: {"a":2}',
        "Observation: one\n\nObservation: two",
    ]


def test_what_is_wrong_goes_back_to_the_model_and_every_attempt_is_paid_for(provider: ProviderServer) -> None:
    says(provider, "{bad json", {**CALL, "args": {"a": 2}}, CALL, tokens=(100, 20, 40))
    reply = bound("react").next_step(state())
    assert len(reply.tool_calls) == 1
    assert reply.notes == (Note("decided", {"type": "call_tool", "attempts": 3}),)
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (300, 60, 120)
    one = bound("react")
    says(provider, CALL, tokens=(100, 20, 40))
    assert reply.usage.cost == 3 * one.next_step(state()).usage.cost
    last = [(m["role"], m["content"]) for m in provider.questions[2].body["messages"][1:]]
    assert [role for role, _ in last] == ["user", "assistant", "user", "assistant", "user"]
    assert last[1][1] == "{bad json"
    assert "call_tool or final_answer" in last[2][1]
    assert "Required arguments are missing: b." in last[4][1]


@pytest.mark.parametrize(
    ("decision", "reason", "told"),
    [
        ("{bad json", "decision_extraction", "call_tool or final_answer"),
        ({**CALL, "args": {"a": 2}}, "decision_validation", "Required arguments are missing: b."),
        ({**CALL, "tool": "shell"}, "decision_validation", "Requested tool is not available."),
    ],
)
def test_after_the_last_attempt_there_is_no_decision_and_never_an_answer(
    provider: ProviderServer, decision: Any, reason: str, told: str
) -> None:
    says(provider, decision, decision, decision)
    reply = bound("react").next_step(state())
    assert reply.failure is not None
    assert (reply.failure.reason, reply.failure.attempts) == (reason, 3)
    assert told in reply.failure.message
    assert reply.tool_calls == ()
    assert reply.usage.input_tokens == 300
    assert len(provider.questions) == 3


@pytest.mark.parametrize("retries", [0, 1])
def test_an_agent_says_how_often_a_reply_is_sent_back(provider: ProviderServer, retries: int) -> None:
    says(provider, *["?"] * (retries + 1))
    reply = bound("react").next_step(state(settings={"max_retries": retries}))
    assert reply.failure is not None
    assert reply.failure.attempts == len(provider.questions) == retries + 1


def test_an_unknown_price_of_one_attempt_makes_the_sum_unknown(provider: ProviderServer) -> None:
    says(provider, "?", model="house-blend-7b")
    says(provider, CALL)
    assert bound("react").next_step(state()).usage.cost is None


def test_the_last_word_may_be_asked_for_on_its_own(provider: ProviderServer) -> None:
    says(provider, FINAL, "Kindly: five.")
    settings = {
        "final_via_inference": True,
        "final_model": "openai:gpt-4o",
        "final_options": {"temperature": 0.5, "max_tokens": 50},
    }
    reply = bound("react").next_step(state(settings=settings))
    assert (reply.text, reply.reasoning) == ("Kindly: five.", "I know it.")
    assert reply.usage.input_tokens == 200
    decided, final = provider.questions
    assert decided.body["model"] == "gpt-4o-mini"
    assert (final.body["model"], final.body["temperature"]) == ("gpt-4o", 0.5)
    sent = DIALECT.read(final)
    assert sent.instructions == "Return only the final answer as plain text.\n\nBe kind."
    assert sent.users[0] == "What is 2 + 3?"
    assert "It is 5." in final.body["messages"][2]["content"]


def test_a_call_is_never_followed_by_the_last_word(provider: ProviderServer) -> None:
    says(provider, CALL)
    bound("react").next_step(state(settings={"final_via_inference": True}))
    assert len(provider.questions) == 1


def test_an_empty_last_word_leaves_the_decisions_answer(provider: ProviderServer) -> None:
    says(provider, FINAL, "")
    assert bound("react").next_step(state(settings={"final_via_inference": True})).text == "It is 5."


def test_every_question_goes_through_the_runtime(provider: ProviderServer) -> None:
    says(provider, "?", FINAL, "Five.")
    door = Door()
    bound("react", door).next_step(state(settings={"final_via_inference": True}))
    assert len(door.asked) == len(provider.questions) == 3


@pytest.mark.parametrize(
    ("choice", "may_call", "may_answer"),
    [("auto", True, True), ("required", True, False), ("add", True, False), ("none", False, True)],
)
def test_the_choice_of_tools_is_said_in_words(
    provider: ProviderServer, choice: str, may_call: bool, may_answer: bool
) -> None:
    says(provider, CALL if may_call else FINAL)
    bound("react").next_step(state(tool_choice=choice))
    instructions = DIALECT.read(provider.questions[0]).instructions
    assert ('"call_tool"' in instructions, '"final_answer"' in instructions) == (may_call, may_answer)


def test_calls_a_provider_makes_up_on_its_own_are_not_taken(provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply(json.dumps(FINAL), [("x", "add", {"a": 1, "b": 2})])))
    assert bound("react").next_step(state()).tool_calls == ()


@pytest.mark.parametrize(
    "settings",
    [{"max_retries": -1}, {"max_retries": 1.5}, {"retries": 1}, {"final_model": 5}, {"final_options": []}, []],
)
def test_settings_that_make_no_sense_are_told(settings: Any) -> None:
    assert settings_problems("react", settings)


def test_a_run_with_such_settings_asks_nobody() -> None:
    with pytest.raises(ModelError, match="driver settings") as caught:
        bound("react").next_step(state(settings={"max_retries": "many"}))
    assert not caught.value.retryable


def test_settings_that_make_sense_are_taken_by_every_driver() -> None:
    assert settings_problems("react", {"max_retries": 2, "final_via_inference": True, "final_model": None}) == []
    assert settings_problems("tool_calling", {}) == []
