"""A person asks before deciding; the agent answers in words, and the call waits as before."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.utils import timezone

from agentapp import actions, answering, loop, sweep
from agentapp.compilers import compile_messages, load_earlier
from agentapp.history import check
from agentapp.llm import ModelError
from agentapp.models import Agent, KillSwitch, Run, Tool, ToolExecution
from agentapp.transcript import load_steps
from approvals import decisions, ledger
from approvals.models import Approval, Question, Rule
from tests import clerk_tools
from tests.conftest import call, calls, says
from tests.wire import DIALECTS, Answer, provider

__all__ = ["provider"]
DIALECT = DIALECTS["openai"]
pytestmark = pytest.mark.django_db(transaction=True)
State = Approval.State


def asks_for(answer=None, *more):
    """A reply that proposes a payment, and the model's answer when it is asked about it."""
    reply = calls(call("p", "pay", account="ana", amount=5), *more)
    return reply | ({"answer": answer} if answer else {})


BECAUSE = {"text": "The invoice says 5.", "usage": {"input_tokens": 100, "output_tokens": 7, "cost": 0.25}}


def test_the_agent_answers_in_words_and_the_call_goes_on_waiting(clerk, dana):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    actions.ask_agent(approval.pk, "Why five?", dana)
    approval.refresh_from_db()
    assert approval.state == State.ASKED

    clerk.drive(run)

    question = Question.objects.get()
    approval.refresh_from_db()
    assert (question.answer, question.answerer, question.closed_at is not None) == ("The invoice says 5.", None, True)
    assert (approval.state, approval.version) == (State.PENDING, 1)
    assert (run.state, run.waiting_for, run.step_count) == ("waiting", "approval", 1)
    assert clerk_tools.effects_of("pay") == []
    asked = ledger.Event.objects.filter(run_id=run.pk, type__startswith="approval.a").order_by("seq")
    assert [event.type for event in asked] == ["approval.asked", "approval.answered"]
    assert asked[1].actor == "model"


def test_the_answer_names_no_secret_argument(clerk, dana):
    Tool.objects.filter(name="pay").update(secret_fields=["account"])
    run = clerk.run(calls(call("p", "pay", account="canary", amount=5)) | {"answer": {"text": "Into canary."}})
    actions.ask_agent(clerk.open(run)[0].pk, "Where to?", dana)
    clerk.drive(run)
    assert Question.objects.get().answer == "Into ••••••."


def test_what_the_answer_took_counts_into_the_run(clerk, dana):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    before = run.input_tokens, run.output_tokens, run.cost
    actions.ask_agent(clerk.open(run)[0].pk, "Why?", dana)
    clerk.drive(run)
    assert (run.input_tokens, run.output_tokens, run.cost) == (before[0] + 100, before[1] + 7, Decimal("0.25"))


def test_what_the_model_is_sent_when_asked_is_a_history_any_provider_takes(clerk, dana, monkeypatch):
    seen = []

    def listening(driver, runtime, request):
        seen.append(request)
        check(request.messages)
        raise ModelError("enough")

    monkeypatch.setattr(answering, "in_words", listening)
    run = clerk.run(asks_for(None, call("l", "look_up", what="x")), says("done"))
    actions.ask_agent(clerk.open(run)[0].pk, "Why?", dana)
    clerk.drive(run)
    [request] = seen
    assert [message.text for message in request.messages[2:4]] == [
        "Not executed yet: it waits for a person's decision.",
        "Not done yet.",
    ]
    assert "pay" in request.messages[-1].text
    assert "Why?" in request.messages[-1].text
    assert request.tool_choice == "auto"


@pytest.fixture
def heard(monkeypatch):
    """What the model is asked; it gives no answer."""
    seen = []

    def listening(driver, runtime, request):
        seen.append(request.messages[-1].text)
        raise ModelError("enough")

    monkeypatch.setattr(answering, "in_words", listening)
    return seen


