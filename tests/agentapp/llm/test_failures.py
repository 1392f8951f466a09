"""Every way a reply can fail to come, what the loop is told, and what is never said."""

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from agentapp.llm import ModelError, Request, bounded, complete
from agentapp.messages import UserMessage
from tests.wire import DIALECTS, KEY, Answer, ProviderServer


@pytest.fixture(params=sorted(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Any:
    return DIALECTS[request.param]


def fails(model: str, timeout: float = 10, watch: Any = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        complete(Request(model, "", (UserMessage("Hi."),), timeout=timeout), watch)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (400, "invalid_request_error", "rejected", False),
        (401, "authentication_error", "authentication", False),
        (403, "permission_error", "authentication", False),
        (404, "not_found_error", "model_not_found", False),
        (408, "request_timeout", "busy", True),
        (409, "conflict", "busy", True),
        (413, "request_too_large", "rejected", False),
        (429, "rate_limit_error", "rate_limited", True),
        (500, "api_error", "server_error", True),
        (502, "api_error", "server_error", True),
        (503, "unavailable", "overloaded", True),
        (529, "overloaded_error", "overloaded", True),
    ],
)
def test_a_status_says_whether_asking_again_may_help(
    provider: ProviderServer, dialect: Any, status: int, kind: str, code: str, retryable: bool
) -> None:
    provider.answer(Answer(dialect.error("It went wrong.", kind), status=status))
    error = fails(dialect.model)
    assert (error.code, error.retryable, error.retry_after) == (code, retryable, None)
    assert dialect.model in str(error)
    assert str(status) in str(error)
    assert len(provider.questions) == 1


def test_a_provider_that_asks_for_patience_is_heard(provider: ProviderServer, dialect: Any) -> None:
    provider.answer(Answer(dialect.error("Slow down.", "rate_limit_error"), status=429, headers={"Retry-After": "17"}))
    error = fails(dialect.model)
    assert (error.retryable, error.retry_after) == (True, 17)
    assert "Slow down." in str(error)


@pytest.mark.parametrize(
    ("name", "status", "kind", "message", "code"),
    [
        ("openai", 429, "insufficient_quota", "You exceeded your current quota.", "quota_exceeded"),
        ("openai", 400, "context_length_exceeded", "This model's maximum context length is 8.", "context_window"),
        ("anthropic", 400, "invalid_request_error", "prompt is too long: 300000 tokens", "context_window"),
        ("anthropic", 400, "invalid_request_error", "Your credit balance is too low.", "quota_exceeded"),
        ("google", 400, "invalid_argument", "The input token count (9) exceeds the maximum.", "context_window"),
    ],
)
def test_what_waiting_cannot_cure_is_not_tried_again(
    provider: ProviderServer, name: str, status: int, kind: str, message: str, code: str
) -> None:
    dialect = DIALECTS[name]
    provider.answer(Answer(dialect.error(message, kind), status=status, headers={"Retry-After": "5"}))
    error = fails(dialect.model)
    assert (error.code, error.retryable, error.retry_after) == (code, False, None)


def test_half_a_reply_is_no_reply(provider: ProviderServer, dialect: Any) -> None:
    provider.answer(Answer(dialect.reply("A long story."), ending="cut"))
    error = fails(dialect.model)
    assert (error.code, error.retryable) == ("connection", True)
    assert len(provider.questions) == 1


@pytest.mark.parametrize("body", [b'{"choices": [', b"", b"<html>Bad gateway</html>", b"null", b"[]", b'{"a": 1}'])
def test_a_reply_of_another_shape_is_no_reply(provider: ProviderServer, dialect: Any, body: bytes) -> None:
    provider.answer(Answer(body))
    error = fails(dialect.model)
    assert (error.code, error.retryable) == ("invalid_reply", True)


@pytest.mark.parametrize("watch", [None, lambda text: None], ids=["whole", "in pieces"])
def test_a_reply_that_is_longer_than_anybody_reads_is_none_and_is_not_asked_for_again(
    provider: ProviderServer, dialect: Any, watch: Any
) -> None:
    provider.answer(Answer(dialect.reply("x" * 9_000_000)), Answer(dialect.reply("Here.")))
    error = fails(dialect.model, watch=watch)
    assert (error.code, error.retryable) == ("invalid_reply", False)
    assert str(error) == f"{dialect.model}: the model's reply is too long."
    assert complete(Request(dialect.model, "", (UserMessage("Hi."),), timeout=10), watch).text == "Here."


def test_pieces_without_end_are_no_reply(
    provider: ProviderServer, dialect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece is short, and together they say nothing."""
    monkeypatch.setattr(bounded, "MAX_STREAM_BYTES", 20_000)
    provider.answer(Answer(events=(b"\r\n" * 500,) * 60))
    error = fails(dialect.model, watch=lambda text: None)
    assert (error.code, error.retryable) == ("invalid_reply", False)


def test_a_reply_that_comes_packed_is_not_unpacked(provider: ProviderServer, dialect: Any) -> None:
    """Unpacked, it may be a thousand times as long."""
    packed = gzip.compress(json.dumps(dialect.reply("Hi.")).encode())
    provider.answer(Answer(packed, headers={"Content-Encoding": "gzip"}))
    error = fails(dialect.model)
    assert (error.code, error.retryable) == ("invalid_reply", False)
    assert "the provider sends a compressed reply, although it was asked not to" in str(error)
    assert provider.questions[0].headers["accept-encoding"] == "identity"


def test_of_an_error_that_comes_packed_the_status_decides(provider: ProviderServer, dialect: Any) -> None:
    packed = gzip.compress(b'{"error": {"message": "Come back later."}}')
    provider.answer(Answer(packed, status=503, headers={"Content-Encoding": "gzip"}))
    error = fails(dialect.model)
    assert (error.retryable, "503" in str(error)) == (True, True)


@pytest.mark.parametrize("ending", ["never", "drip"])
def test_a_deadline_covers_the_whole_reply(provider: ProviderServer, dialect: Any, ending: Any) -> None:
    """Even if bytes keep coming: each one would satisfy a time-out that only watches for silence."""
    provider.answer(Answer(dialect.reply("A long story."), ending=ending))
    error = fails(dialect.model, timeout=0.6)
    assert (error.code, error.retryable) == ("timeout", True)


def test_a_provider_that_is_not_there_may_come_back(
    provider: ProviderServer, dialect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(dialect.url_variable, "http://127.0.0.1:9")
    error = fails(dialect.model)
    assert (error.code, error.retryable) == ("connection", True)


def test_a_redirect_is_not_followed_with_the_key(provider: ProviderServer, dialect: Any) -> None:
    provider.answer(Answer({}, status=307, headers={"Location": f"{provider.url}/elsewhere"}))
    error = fails(dialect.model)
    assert not error.retryable
    assert len(provider.questions) == 1


def test_a_provider_that_echoes_the_key_is_not_quoted(provider: ProviderServer, dialect: Any) -> None:
    def echo(question: Any) -> Answer:
        return Answer(dialect.error(f"Bad header {question.headers[dialect.key_header]}", "x"), status=401)

    provider.answer_with = echo
    error = fails(dialect.model)
    assert "Bad header" not in str(error)


@pytest.mark.parametrize("status", [400, 429, 500])
def test_secrets_in_a_message_are_struck_out(
    provider: ProviderServer, dialect: Any, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole message is searched before it is cut: half a key is still a key."""
    monkeypatch.setenv("OPENAI_API_KEY", "another-provider-s-key")
    monkeypatch.setenv(dialect.key_variable, KEY)
    noise = f"Key {KEY} and another-provider-s-key, Authorization: Bearer abcdef123456, sk-proj-AAAABBBBCCCC\x1b[31m\n"
    provider.answer(Answer(dialect.error(noise + "x" * 120 + KEY + "y" * 5000, "x"), status=status))
    text = str(fails(dialect.model))
    for secret in (
        KEY[:12],
        "another-provider-s-key" if dialect.key_variable != "OPENAI_API_KEY" else KEY,
        "abcdef123456",
        "AAAABBBB",
    ):
        assert secret not in text
    assert len(text) < 500
    assert text.isprintable()


def test_a_page_instead_of_an_error_is_not_quoted(provider: ProviderServer, dialect: Any) -> None:
    page = Answer(b"<html><h1>Welcome to nginx</h1></html>", status=502, headers={"Content-Type": "text/html"})
    provider.answer(page)
    error = fails(dialect.model)
    assert error.retryable
    assert "nginx" not in str(error)


@pytest.mark.parametrize("name", ["", "gpt-4o", "openai", "openai:", "mainframe:hal", ":x"])
def test_a_name_that_names_no_model_is_refused_with_the_known_forms(name: str) -> None:
    error = fails(name)
    assert (error.code, error.retryable) == ("unknown_model", False)
    assert "openai:…, anthropic:…, google:…" in str(error)


def test_a_missing_key_is_named(provider: ProviderServer, dialect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(dialect.key_variable)
    monkeypatch.delenv(dialect.url_variable)
    error = fails(dialect.model)
    assert (error.code, error.retryable) == ("not_configured", False)
    assert dialect.key_variable in str(error)
    assert provider.questions == []


def test_a_base_url_that_is_no_address_is_named(
    provider: ProviderServer, dialect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(dialect.url_variable, "file:///etc/passwd")
    error = fails(dialect.model)
    assert (error.code, error.retryable) == ("not_configured", False)
    assert dialect.url_variable in str(error)


def test_after_a_failure_the_next_question_is_answered(provider: ProviderServer, dialect: Any) -> None:
    # By the moment, and not in order: a question that is given up may arrive late, or never.
    provider.answer_with = lambda question: replace(Answer(dialect.reply("?")), ending=ending)
    ending = "cut"
    fails(dialect.model)
    ending = "never"
    fails(dialect.model, timeout=0.3)
    provider.answer_with = lambda question: Answer(dialect.reply("Here."))
    assert complete(Request(dialect.model, "", (UserMessage("Hi."),), timeout=10)).text == "Here."
