"""Faulty code of an installation that guided runs rest on: the run ends with a sentence that names it."""

from typing import Any

import pytest

from agentapp.models import Tool, ToolInsight
from tests.clerk_tools import effects_of
from tests.conftest import Clerk
from tests.guided import Guide

CODE = "tests.guidance_code"


@pytest.fixture
def guide(clerk: Clerk) -> Guide:
    return Guide(clerk)


def failure(guide: Guide, *entries: Any, **more: Any) -> str:
    """Why a run failed, after checking that it called nothing."""
    wanted = {"look_up": [{"what": "a"}, {"what": "b"}], "pay": [{"account": "ana", "amount": 5.0}]}
    run = guide.run(*(entries or [{"evaluations": wanted, "says": "Done."}] * 2), **more)
    assert (run.state, guide.calls(run)) == ("failed", [])
    return str(run.stop_message)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("matcher", "gave"),
    [("a_coroutine", "returned a coroutine"), ("a_word", "returned a str"), ("nothing", "returned a NoneType")],
)
def test_a_matcher_that_says_neither_true_nor_false_does_not_hold_by_accident(
    guide: Guide, matcher: str, gave: str
) -> None:
    guide.guideline("vip", "", "look_up", matcher="python", python=f"{CODE}.{matcher}")
    said = failure(guide)
    assert f"The matcher of the guideline vip: {CODE}.{matcher} {gave}, not true or false" in said


@pytest.mark.parametrize(
    ("provider", "what"),
    [
        ("broken", "failed (ZeroDivisionError)"),
        ("nothing", "returned a NoneType instead of a list of values"),
        ("a_text", "returned a str instead of a list of values"),
        ("fails_on_the_way", "failed (LookupError)"),
        ("too_large_a_number", "returned a value that no call can carry"),
        ("half_a_character", "returned a value that no call can carry"),
    ],
)
def test_a_choice_provider_that_gives_no_list_of_values_ends_the_run(guide: Guide, provider: str, what: str) -> None:
    Tool.objects.filter(name="pay").update(parameters={"account": {"choice_provider": f"{CODE}.{provider}"}})
    guide.guideline("paying", "", "pay", matcher="always")
    assert f"The choices of account of pay: {CODE}.{provider} {what}" in failure(guide, customer="ana")


def test_a_value_may_be_any_of_very_many_and_the_first_of_them_are_told(guide: Guide) -> None:
    Tool.objects.filter(name="pay").update(parameters={"account": {"choice_provider": f"{CODE}.very_many"}})
    guide.guideline("paying", "", "pay", matcher="always")
    run = guide.run({"evaluations": {"pay": [{"account": "account-99999", "amount": 5.0}]}})
    assert (run.state, run.waiting_for) == ("waiting", "approval")
    guide.run({"evaluations": {"pay": [{"account": "account-100000", "amount": 5.0}]}, "says": "Which?"})
    choices = ToolInsight.objects.get(parameter="account").choices
    assert (len(choices), choices[:2], choices[-1]) == (101, ["account-0", "account-1"], "… and 99900 more")


@pytest.mark.parametrize(
    ("batcher", "what"),
    [
        ("broken_batcher", "failed (LookupError)"),
        ("nothing", "did not return a list of batches"),
        ("all_but_the_first", "did not put every candidate into one batch"),
        ("twice_the_first", "did not put every candidate into one batch"),
    ],
)
def test_a_batcher_that_raises_or_passes_a_candidate_over_ends_the_run(guide: Guide, batcher: str, what: str) -> None:
    guide.set(batcher=f"{CODE}.{batcher}")
    guide.guideline("both", "", "look_up", "pay", matcher="always")
    assert f"The batcher: {CODE}.{batcher} {what}" in failure(guide)


def test_batches_are_told_apart_whatever_numbers_a_batcher_gives_them(guide: Guide) -> None:
    guide.set(batcher=f"{CODE}.all_of_one_number")
    guide.guideline("both", "", "pay", "read_mail", matcher="always")
    Tool.objects.filter(name="read_mail").update(input_schema={"type": "object", "properties": {}})
    run = guide.run({"evaluations": {"pay": {"state": "not_applicable"}}}, {"says": "Your mail is strange."})
    found = guide.evaluations(run)
    assert {name: each.mode for name, each in found.items()} == {"pay": "full", "read_mail": "auto_approved"}
    assert {each.batch for each in found.values()} == {1, 2}
    assert effects_of("pay") == []


@pytest.mark.parametrize(
    ("planner", "what"),
    [
        ("NotBuilt", "{} failed (LookupError)"),
        ("Raising", "{}.on_guidelines_resolved failed (LookupError)"),
        ("Silent", "{}.on_tools_inferred did not return a list of calls"),
        ("Wordy", "{}.on_tools_inferred did not return a list of calls"),
        ("Half", "{} has no on_tools_inferred"),
    ],
)
def test_a_planner_that_raises_or_gives_something_else_ends_the_run(guide: Guide, planner: str, what: str) -> None:
    guide.set(planner=f"{CODE}.{planner}")
    guide.guideline("finding", "", "look_up", matcher="always")
    assert f"The planner: {what.format(f'{CODE}.{planner}')}" in failure(guide)


def test_a_planner_that_cannot_say_whether_to_look_again_ends_the_run(guide: Guide) -> None:
    guide.set(planner=f"{CODE}.Unsure")
    said = failure(guide, {"says": "Hello."})
    assert f"The planner: {CODE}.Unsure.needs_additional_iteration gave neither true nor false" in said


def test_a_call_that_a_planner_names_twice_is_made_once_and_one_of_its_own_not_at_all(guide: Guide) -> None:
    guide.set(planner=f"{CODE}.Stuttering")
    guide.guideline("finding", "", "look_up", "fail", matcher="always")
    run = guide.run({"evaluations": {"look_up": [{"what": "a"}, {"what": "b"}]}}, {"says": "Done."})
    assert guide.calls(run) == [("look_up", {"what": "a"}), ("look_up", {"what": "b"})]