def test_a_question_about_a_call_that_a_person_has_changed_names_what_waits(clerk, dana, marco, heard):
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2)
    Tool.objects.filter(name="pay").update(secret_fields=["memo"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    [approval] = clerk.open(run)
    arguments = '{"account": "ana", "amount": 900, "memo": "hunter2hunter2"}'
    clerk.decide(approval, dana, "edit", arguments_text=arguments)
    actions.ask_agent(approval.pk, "Is that right?", marco)
    clerk.drive(run)
    assert '"amount":900' in heard[0]
    assert "hunter2" not in heard[0]


def test_question_and_answer_of_people_are_kept_without_secret_arguments(clerk, sam, dana):
    Tool.objects.filter(name="pay").update(secret_fields=["account"])
    run = clerk.run(calls(call("p", "pay", account="DE89370400440532013000", amount=5)), says("done"))
    [approval] = clerk.open(run)
    question = actions.ask_agent(approval.pk, "Is DE89370400440532013000 hers?", dana)
    assert question.text == "Is •••••• hers?"
    answered = actions.answer_question(question.pk, "DE89370400440532013000 is hers.", sam)
    assert answered.answer == "•••••• is hers."


def test_nothing_of_the_question_is_in_the_later_history(clerk, dana):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    actions.ask_agent(approval.pk, "Why five?", dana)
    clerk.drive(run)
    clerk.decide(approval, dana)
    clerk.drive(run)
    assert run.state == "succeeded"
    messages = compile_messages(run, load_earlier(run), load_steps(run))
    assert not any("five" in message.text or "invoice" in message.text for message in messages)


def test_deciding_stays_possible_while_asked_and_a_late_answer_is_kept(clerk, dana, marco):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    question = actions.ask_agent(approval.pk, "Why?", dana)
    clerk.decide(approval, marco)
    question.refresh_from_db()
    assert question.closed_at is not None
    with ledger.transaction():
        assert decisions.answer(question.pk, "Late, but here.")
    approval.refresh_from_db()
    question.refresh_from_db()
    assert (approval.state, question.answer) == (State.APPROVED, "Late, but here.")
    assert clerk.drive(run).state == "succeeded"
    assert len(clerk_tools.effects_of("pay")) == 1


def test_a_question_while_the_worker_is_at_an_earlier_call_is_answered_before_the_run_parks(clerk, dana):
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5), call("q", "pay", account="bo", amount=6))
                    | {"answer": BECAUSE}, says("done"))  # fmt: skip
    first, second = clerk.open(run)
    clerk.decide(first, dana)
    actions.ask_agent(second.pk, "And this?", dana)
    clerk.drive(run)
    assert Question.objects.get().answer == "The invoice says 5."
    assert len(clerk_tools.effects_of("pay")) == 1
    assert run.state == "waiting"


def test_of_two_questions_the_second_is_put_to_no_model_once_everything_is_stopped(clerk, dana, mia, provider):
    Agent.objects.update(model=DIALECT.model, driver="tool_calling")
    proposed = [("p", "pay", {"account": "ana", "amount": 5}), ("q", "pay", {"account": "bo", "amount": 6})]
    provider.answer(Answer(DIALECT.reply(calls=proposed)))
    run = clerk.drive(actions.start_run(actions.NewRun(agent="clerk", input="Pay."), clerk.starter))
    for approval in clerk.open(run):
        actions.ask_agent(approval.pk, "Why?", dana)

    def answer(_):
        actions.engage_switch("all", "", "Something is wrong.", mia)
        connection.close()
        return Answer(DIALECT.reply("The invoice says so."))

    provider.answer_with = answer
    clerk.drive(run)
    assert (len(provider.questions), run.waiting_for) == (2, "switch")
    assert sorted(question.answer for question in Question.objects.all()) == ["", "The invoice says so."]
    provider.answer_with = lambda _: Answer(DIALECT.reply("The order does."))
    actions.release_switch(KillSwitch.objects.get().pk, mia, "")
    assert clerk.drive(run).waiting_for == "approval"
    assert not Question.objects.filter(closed_at=None).exists()


def test_it_cannot_propose_another_call_in_place_of_one_that_may_have_happened(clerk, dana):
    other = {"text": "Six then.", "tool_calls": [call("n", "pay", account="ana", amount=6)]}
    run = clerk.run(asks_for(other), says("done"))
    ToolExecution.objects.update(attempts=1)
    actions.ask_agent(clerk.open(run)[0].pk, "Should it not be six?", dana)
    clerk.drive(run)
    question = Question.objects.get()
    assert (question.proposed_text, answering.BEGUN_BEFORE in question.answer) == ("", True)
    assert [approval.arguments["amount"] for approval in clerk.open(run)] == [5]


