"""Review: undoing decisions, questions, provenance, what the model is told."""

import json

import pytest
from django.contrib.auth.models import User

from agentapp import actions, answering
from agentapp.answers import answer
from agentapp.llm import ModelError
from agentapp.models import Run, Tool, ToolExecution
from agentapp.transcript import load_steps
from approvals.models import Approval, Question, Rule
from tests import clerk_tools
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, make_user, says

pytestmark = pytest.mark.django_db(transaction=True)


def pays():
    return calls(call("p", "pay", account="ana", amount=5))


def test_a_second_question_names_the_call_that_waits(clerk, dana, monkeypatch):
    reply = calls(call("p", "pay", account="ana", amount=20)) | {
        "answer": {
            "text": "Right: 5.",
            "tool_calls": [{"id": "i", "name": "pay", "arguments": {"account": "ana", "amount": 5}}],
        }
    }
    run = clerk.run(reply, says("done"))
    (first,) = clerk.open(run)
    actions.ask_agent(first.pk, "Why twenty?", dana)
    clerk.drive(run)
    (second,) = clerk.open(run)
    assert json.loads(second.arguments_text)["amount"] == 5
    seen = []

    def listening(driver, runtime, request):
        seen.append(request.messages[-1].text)
        raise ModelError("enough")

    monkeypatch.setattr(answering, "in_words", listening)
    actions.ask_agent(second.pk, "And is that all?", dana)
    clerk.drive(run)
    assert '"amount": 20' not in seen[0] and '"amount":20' not in seen[0], seen[0]


def test_a_question_about_an_edited_call_names_the_call_that_waits(clerk, dana, marco, monkeypatch):
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2)
    run = clerk.run(pays(), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 900, "memo": ""}')
    seen = []

    def listening(driver, runtime, request):
        seen.append(request.messages[-1].text)
        raise ModelError("enough")

    monkeypatch.setattr(answering, "in_words", listening)
    actions.ask_agent(approval.pk, "Is that right?", marco)
    clerk.drive(run)
    assert "900" in seen[0], seen[0]


def test_the_model_is_not_told_a_secret_that_a_person_put_in(clerk, dana, marco):
    Tool.objects.filter(name="pay").update(secret_fields=["memo"])
    run = clerk.run(pays(), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 5, "memo": "hunter2hunter2"}')
    approval.refresh_from_db()
    if approval.state == "pending":
        clerk.decide(approval, marco)
    clerk.drive(run)
    [told] = [each for rows in load_steps(run) for each in rows.executions if each.call_id == "p"]
    assert effects_of("pay")
    assert "hunter2hunter2" not in answer(told).text


def test_an_expired_request_is_asked_again_while_the_agent_answers(clerk, dana, monkeypatch):
    """The agent answers with another proposal; meanwhile the request expired and somebody asked again."""
    from approvals import decisions, ledger
    from agentapp import runs
    from django.utils import timezone

    reply = calls(call("p", "pay", account="ana", amount=20)) | {
        "answer": {
            "text": "Right: 5.",
            "tool_calls": [{"id": "i", "name": "pay", "arguments": {"account": "ana", "amount": 5}}],
        }
    }
    run = clerk.run(reply, says("done"))
    (first,) = clerk.open(run)
    actions.ask_agent(first.pk, "Why twenty?", dana)
    real = answering.in_words

    def slow(driver, runtime, request):
        reply = real(driver, runtime, request)
        from django.db.models.functions import Now

        Approval.objects.filter(pk=first.pk).update(expires_at=timezone.now())
        with ledger.transaction():
            runs.lock(run.pk)
            assert decisions.expire(first.pk)
        actions.ask_again(first.pk, dana)
        return reply

    monkeypatch.setattr(answering, "in_words", slow)
    run = clerk.drive(run)
    assert run.state == "waiting"
    assert [a.state for a in clerk.open(run)] == ["pending"]
