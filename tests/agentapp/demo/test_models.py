"""The damaged kettle, from start to refund, decided by models of three providers over their real wires."""

import json
import os
from typing import Any

import pytest

from agentapp.demo.scenarios import DAMAGED_KETTLE
from tests.agentapp.test_embedded import manage
from tests.wire import DIALECTS, KEY, Answer, ProviderServer, Question, provider

__all__ = ["provider"]
pytestmark = pytest.mark.apart

ROUNDS = [
    (reply["text"], [(call["id"], call["name"], call["arguments"]) for call in reply["tool_calls"]])
    for reply in DAMAGED_KETTLE.script
]
CALLS = [(name, arguments) for _, calls in ROUNDS for _, name, arguments in calls]


def calling(dialect: Any) -> Any:
    """A model that calls functions: it goes on where the results it is sent leave off."""

    def answer(question: Question) -> Answer:
        answered = len(dialect.read(question).results)
        for text, calls in ROUNDS:
            if answered == 0 or not calls:
                return Answer(dialect.reply(text, calls))
            answered -= len(calls)
        raise AssertionError("more results than calls")

    return answer


def chatting(dialect: Any) -> Any:
    """A model that only chats: a request that offers it functions is an error, and it writes what it wants as text."""

    def answer(question: Question) -> Answer:
        if question.body.get("tools"):
            return Answer(dialect.error("this model knows no tools", "invalid_request_error"), status=400)
        observed = sum(text.startswith("Observation:") for text in dialect.read(question).users)
        if observed < len(CALLS):
            name, arguments = CALLS[observed]
            decision = {"thought": f"Next is {name}.", "type": "call_tool", "tool": name, "args": arguments}
        else:
            decision = {"thought": "That is all.", "type": "final_answer", "answer": ROUNDS[-1][0]}
        return Answer(dialect.reply(f"Here is what I decided:\n```json\n{json.dumps(decision)}\n```"))

    return answer


def play(tmp_path: Any, server: ProviderServer, dialect: Any, driver: str) -> str:
    address = {dialect.url_variable: server.url + dialect.url_path, dialect.key_variable: KEY}
    played = manage(tmp_path, "demo", "--check", "--model", dialect.model, "--driver", driver, **address)
    assert played.returncode == 0, played.stderr
    return played.stdout


@pytest.mark.parametrize("name", DIALECTS)
def test_a_model_that_calls_functions_gets_the_refund_approved_and_made(provider, tmp_path, name):
    provider.answer_with = calling(DIALECTS[name])
    said = play(tmp_path, provider, DIALECTS[name], "tool_calling")
    assert "refunded once, succeeded after 5 steps" in said
    assert f"asking {DIALECTS[name].model}" in said
    assert len(provider.questions) == 5


@pytest.mark.parametrize("name", DIALECTS)
def test_a_model_that_only_chats_gets_the_refund_approved_and_made(provider, tmp_path, name):
    provider.answer_with = chatting(DIALECTS[name])
    said = play(tmp_path, provider, DIALECTS[name], "react")
    assert f"refunded once, succeeded after {len(CALLS) + 1} steps" in said


@pytest.mark.redis
def test_the_same_through_real_workers_on_the_real_stack(provider, tmp_path):
    provider.answer_with = chatting(DIALECTS["openai"])
    dialect = DIALECTS["openai"]
    variables = {name: os.environ.get(name, "") for name in ("DATABASE_URL", "REDIS_URL")}
    if not all(variables.values()):
        pytest.skip("DATABASE_URL and REDIS_URL are not set")
    address = {dialect.url_variable: provider.url + dialect.url_path, dialect.key_variable: KEY}
    said = manage(tmp_path, "demo", "--check", "--model", dialect.model, "--driver", "react", **address, **variables)
    assert said.returncode == 0, said.stderr
    assert "on postgresql and Redis" in said.stdout
