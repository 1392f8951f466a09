"""Replies read while they are written: the same replies and the same failures as in one piece."""

import json
import threading
from typing import Any

import pytest

from agentapp.llm import ModelError, Request, complete
from agentapp.messages import ToolSpec, UserMessage
from tests.wire import DIALECTS, Answer, ProviderServer

TOOLS = (ToolSpec("read_order", "Read an order.", {"type": "object", "properties": {"order": {"type": "string"}}}),)
CALLS = [("call_a", "read_order", {"order": "A-1"}), ("call_b", "read_order", {"order": "A-2"})]


@pytest.fixture(params=sorted(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Any:
    return DIALECTS[request.param]


def question(dialect: Any, **options: Any) -> Request:
    return Request(dialect.model, "", (UserMessage("Where is A-1?"),), TOOLS, **({"timeout": 10} | options))


def fails(dialect: Any, watch: Any, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        complete(question(dialect, **options), watch)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


def test_a_reply_in_pieces_is_the_reply_in_one(provider: ProviderServer, dialect: Any) -> None:
    provider.answer(Answer(events=dialect.stream("Let me ", "look.", calls=CALLS)))
    provider.answer(Answer(dialect.reply("Let me look.", CALLS)))
    pieces, whole = complete(question(dialect), lambda text: None), complete(question(dialect))
    assert (pieces.text, pieces.usage, pieces.model) == (whole.text, whole.usage, whole.model)
    assert pieces.finish_reason == whole.finish_reason
    assert [(call.id, call.name, json.loads(call.arguments_text)) for call in pieces.tool_calls] == CALLS
    assert pieces.first_token_seconds is not None
    assert whole.first_token_seconds is None


def test_who_watches_is_told_in_their_own_thread_what_has_come(provider: ProviderServer, dialect: Any) -> None:
    gate = threading.Event()
    seen: list[tuple[str, int]] = []

    def watch(text: str) -> None:
        seen.append((text, threading.get_ident()))
        gate.set()

    provider.answer(Answer(events=dialect.stream("On its ", gate, "way.")))
    assert complete(question(dialect), watch).text == "On its way."
    assert seen[0] == ("On its ", threading.get_ident())


def test_without_anybody_who_watches_nothing_is_streamed(provider: ProviderServer, dialect: Any) -> None:
    provider.answer(Answer(dialect.reply("Hi.")))
    complete(question(dialect))
    assert provider.questions[0].path == dialect.path
    assert "stream" not in provider.questions[0].body or not provider.questions[0].body["stream"]


@pytest.mark.parametrize(("status", "code"), [(408, "busy"), (429, "rate_limited"), (500, "server_error")])
def test_a_status_means_the_same_as_without_streaming(
    provider: ProviderServer, dialect: Any, status: int, code: str
) -> None:
    answer = Answer(dialect.error("Slow down.", "x"), status=status, headers={"Retry-After": "17"})
    provider.answer(answer, answer)
    plain, streamed = fails(dialect, None), fails(dialect, lambda text: None)
    assert (streamed.code, streamed.retryable, streamed.retry_after) == (code, True, plain.retry_after)
    assert str(streamed) == str(plain)
    assert len(provider.questions) == 2


def test_a_request_that_is_refused_is_not_tried_again(provider: ProviderServer, dialect: Any) -> None:
    provider.answer(Answer(dialect.error("No.", "invalid_request_error"), status=400))
    error = fails(dialect, lambda text: None)
    assert (error.code, error.retryable) == ("rejected", False)


def test_a_line_that_breaks_in_the_middle_may_be_tried_again(provider: ProviderServer, dialect: Any) -> None:
    begun = dialect.stream("Half a ", "story.")[:2]
    provider.answer(Answer(events=(*begun, None)))
    error = fails(dialect, lambda text: None)
    assert (error.code, error.retryable) == ("connection", True)


def test_a_reply_that_ends_without_saying_so_is_no_reply(provider: ProviderServer, dialect: Any) -> None:
    """Its last call could be half a call."""
    provider.answer(Answer(events=dialect.stream("Half a ", "story.")[:2]))
    error = fails(dialect, lambda text: None)
    assert (error.code, error.retryable) == ("connection", True)
    assert "broke off" in str(error)


def test_an_error_that_a_provider_sends_in_the_middle_may_be_tried_again(provider: ProviderServer) -> None:
    dialect = DIALECTS["anthropic"]
    broken = b"event: error\ndata: " + json.dumps(dialect.error("Overloaded", "overloaded_error")).encode() + b"\n\n"
    provider.answer(Answer(events=(*dialect.stream("Half a ", "story.")[:3], broken)))
    assert fails(dialect, lambda text: None).retryable


def test_the_deadline_covers_the_whole_reply(provider: ProviderServer, dialect: Any) -> None:
    gate = threading.Event()
    provider.answer(Answer(events=dialect.stream("One ", gate, "two.")))
    error = fails(dialect, lambda text: None, timeout=0.7)
    gate.set()
    assert (error.code, error.retryable) == ("timeout", True)


def test_what_a_model_only_thinks_is_never_shown(provider: ProviderServer, dialect: Any) -> None:
    gates = [threading.Event(), threading.Event()]
    seen: list[str] = []

    def watch(text: str) -> None:
        seen.append(text)
        gates[len(seen) - 1].set() if len(seen) <= 2 else None

    provider.answer(
        Answer(events=dialect.stream("<think>They seem ", gates[0], "cross.</think>", "Packed", gates[1], "."))
    )
    reply = complete(question(dialect), watch)
    assert (reply.text, seen[:2]) == ("Packed.", ["", "Packed"])


def test_a_refusal_in_pieces_is_the_reply(provider: ProviderServer) -> None:
    dialect = DIALECTS["openai"]
    first, *_, usage, done = dialect.stream()
    refusal = first.replace(b'"content": ""', b'"refusal": "I cannot help with that."')
    provider.answer(Answer(events=(refusal, usage, done)))
    reply = complete(question(dialect), lambda text: None)
    assert (reply.text, reply.finish_reason) == ("I cannot help with that.", "content_filter")
