"""A person asks before deciding; the agent answers by proposing the call with other arguments."""

import json
from typing import Any

import pytest

from agentapp import actions, answering, runs
from agentapp.answers import answer
from agentapp.drivers.base import StepRequest
from agentapp.drivers.in_words import in_words
from agentapp.llm import ModelError
from agentapp.messages import Reply, ToolCall
from agentapp.models import Tool
from agentapp.transcript import load_steps
from approvals import decisions, ledger
from approvals.models import Approval, Question, Rule
from tests import clerk_tools
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.two_views import disagreements

pytestmark = pytest.mark.django_db(transaction=True)


def proposes(*arguments: Any, text: str = "You are right: the invoice says 5.", name: str = "pay") -> dict[str, Any]:
    """A reply that proposes to pay 20, and what the model says and proposes instead when it is asked about it."""
    instead = [{"id": "i", "name": name, "arguments": given} for given in arguments]
    return calls(call("p", "pay", account="ana", amount=20)) | {"answer": {"text": text, "tool_calls": instead}}


FIVE = {"account": "ana", "amount": 5}


def ask(clerk, run, dana) -> Approval:
    (approval,) = clerk.open(run)
    actions.ask_agent(approval.pk, "Why twenty?", dana)
    clerk.drive(run)
    approval.refresh_from_db()
    return approval


def amount_of(approval: Approval) -> Any:
    return json.loads(approval.arguments_text)["amount"]


def test_a_second_question_names_the_call_that_waits_by_then(clerk, dana, monkeypatch):
    run = clerk.run(proposes(FIVE), says("done"))
    ask(clerk, run, dana)
    (second,) = clerk.open(run)
    seen = []

    def listening(driver, runtime, request):
        seen.append(request.messages[-1].text)
        raise ModelError("enough")

    monkeypatch.setattr(answering, "in_words", listening)
    actions.ask_agent(second.pk, "And is that all?", dana)
    clerk.drive(run)
    assert '"amount":5' in seen[0]
    assert '"amount":20' not in seen[0].replace(" ", "")


def test_it_comes_too_late_where_the_request_expired_meanwhile_and_is_asked_again(clerk, dana, monkeypatch):
    run = clerk.run(proposes(FIVE), says("done"))
    (first,) = clerk.open(run)
    actions.ask_agent(first.pk, "Why twenty?", dana)

    def slow(driver, runtime, request):
        reply = in_words(driver, runtime, request)
        Approval.objects.filter(pk=first.pk).update(expires_at=first.created_at)
        with ledger.transaction():
            runs.lock(run.pk)
            assert decisions.expire(first.pk)
        actions.ask_again(first.pk, dana)
        return reply

    monkeypatch.setattr(answering, "in_words", slow)
    assert clerk.drive(run).state == "waiting"
    assert [(each.state, amount_of(each)) for each in clerk.open(run)] == [("pending", 20)]


def test_behind_a_call_whose_outcome_is_unknown_it_is_asked_about_all_the_same(clerk, dana):
    instead = {"text": "Rather y.", "tool_calls": [call("c", "label", text="y")]}
    two = calls(call("a", "send", to="ann", how="lost"), call("b", "label", text="x"))
    run = clerk.run(two | {"answer": instead}, says("ok"))
    first, second = clerk.open(run)
    clerk.decide(first, dana)
    assert clerk.drive(run).waiting_for == "outcome"
    actions.ask_agent(second.pk, "Why x?", dana)
    assert clerk.drive(run).waiting_for == "outcome"
    assert [each.arguments["text"] for each in clerk.open(run)] == ["y"]


class TestAnotherProposal:
    @pytest.fixture
    def requests(self, clerk, dana):
        run = clerk.run(proposes(FIVE), says("done"))
        first = ask(clerk, run, dana)
        (second,) = clerk.open(run)
        return first, second

    def test_it_replaces_the_request_and_the_first_stays_as_it_was(self, clerk, requests):
        first, second = requests
        assert (first.state, amount_of(first)) == ("superseded", 20)
        assert (second.state, amount_of(second), second.supersedes_id) == ("pending", 5, first.pk)
        assert second.action_digest != first.action_digest
        assert disagreements(second.execution) == []

    def test_the_new_one_shows_what_is_other(self, requests):
        assert requests[1].difference == [{"name": "amount", "was": 20, "now": 5, "of": "arguments"}]

    def test_question_and_answer_stand_on_the_new_page(self, client, requests, dana):
        client.force_login(dana)
        page = client.get(f"/approvals/{requests[1].pk}/").content.decode()
        assert "Why twenty?" in page
        assert "You are right: the invoice says 5." in page
        assert "After a question, the agent proposes it with other arguments." in page
        old = client.get(f"/approvals/{requests[0].pk}/").content.decode()
        assert "After a question, the agent proposed other arguments." in old

    def test_what_is_approved_then_is_what_runs_and_the_model_is_told(self, clerk, requests, marco):
        run = requests[1].execution.run
        clerk.decide(requests[1], marco)
        assert clerk.drive(run).state == "succeeded"
        assert effects_of("pay") == [{"account": "ana", "amount": 5.0}]
        [told] = [each for rows in load_steps(run) for each in rows.executions if each.call_id == "p"]
        assert "You changed the call when a person asked about it: amount from 20 to 5." in answer(told).text
        assert disagreements(clerk.execution(run, "p")) == []

    def test_the_first_cannot_be_approved_any_more(self, clerk, requests, dana):
        with pytest.raises(actions.Refused) as refused:
            clerk.decide(requests[0], dana)
        assert refused.value.code == "superseded"

    def test_rejected_it_is_not_proposed_again(self, clerk, dana):
        run = clerk.run(proposes(FIVE), calls(call("q", "pay", **FIVE)), says("done"))
        ask(clerk, run, dana)
        clerk.decide(clerk.open(run)[0], dana, "reject", message="Not five either.")
        clerk.drive(run)
        assert clerk.execution(run, "q").reason == "previously_rejected"

    def test_the_clock_stands_once_for_a_call(self, clerk, requests, dana):
        second = requests[1]
        before = second.expires_at
        question = actions.ask_agent(second.pk, "And now?", dana)
        second.refresh_from_db()
        assert second.expires_at == before
        assert question.answer_by <= before

    def test_an_edit_of_the_new_one_is_asked_again_when_the_world_changes(self, clerk, requests, dana, marco):
        clerk.decide(requests[1], dana, "edit", arguments_text='{"account": "ana", "amount": 3, "memo": ""}')
        clerk.decide(requests[1], marco)
        clerk_tools.BALANCES["ana"] = 1
        run = clerk.drive(requests[1].execution.run)
        assert amount_of(clerk.open(run)[0]) == 3


