"""The concierge's dialogues: the model's answers are scripted, what code decides is not."""

from uuid import uuid4

import pytest
from django.test import Client

from agentapp import actions, loop
from agentapp.demo import guided_scenarios as dialogues
from agentapp.demo import opening
from agentapp.models import Agent, Conversation, Guideline, GuidelineMatch, Run, ToolEvaluation
from agentapp.script import check_script
from approvals.models import Rule
from tests import opened

EVERY = pytest.mark.parametrize("dialogue", dialogues.DIALOGUES, ids=lambda dialogue: dialogue.name)


@pytest.fixture
def people(transactional_db):
    people = opened.open_shop()
    Rule.objects.update(hold_seconds=0)
    return people


def play(dialogue, people) -> list[Run]:
    """Let the customer say everything, each turn once the one before was answered or waits."""
    conversation, found = uuid4().hex, []
    for turn in dialogue.turns:
        new = actions.NewRun("concierge", turn.says, "", dialogue.customer, conversation, script=turn.script)
        run = actions.start_run(new, people["sam"])
        loop.drive(run.pk)
        found.append(Run.objects.get(pk=run.pk))
    return found


def called(run: Run) -> list[tuple[str, str]]:
    return [(each.name, each.result_status) for each in run.executions.order_by("step__number", "index")]


def matched(run: Run) -> set[str]:
    return set(GuidelineMatch.objects.filter(run=run, matched=True).values_list("guideline", flat=True))


@EVERY
def test_every_script_is_one_of_a_guided_agent(dialogue):
    for turn in dialogue.turns:
        check_script(turn.script, is_guided=True)


def test_the_concierge_has_ten_guidelines_and_no_tool_without_one(people):
    concierge = Agent.objects.get(name="concierge")
    assert Guideline.objects.filter(agent=concierge).count() == 10
    gated = set(concierge.guidelines.values_list("tools__name", flat=True)) - {None}
    assert gated == set(concierge.tools.values_list("name", flat=True))


def test_a_missing_order_number_is_asked_for_and_nothing_is_called(people):
    asking, told = play(dialogues.MISSING_NUMBER, people)
    assert called(asking) == []
    [evaluation] = ToolEvaluation.objects.filter(run=asking)
    assert evaluation.state == "cannot_run"
    [insight] = evaluation.insights.all()
    assert (insight.kind, insight.display_name, insight.choices) == ("missing", "order number", ["58244", "58102"])
    assert called(told) == [("follow_order", "ok")]
    assert [run.state for run in (asking, told)] == ["succeeded", "succeeded"]


def test_the_order_of_another_customer_is_no_choice_whatever_a_model_says(people):
    [run] = play(dialogues.SOMEBODY_ELSES_ORDER, people)
    assert called(run) == []
    insight = ToolEvaluation.objects.get(run=run).insights.get()
    assert (insight.kind, insight.invalid_value, insight.choices) == ("invalid", "58213", ["58177"])


def test_what_a_result_says_calls_up_the_next_guideline_in_the_same_answer(people):
    [run] = play(dialogues.CREDIT_CASCADE, people)
    assert called(run) == [("get_store_credit", "ok"), ("recommend_products", "ok")]
    first = ToolEvaluation.objects.get(run=run, tool="get_store_credit")
    assert (first.mode, first.usage) == ("auto_approved", {})
    assert "credit-to-spend" not in set(
        GuidelineMatch.objects.filter(run=run, step__number=1, matched=True).values_list("guideline", flat=True)
    )
    assert "$25.00" in run.answer


def test_a_return_rests_on_the_guidelines_that_asked_for_it(people):
    [run] = play(dialogues.TAKE_BACK, people)
    assert (run.state, run.waiting_for) == ("waiting", "approval")
    assert {"came-damaged", "quote-the-policy", "wants-to-send-back"} <= matched(run)
    assert GuidelineMatch.objects.get(run=run, guideline="quote-the-policy").origin == "entailed"
    waiting = run.executions.get(name="open_return")
    assert waiting.evaluation.guidelines == ["wants-to-send-back"]


def test_the_demo_opens_with_a_customer_who_is_asked_and_one_who_wants_a_person(people):
    path = opening.start_opening_chats(people["sam"])
    for run in Run.objects.all():
        loop.drive(run.pk)
    wanted = Conversation.objects.get(customer="Tomas Lindqvist")
    assert (wanted.mode, wanted.person_wanted) == ("manual", "agent")
    page = Client().get(path)
    assert page.status_code == 200
    assert "The shop will take back order" in page.content.decode()


def test_whoever_wants_a_person_is_not_sold_a_return_first(people):
    [run] = play(dialogues.TAKE_OVER, people)
    assert called(run) == [("call_a_person", "ok")]
    assert {"is-upset", "wants-a-person"} <= matched(run)
