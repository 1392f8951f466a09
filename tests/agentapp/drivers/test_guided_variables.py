"""What an agent with guidance always knows of its customer."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User

from agentapp import observe
from agentapp.messages import ChatMessage, UserMessage
from agentapp.models import Agent, ContextVariable, GuidelineMatch, Run, Tool
from approvals.models import Rule
from tests.conftest import Clerk
from tests.guided import Guide

SAYS = {"says": "You have one parcel under way."}


@pytest.fixture
def guide(clerk: Clerk) -> Guide:
    ContextVariable.objects.create(
        agent=clerk.agent,
        name="parcels",
        tool=Tool.objects.get(name="look_up"),
        arguments={"what": "parcels"},
        freshness_seconds=3600,
    )
    guide = Guide(clerk)
    guide.guideline("parcels-late", "Say sorry.")
    return guide


@pytest.fixture
def sent() -> Iterator[list[tuple[ChatMessage, ...]]]:
    """What models are sent."""
    seen: list[tuple[ChatMessage, ...]] = []
    end = observe.on_event("inference.started", lambda event: seen.append(event.data["request"].messages))
    yield seen
    end()


def steps(run: Run) -> list[list[str]]:
    return [[call.name for call in step.executions.all()] for step in run.steps.order_by("number")]


def test_a_variable_is_read_before_anything_is_looked_at_and_takes_nothing_of_a_script(guide: Guide) -> None:
    run = guide.run({"matched": ["parcels-late"], **SAYS}, customer="Ana")
    assert (run.state, run.answer) == ("succeeded", SAYS["says"])
    assert steps(run) == [["look_up"], []]
    assert run.executions.get().variable == "parcels"
    assert GuidelineMatch.objects.get(run=run).step.number == 2


def test_reading_is_no_iteration(guide: Guide) -> None:
    guide.set(max_iterations=1)
    guide.guideline("finding", "", "look_up")
    run = guide.run({"matched": ["finding"], "evaluations": {"look_up": [{"what": "kettle"}]}}, SAYS, customer="Ana")
    assert steps(run) == [["look_up"], ["look_up"], []]


def test_reading_is_none_of_the_rounds_that_the_agent_has(guide: Guide) -> None:
    Agent.objects.update(max_iterations=1)
    guide.guideline("finding", "", "look_up")
    run = guide.run({"matched": ["finding"], "evaluations": {"look_up": [{"what": "kettle"}]}}, SAYS, customer="Ana")
    assert steps(run) == [["look_up"], ["look_up"], []]
    assert run.answer == SAYS["says"]


def test_reading_the_same_anew_before_each_step_is_no_sign_of_getting_nowhere(guide: Guide, dana: User) -> None:
    ContextVariable.objects.update(freshness_seconds=0)
    for tool in ("label", "send"):
        guide.guideline(f"{tool}-it", "", tool)
    run = guide.run(
        {"matched": ["label-it"], "evaluations": {"label": [{"text": "late"}]}},
        {"matched": ["send-it"], "evaluations": {"send": [{"to": "Ana"}]}},
        SAYS,
        customer="Ana",
    )
    for _ in range(2):
        guide.clerk.decide(guide.clerk.open(run)[0], dana, "reject", message="No.")
        run = guide.clerk.drive(run)
    assert steps(run) == [["look_up"], ["label"], ["look_up"], ["send"], ["look_up"], []]
    assert (run.state, run.answer) == ("succeeded", SAYS["says"])


def test_what_counts_from_an_earlier_run_is_told_and_not_read_again(guide: Guide, sent: list) -> None:
    guide.run({"matched": {}, **SAYS}, customer="Ana")
    sent.clear()
    later = guide.run({"matched": {}, **SAYS}, customer="Ana")
    assert steps(later) == [[]]
    first = sent[0][0]
    assert isinstance(first, UserMessage)
    assert "parcels:" in first.text
    assert "no instruction" in first.text


def test_what_another_customer_was_told_is_told_to_nobody_else(guide: Guide, sent: list) -> None:
    guide.run({"matched": {}, **SAYS}, customer="Ana")
    sent.clear()
    other = guide.run({"matched": {}, **SAYS}, customer="Jon")
    assert steps(other) == [["look_up"], []]
    assert not any("parcels:" in getattr(message, "text", "") for message in sent[0][:1])


def test_a_variable_is_read_through_the_gate(guide: Guide) -> None:
    Rule.objects.create(name="never", tool="look_up", verdict="deny")
    run = guide.run({"matched": {}, **SAYS}, customer="Ana")
    assert (run.state, run.executions.get().reason) == ("succeeded", "policy_denied")
    assert steps(run) == [["look_up"], []]


def test_an_agent_without_variables_reads_none(guide: Guide) -> None:
    ContextVariable.objects.all().delete()
    assert steps(guide.run({"matched": {}, **SAYS}, customer="Ana")) == [[]]
