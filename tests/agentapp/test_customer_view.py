"""What a customer is told: what an agent still needs to know, and that no answer comes."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import actions, conversations, customer_view, drafts, runs
from agentapp.models import Conversation, Route, Run, Tool
from approvals import ledger
from tests.conftest import Clerk, says
from tests.guided import Guide

ASKING = {
    "matched": ["finding"],
    "evaluations": {"look_up": {"state": "needs_to_run", "calls": [{}]}},
    "says": "What shall I look up?",
}


@pytest.fixture
def guide(clerk: Clerk) -> Guide:
    guide = Guide(clerk)
    guide.guideline("finding", "", "look_up")
    declare(display_name="what it is", examples=["kettle"])
    return guide


def declare(**said: object) -> None:
    Tool.objects.filter(name="look_up").update(parameters={"what": said})


def ask(guide: Guide, **entry: object) -> Run:
    return guide.run({**ASKING, **entry}, customer="Ana", conversation="chat")


def needed() -> list[customer_view.Needed]:
    return list(customer_view.of(Conversation.objects.get(key="chat")).needed)


def test_what_an_answer_asked_for_is_named_as_customers_know_it(guide: Guide) -> None:
    ask(guide)
    [one] = needed()
    assert (one.name, list(one.examples), list(one.choices)) == ("what it is", ["kettle"], [])


def test_what_can_be_chosen_is_offered(guide: Guide) -> None:
    schema = Tool.objects.get(name="look_up").input_schema
    schema["properties"]["what"]["enum"] = ["kettle", "cup"]
    Tool.objects.filter(name="look_up").update(input_schema=schema)
    ask(guide)
    assert list(needed()[0].choices) == ["kettle", "cup"]


def test_too_much_to_choose_from_is_not_offered(guide: Guide) -> None:
    schema = Tool.objects.get(name="look_up").input_schema
    schema["properties"]["what"]["enum"] = [f"kettle {number}" for number in range(customer_view.MAX_CHOICES + 1)]
    Tool.objects.filter(name="look_up").update(input_schema=schema)
    ask(guide)
    assert list(needed()[0].choices) == []


def test_what_is_hidden_is_not_named(guide: Guide) -> None:
    declare(hidden=True)
    ask(guide)
    assert needed() == []


def test_once_it_was_answered_nothing_is_needed(guide: Guide) -> None:
    ask(guide)
    ask(guide, evaluations={}, says="Here it is.")
    assert needed() == []


def test_where_a_person_has_written_since_nothing_is_needed(guide: Guide, clerk: Clerk) -> None:
    run = ask(guide)
    conversation = Conversation.objects.get(key="chat")
    with ledger.transaction():
        conversations.add(conversation, run, "assistant", "I look it up for you.", author=User.objects.first())
    assert needed() == []


def test_an_agent_without_guidelines_needs_nothing(clerk: Clerk) -> None:
    clerk.run({"text": "Hello."}, customer="Ana", conversation="chat")
    assert needed() == []


def test_whoever_gets_no_answer_is_told_until_one_comes(clerk: Clerk) -> None:
    def told() -> tuple[str, str]:
        view = customer_view.of(Conversation.objects.get(key="chat"))
        return view.status, view.words

    assert clerk.run(says("Yes?"), conversation="chat", customer="Ana").state == "succeeded"
    assert told() == ("idle", "")
    assert clerk.run(says(""), conversation="chat", customer="Ana").state == "failed"
    assert told() == ("failed", "Sorry, something went wrong, and no answer came. Please write again.")
    clerk.run(says("Here."), conversation="chat", customer="Ana")
    assert told() == ("idle", "")


def test_where_a_person_has_answered_nothing_is_said_of_the_run_that_failed(clerk: Clerk) -> None:
    run = clerk.run(says(""), conversation="chat", customer="Ana")
    conversation = Conversation.objects.get(key="chat")
    with ledger.transaction():
        conversations.add(conversation, run, "assistant", "I look it up for you.", author=User.objects.first())
    assert customer_view.of(conversation).status == "idle"


def drafted(clerk: Clerk, **more: Any) -> str:
    """What the customer sees while the agent is writing."""
    new = actions.NewRun(clerk.agent.name, "Hello", customer="Ana", conversation="chat", **more)
    run = runs.claim(actions.start_run(new, clerk.starter).pk)
    assert run is not None
    assert run.lease_token is not None
    assert drafts.write(run, run.lease_token, 1, "It is on its way. ")
    return customer_view.of(Conversation.objects.get(key="chat")).draft


def test_an_answer_is_seen_while_it_is_written_where_nothing_can_be_called(clerk: Clerk) -> None:
    clerk.agent.tools.clear()
    assert drafted(clerk) == "It is on its way. "


def test_so_it_is_on_a_route_without_tools(clerk: Clerk) -> None:
    Route.objects.create(agent=clerk.agent, name="talking")
    assert drafted(clerk, route="talking") == "It is on its way. "


def test_so_it_is_where_guidelines_decide_what_is_called(guide: Guide, clerk: Clerk) -> None:
    assert drafted(clerk) == "It is on its way. "


def test_what_may_be_said_beside_a_call_is_not_seen(clerk: Clerk) -> None:
    assert drafted(clerk) == ""


def test_what_may_be_said_beside_asking_another_agent_is_not_seen(clerk: Clerk) -> None:
    clerk.agent.tools.clear()
    clerk.agent.subagents = ["*"]
    clerk.agent.save()
    assert drafted(clerk) == ""