@pytest.mark.parametrize("answer", [None, {"error": "The model is gone."}, {"text": "  "}])
def test_an_agent_that_cannot_answer_ends_nothing_and_the_clock_goes_on(clerk, dana, answer):
    run = clerk.run(asks_for(answer), says("done"))
    [approval] = clerk.open(run)
    before = approval.expires_at
    actions.ask_agent(approval.pk, "Why?", dana)
    clerk.drive(run)
    approval.refresh_from_db()
    assert (run.state, approval.state, Question.objects.get().answer) == ("waiting", State.PENDING, "")
    assert approval.expires_at - before < timedelta(seconds=30)
    assert ledger.Event.objects.filter(type="approval.unanswered").exists()
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"


def test_a_model_that_may_answer_later_is_asked_again_from_the_queue(clerk, dana, monkeypatch):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    actions.ask_agent(clerk.open(run)[0].pk, "Why?", dana)
    real, tries = answering.in_words, []

    def busy(*request):
        tries.append(1)
        if len(tries) == 1:
            raise ModelError("busy", retryable=True)
        return real(*request)

    monkeypatch.setattr(answering, "in_words", busy)
    again = loop.drive(run.pk)
    run.refresh_from_db()
    assert (again.delay, run.state, run.model_failures) == (answering.TRY_AGAIN_SECONDS, "queued", 0)
    Run.objects.filter(pk=run.pk).update(wake_at=timezone.now() - timedelta(seconds=1))
    clerk.drive(run)
    assert Question.objects.get().answer == "The invoice says 5."


def test_when_time_is_up_the_clock_goes_on_where_it_stood(clerk, dana, settings):
    settings.QUESTION_SECONDS = 600
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    before = approval.expires_at
    question = actions.ask_agent(approval.pk, "Why?", dana)
    approval.refresh_from_db()
    assert approval.expires_at - before == timedelta(seconds=600)
    past = timezone.now() - timedelta(seconds=30)
    Question.objects.filter(pk=question.pk).update(asked_at=past - timedelta(seconds=600), answer_by=past)
    sweep.sweep()
    approval.refresh_from_db()
    question.refresh_from_db()
    assert (approval.state, approval.paused_seconds, approval.expires_at - before) == (
        State.PENDING, 600, timedelta(seconds=600),
    )  # fmt: skip
    assert (question.answer, question.closed_at is not None) == ("", True)


def test_the_clock_stands_once(clerk, dana, marco):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    actions.ask_agent(approval.pk, "Why?", dana)
    clerk.drive(run)
    approval.refresh_from_db()
    before = approval.expires_at
    actions.ask_agent(approval.pk, "And why now?", marco)
    approval.refresh_from_db()
    assert (approval.state, approval.expires_at) == (State.ASKED, before)
    clerk.drive(run)
    approval.refresh_from_db()
    assert (approval.state, approval.expires_at) == (State.PENDING, before)


def test_one_question_is_open_at_a_time(clerk, dana, marco):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    actions.ask_agent(approval.pk, "Why?", dana)
    with pytest.raises(actions.Refused, match="already open"):
        actions.ask_agent(approval.pk, "Why?", marco)


def test_who_may_not_decide_may_not_ask(clerk, mia):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    with pytest.raises(actions.Refused) as refused:
        actions.ask_agent(clerk.open(run)[0].pk, "Why?", mia)
    assert refused.value.code == "forbidden"


def test_the_starter_may_answer_in_the_agents_place_and_nobody_else(clerk, dana, marco):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    question = actions.ask_agent(approval.pk, "Why?", dana)
    with pytest.raises(actions.Refused):
        actions.answer_question(question.pk, "Because.", marco)
    answered = actions.answer_question(question.pk, "Because I say so.", clerk.starter)
    assert (answered.answer, answered.answerer) == ("Because I say so.", clerk.starter)
    clerk.drive(run)
    question.refresh_from_db()
    assert question.answer == "Because I say so."


def test_a_cancelled_run_closes_its_questions(clerk, dana):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    actions.ask_agent(clerk.open(run)[0].pk, "Why?", dana)
    actions.cancel_run(run.pk, clerk.starter)
    assert Question.objects.get().closed_at is not None
    assert Approval.objects.get().state == State.WITHDRAWN


def test_a_paused_run_answers_when_it_goes_on(clerk, dana):
    run = clerk.run(asks_for(BECAUSE), says("done"))
    [approval] = clerk.open(run)
    actions.pause_run(run.pk, clerk.starter)
    actions.ask_agent(approval.pk, "Why?", dana)
    clerk.drive(run)
    assert Question.objects.get().answer == ""
    actions.resume_run(run.pk, clerk.starter)
    clerk.drive(run)
    assert Question.objects.get().answer == "The invoice says 5."
