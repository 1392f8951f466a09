"""The damaged kettle, from start to refund, decided by models of three providers over real wires."""

import dataclasses
import json
import os
import uuid
from typing import Any

import pytest

from agentapp import actions, loop
from agentapp.demo import opening
from agentapp.demo.models import Refund
from agentapp.demo.scenarios import DAMAGED_KETTLE
from agentapp.models import Run
from approvals.models import Approval, Rule
from tests.agentapp.test_embedded import manage
from tests.wire import DIALECTS, KEY, Answer, ProviderServer, Question, provider

__all__ = ["provider"]

ROUNDS = [
    (reply["text"], [(call["id"], call["name"], call["arguments"]) for call in reply["tool_calls"]])
    for reply in DAMAGED_KETTLE.script
]
CALLS = [(name, arguments) for _, calls in ROUNDS for _, name, arguments in calls]


def calling(dialect: Any) -> Any:
    """A model that calls functions: it continues from the results it is sent."""

    def answer(question: Question) -> Answer:
        answered = len(dialect.read(question).results)
        for text, calls in ROUNDS:
            if answered == 0 or not calls:
                return Answer(dialect.reply(text, calls))
            answered -= len(calls)
        raise AssertionError("more results than calls")

    return answer


def chatting(dialect: Any) -> Any:
    """A model that only chats: offering it functions is an error, and it writes what it wants as text."""

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


def address(server: ProviderServer, dialect: Any) -> dict[str, str]:
    return {dialect.url_variable: server.url + dialect.url_path, dialect.key_variable: KEY}


def play(dialect: Any, driver: str) -> Run:
    """Start it, approve what is asked, and drive it to its end, here."""
    people = opening.open_shop(dialect.model, driver)
    # Time is irrelevant here: decisions take effect at once.
    Rule.objects.update(hold_seconds=0)
    run = opening.start(dataclasses.replace(DAMAGED_KETTLE, script=None), people["sam"])
    loop.drive(run.pk)
    asked = Approval.objects.get(run_id=run.pk, state="pending")
    assert not Refund.objects.exists()
    new = actions.NewDecision(uuid.uuid4(), "approve", asked.version, asked.action_digest)
    actions.decide(asked.pk, new, people["dana"])
    loop.drive(run.pk)
    run.refresh_from_db()
    assert (run.state, Refund.objects.count()) == ("succeeded", 1)
    return run


def play_as_people_do(tmp_path: Any, server: ProviderServer, dialect: Any, driver: str) -> str:
    """The same with the demo's command, through its API and its worker."""
    played = manage(
        tmp_path, "demo", "--check", "--model", dialect.model, "--driver", driver, **address(server, dialect)
    )
    assert played.returncode == 0, played.stderr
    return played.stdout


@pytest.fixture
def asked(provider: ProviderServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The dialect of a provider, reached at the address its variables give."""
    dialect = DIALECTS[request.param]
    for name, value in address(provider, dialect).items():
        monkeypatch.setenv(name, value)
    return dialect


EACH = pytest.mark.parametrize("asked", DIALECTS, indirect=True)


@EACH
@pytest.mark.django_db(transaction=True)
def test_a_model_that_calls_functions_gets_the_refund_approved_and_made(provider, asked):
    provider.answer_with = calling(asked)
    assert play(asked, "tool_calling").step_count == 5
    assert len(provider.questions) == 5


@EACH
@pytest.mark.django_db(transaction=True)
def test_a_model_that_only_chats_gets_the_refund_approved_and_made(provider, asked):
    provider.answer_with = chatting(asked)
    assert play(asked, "react").step_count == len(CALLS) + 1


@pytest.mark.apart
def test_the_demo_plays_with_a_model_that_calls_functions(provider, tmp_path):
    provider.answer_with = calling(DIALECTS["openai"])
    said = play_as_people_do(tmp_path, provider, DIALECTS["openai"], "tool_calling")
    assert "refunded once, succeeded after 5 steps" in said
    assert f"asking {DIALECTS['openai'].model}" in said


@pytest.mark.apart
def test_the_demo_plays_with_a_model_that_only_chats(provider, tmp_path):
    provider.answer_with = chatting(DIALECTS["anthropic"])
    said = play_as_people_do(tmp_path, provider, DIALECTS["anthropic"], "react")
    assert f"refunded once, succeeded after {len(CALLS) + 1} steps" in said


@pytest.mark.redis
def test_the_same_through_real_workers_on_the_real_stack(provider, tmp_path):
    provider.answer_with = chatting(DIALECTS["openai"])
    dialect = DIALECTS["openai"]
    variables = {name: os.environ.get(name, "") for name in ("DATABASE_URL", "REDIS_URL")}
    if not all(variables.values()):
        pytest.skip("DATABASE_URL and REDIS_URL are not set")
    told = {**address(provider, dialect), **variables}
    said = manage(tmp_path, "demo", "--check", "--model", dialect.model, "--driver", "react", **told)
    assert said.returncode == 0, said.stderr
    assert "on postgresql and Redis" in said.stdout
