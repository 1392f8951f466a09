"""What only one provider says and wants back, and what happens when many ask at once."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from agentapp.llm import Request, complete
from agentapp.messages import AssistantMessage, Reply, ToolCall, ToolMessage, ToolSpec, UserMessage
from tests.wire import DIALECTS, Answer, ProviderServer, Question

TOOLS = (ToolSpec("read_order", "Read an order.", {"type": "object", "properties": {"order": {"type": "string"}}}),)
CALL = {"type": "tool_use", "id": "call_a", "name": "read_order", "input": {"order": "A-1"}}
THOUGHT = {"type": "thinking", "thinking": "The customer wants A-1.", "signature": "c2lnbmF0dXJl"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}

openai, anthropic, google = DIALECTS["openai"], DIALECTS["anthropic"], DIALECTS["google"]


def ask(model: str, *messages: Any, **options: Any) -> Reply:
    messages = messages or (UserMessage("Where is A-1?"),)
    return complete(Request(model, "", messages, TOOLS, **({"timeout": 10} | options)))


def followed_up(provider: ProviderServer, dialect: Any, said: AssistantMessage) -> dict[str, Any]:
    """The body of the request that carries `said` and the answer to its call."""
    provider.answer(Answer(dialect.reply("Done.")))
    answered = [ToolMessage(call.id, call.name, "Packed.") for call in said.tool_calls]
    ask(dialect.model, UserMessage("Where is A-1?"), said, *answered)
    return provider.questions[-1].body


def stored(reply: Reply) -> AssistantMessage:
    """A reply as it comes back from a table, by way of JSON."""
    return AssistantMessage(reply.text, reply.tool_calls, json.loads(json.dumps(reply.provider_parts)))


@pytest.mark.parametrize(
    "arguments", ['{"order": "A-1"', "", "not json", '{"a":1}{"b":2}', '{"order": NaN}', "[1]", "null"]
)
def test_arguments_come_as_the_model_wrote_them(provider: ProviderServer, arguments: str) -> None:
    provider.answer(Answer(openai.reply("", [("call_a", "read_order", arguments)])))
    assert ask(openai.model).tool_calls == (ToolCall("call_a", "read_order", arguments or "{}"),)


def test_anthropics_reasoning_is_signed_kept_and_handed_back(provider: ProviderServer) -> None:
    answer = anthropic.reply() | {"content": [THOUGHT, REDACTED, {"type": "text", "text": "Let me look."}, CALL]}
    provider.answer(Answer(answer))
    reply = ask(anthropic.model)
    assert reply.text == "Let me look."
    assert [call.id for call in reply.tool_calls] == ["call_a"]
    body = followed_up(provider, anthropic, stored(reply))
    turn = body["messages"][1]["content"]
    assert [block["type"] for block in turn] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert {name: turn[0][name] for name in THOUGHT} == THOUGHT
    assert {name: turn[1][name] for name in REDACTED} == REDACTED


def test_reasoning_survives_a_dropped_text(provider: ProviderServer) -> None:
    provider.answer(Answer(anthropic.reply() | {"content": [THOUGHT, {"type": "text", "text": "{}"}, CALL]}))
    said = replace(stored(ask(anthropic.model)), text="")
    turn = followed_up(provider, anthropic, said)["messages"][1]["content"]
    assert [block["type"] for block in turn] == ["thinking", "tool_use"]


@pytest.mark.parametrize(
    "change",
    [
        {"text": "Something else."},
        {"tool_calls": (ToolCall("call_z", "read_order", "{}"),)},
        {"provider_parts": [{"kind": "response", "parts": "broken"}]},
        {"provider_parts": [{"kind": "request", "parts": []}]},
        {"provider_parts": []},
    ],
)
def test_stored_parts_that_tell_another_story_are_not_believed(
    provider: ProviderServer, change: dict[str, Any]
) -> None:
    provider.answer(Answer(anthropic.reply() | {"content": [THOUGHT, {"type": "text", "text": "Let me look."}, CALL]}))
    said = replace(stored(ask(anthropic.model)), **change)
    sent = anthropic.read(Question("", {}, followed_up(provider, anthropic, said)))
    assert [call_id for call_id, _, _ in sent.calls] == [call.id for call in said.tool_calls]
    assert [call_id for call_id, _ in sent.results] == [call.id for call in said.tool_calls]
    assert "c2lnbmF0dXJl" not in json.dumps(provider.questions[-1].body)


def test_a_replaced_id_is_the_id_in_the_stored_parts_too(provider: ProviderServer) -> None:
    provider.answer(
        Answer(anthropic.reply() | {"content": [THOUGHT, CALL | {"id": "toolu_1"}, CALL | {"id": "toolu_1"}]})
    )
    reply = ask(anthropic.model)
    body = followed_up(provider, anthropic, stored(reply))
    ids = [block["id"] for block in body["messages"][1]["content"] if block["type"] == "tool_use"]
    assert ids == [call.id for call in reply.tool_calls]
    assert body["messages"][1]["content"][0]["signature"] == THOUGHT["signature"]
    assert len(set(ids)) == 2


def test_reasoning_alone_is_no_text_and_is_not_handed_back(provider: ProviderServer) -> None:
    provider.answer(Answer(anthropic.reply() | {"content": [THOUGHT], "stop_reason": "max_tokens"}))
    reply = ask(anthropic.model)
    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("", (), "length")
    provider.answer(Answer(anthropic.reply("Hi.")))
    ask(anthropic.model, UserMessage("Hi."), stored(reply), UserMessage("Hello?"))
    assert [message["role"] for message in provider.questions[-1].body["messages"]] == ["user"]


def test_a_broken_character_in_reasoning_can_be_stored(provider: ProviderServer) -> None:
    provider.answer(Answer(anthropic.reply() | {"content": [THOUGHT | {"thinking": "a\x00b"}, CALL]}))
    reply = ask(anthropic.model)
    assert "\\u0000" not in json.dumps(reply.provider_parts)


def test_googles_thought_signature_goes_back_with_its_call(provider: ProviderServer) -> None:
    thought = {"text": "Hm, A-1.", "thought": True}
    call = {
        "functionCall": {"id": "call_a", "name": "read_order", "args": {"order": "A-1"}},
        "thoughtSignature": "c2ln",
    }
    answer = google.reply()
    answer["candidates"][0]["content"]["parts"] = [thought, call]
    provider.answer(Answer(answer))
    reply = ask(google.model)
    assert reply.text == ""
    parts = followed_up(provider, google, stored(reply))["contents"][1]["parts"]
    assert [part["thoughtSignature"] for part in parts if "functionCall" in part] == ["c2ln"]


def test_google_calls_without_ids_get_some(provider: ProviderServer) -> None:
    answer = google.reply()
    answer["candidates"][0]["content"]["parts"] = [{"functionCall": {"name": "read_order", "args": {}}}] * 2
    provider.answer(Answer(answer))
    ids = [call.id for call in ask(google.model).tool_calls]
    assert len(set(ids)) == 2
    assert all(ids)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_of_a_compatible_server_is_not_text(provider: ProviderServer, field: str) -> None:
    answer = openai.reply("Packed.")
    answer["choices"][0]["message"][field] = "The customer seems cross."
    provider.answer(Answer(answer))
    assert ask("openai:house-blend-7b").text == "Packed."


def test_reasoning_in_tags_is_not_text(provider: ProviderServer) -> None:
    provider.answer(Answer(openai.reply("<think>They seem cross.</think>Packed.")))
    assert ask("openai:house-blend-7b").text == "Packed."


def test_a_refusal_is_the_reply(provider: ProviderServer) -> None:
    answer = openai.reply()
    answer["choices"][0]["message"]["refusal"] = "I cannot help with that."
    provider.answer(Answer(answer))
    reply = ask(openai.model)
    assert (reply.text, reply.finish_reason) == ("I cannot help with that.", "content_filter")


@pytest.mark.parametrize(
    ("model", "limit"), [("house-blend-7b", "max_tokens"), ("gpt-4o-mini", "max_completion_tokens")]
)
def test_a_compatible_server_is_told_its_limit_by_the_older_name(
    provider: ProviderServer, model: str, limit: str
) -> None:
    provider.answer(Answer(openai.reply("Hi.")))
    ask(f"openai:{model}", settings={"max_tokens": 9})
    body = provider.questions[0].body
    assert {name: value for name, value in body.items() if name.startswith("max_")} == {limit: 9}


def test_a_server_of_ones_own_needs_no_key(provider: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    provider.answer(Answer(openai.reply("Hi.")))
    assert ask("openai:house-blend-7b").text == "Hi."


def test_googles_older_variable_counts_when_the_newer_is_not_set(
    provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY")
    monkeypatch.setenv("GEMINI_API_KEY", "older-key")
    provider.answer(Answer(google.reply("Hi.")))
    ask(google.model)
    assert provider.questions[0].headers["x-goog-api-key"] == "older-key"


def test_a_changed_key_counts_at_once(provider: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.answer(Answer(openai.reply("Hi.")), Answer(openai.reply("Hi.")))
    ask(openai.model)
    monkeypatch.setenv("OPENAI_API_KEY", "fresh-key")
    ask(openai.model)
    assert provider.questions[1].headers["authorization"] == "Bearer fresh-key"


def test_sixteen_threads_ask_at_once_and_each_gets_its_own_answer(provider: ProviderServer) -> None:
    by_path = {dialect.path: dialect for dialect in DIALECTS.values()}

    def echo(question: Question) -> Answer:
        dialect = by_path[question.path]
        return Answer(dialect.reply(dialect.read(question).users[0]))

    provider.answer_with = echo
    models = [dialect.model for dialect in DIALECTS.values()]

    def twelve(thread: int) -> list[bool]:
        texts = [f"thread {thread} question {number}" for number in range(12)]
        return [ask(models[(thread + i) % 3], UserMessage(text)).text == text for i, text in enumerate(texts)]

    with ThreadPoolExecutor(16) as pool:
        assert all(all(answers) for answers in pool.map(twelve, range(16)))


def test_a_forked_process_asks_through_a_loop_of_its_own(provider: ProviderServer) -> None:
    provider.answer_with = lambda question: Answer(openai.reply("Hi."))
    assert ask(openai.model).text == "Hi."
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if ask(openai.model).text == "Hi." else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask(openai.model).text == "Hi."