class TestWhatStaysAsItWas:
    def stays(self, clerk, dana, reply) -> Question:
        run = clerk.run(reply, says("done"))
        approval = ask(clerk, run, dana)
        assert (approval.state, amount_of(approval)) == ("pending", 20)
        question = Question.objects.get()
        assert (question.proposed_text, question.closed_at is not None) == ("", True)
        return question

    def test_words_alone(self, clerk, dana):
        assert self.stays(clerk, dana, proposes()).answer == "You are right: the invoice says 5."

    def test_the_same_arguments_again(self, clerk, dana):
        same = {"account": "ana", "amount": 20, "memo": ""}
        assert self.stays(clerk, dana, proposes(same)).answer == "You are right: the invoice says 5."

    def test_another_tool_is_not_heard(self, clerk, dana):
        self.stays(clerk, dana, proposes({"what": "x"}, name="look_up"))
        assert effects_of("look_up") == []

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [({"account": "ana"}, "amount"), ({"account": "ana", "amount": 5000}, "1000"), ("{", "malformed")],
    )
    def test_arguments_that_do_not_fit_and_the_asker_is_told_why(self, clerk, dana, arguments, why):
        said = self.stays(clerk, dana, proposes(arguments)).answer
        words, _, note = said.partition("\n\n")
        assert words == "You are right: the invoice says 5."
        assert note.startswith("(It tried to propose other arguments but could not:")
        assert why in said

    def test_what_a_rule_forbids(self, clerk, dana):
        Rule.objects.create(name="no-small", tool="pay", condition="args.amount < 10.0", verdict="deny")
        assert "A rule forbids this call" in self.stays(clerk, dana, proposes(FIVE)).answer

    def test_what_a_rule_allows_is_asked_about_all_the_same(self, clerk, dana):
        Rule.objects.create(name="big", tool="pay", condition="args.amount > 10.0", verdict="ask")
        Rule.objects.create(name="small", tool="pay", condition="args.amount < 10.0", verdict="allow")
        run = clerk.run(proposes(FIVE), says("done"))
        ask(clerk, run, dana)
        assert [amount_of(one) for one in clerk.open(run)] == [5]
        assert effects_of("pay") == []

    def test_one_that_somebody_decided_meanwhile(self, clerk, dana, marco, monkeypatch):
        run = clerk.run(proposes(FIVE), says("done"))
        (approval,) = clerk.open(run)
        asked = answering._ask

        def slowly(state, execution, question):
            reply = asked(state, execution, question)
            clerk.decide(approval, marco)
            return reply

        monkeypatch.setattr(answering, "_ask", slowly)
        actions.ask_agent(approval.pk, "Why twenty?", dana)
        assert clerk.drive(run).state == "succeeded"
        assert effects_of("pay") == [{"account": "ana", "amount": 20.0}]
        assert Question.objects.get().proposed_text == ""


def test_no_words_beside_another_proposal_say_so(clerk, dana):
    run = clerk.run(proposes(FIVE, text=""), says("done"))
    ask(clerk, run, dana)
    assert Question.objects.get().answer == "(It proposes other arguments and says nothing more.)"


def test_secret_arguments_are_masked_in_what_is_other(clerk, dana):
    Tool.objects.filter(name="pay").update(secret_fields=["account"])
    run = clerk.run(proposes({"account": "bertha", "amount": 5}), says("done"))
    ask(clerk, run, dana)
    (second,) = clerk.open(run)
    assert "bertha" not in json.dumps(second.difference)
    assert json.loads(second.arguments_text)["account"] == "bertha"


def test_the_second_of_two_calls_that_wait_can_be_proposed_anew(clerk, dana):
    reply = calls(call("a", "pay", account="bo", amount=1), call("p", "pay", account="ana", amount=20))
    instead = [{"id": "i", "name": "pay", "arguments": FIVE}]
    run = clerk.run(reply | {"answer": {"text": "Five.", "tool_calls": instead}}, says("done"))
    second = clerk.open(run)[1]
    actions.ask_agent(second.pk, "Why twenty?", dana)
    assert clerk.drive(run).waiting_for == "approval"
    assert [amount_of(one) for one in clerk.open(run)] == [1, 5]


def test_a_call_that_a_model_makes_where_it_may_not_is_not_heard():
    class Speaks:
        def in_words(self, state):
            return Reply("Five.", (ToolCall("i", "pay", "{}"),))

    for choice, heard in (("none", 0), ("auto", 1)):
        request = StepRequest("r", 1, {}, None, (), (), choice)
        assert len(in_words(Speaks(), None, request).tool_calls) == heard
