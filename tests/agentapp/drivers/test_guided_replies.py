"""What an agent that follows guidelines says: what is missing, what results bring along, what was really done."""

from types import SimpleNamespace
from typing import Any

import pytest

from agentapp import actions, guidance_facts
from agentapp.considered import Insight
from agentapp.guidance import composing
from agentapp.guidance.inference import Brief
from agentapp.guidance.prompts import compose
from agentapp.messages import ToolResult
from agentapp.models import GuidelineMatch, Run, Tool, ToolInsight
from agentapp.tools.base import tool
from agentapp.transcript import load_steps
from approvals.masking import MASK
from approvals.models import Event
from tests import guidance_code
from tests.clerk_tools import effects_of
from tests.conftest import Clerk
from tests.guided import Guide

WANTED = {"matched": ["paying"], "evaluations": {"pay": [{"account": "ana", "amount": 5.0}]}}
PAID_BEFORE = {
    "matched": ["paying"],
    "evaluations": {"pay": {"state": "data_already_in_context"}},
    "says": "It was paid before.",
    "claims": ["pay"],
}


@pytest.fixture
def guide(clerk: Clerk) -> Guide:
    return Guide(clerk)


@pytest.fixture
def briefs(monkeypatch: pytest.MonkeyPatch) -> list[Brief]:
    """What each reply had to be written from."""
    noted: list[Brief] = []
    made = composing.brief

    def brief(*args: Any, **named: Any) -> Brief:
        noted.append(made(*args, **named))
        return noted[-1]

    monkeypatch.setattr(composing, "brief", brief)
    return noted


def last_event(run: Run, kind: str) -> dict[str, Any]:
    return Event.objects.filter(run_id=run.pk, type=kind).order_by("seq").last().data  # type: ignore[union-attr]


# --- What is missing ---------------------------------------------------------------------------


def test_a_missing_argument_leads_to_no_call_and_is_asked_for(guide: Guide, briefs: list[Brief]) -> None:
    guide.guideline("paying", "", "pay")
    run = guide.run(
        {"matched": ["paying"], "evaluations": {"pay": [{"account": "ana"}]}, "says": "How much shall I pay?"}
    )
    assert (run.state, run.answer, guide.calls(run)) == ("succeeded", "How much shall I pay?", [])
    assert guide.evaluations(run)["pay"].state == "cannot_run"
    assert [insight.parameter for insight in briefs[0].to_ask_for] == ["amount"]
    assert briefs[0].not_done == ["pay"]
    kept = ToolInsight.objects.get()
    assert (kept.kind, kept.parameter, kept.description) == ("missing", "amount", "How much.")


def test_what_is_missing_is_asked_for_group_by_group_and_what_is_hidden_never(
    guide: Guide, briefs: list[Brief]
) -> None:
    Tool.objects.filter(name="pay").update(
        parameters={
            "account": {"hidden": True, "precedence": 0},
            "amount": {"precedence": 1, "display_name": "the sum", "significance": "Else nothing can be paid."},
        }
    )
    guide.guideline("paying", "", "pay")
    guide.guideline("finding", "", "look_up")
    evaluations = {"pay": {"state": "cannot_run"}, "look_up": {"state": "cannot_run"}}
    run = guide.run({"matched": ["paying", "finding"], "evaluations": evaluations, "says": "How much?"})
    assert [(insight.tool, insight.display_name) for insight in briefs[0].to_ask_for] == [("pay", "the sum")]
    kept = {insight.parameter: insight for insight in ToolInsight.objects.all()}
    assert (sorted(kept), kept["account"].hidden) == (["account", "amount", "what"], True)
    assert guide.calls(run) == []


def test_an_insight_of_an_earlier_iteration_is_still_asked_for_until_its_tool_can_run(
    guide: Guide, briefs: list[Brief]
) -> None:
    guide.guideline("paying", "", "pay")
    guide.guideline("finding", "", "look_up")
    guide.run(
        {"matched": ["paying", "finding"], "evaluations": {"pay": [{"account": "ana"}], "look_up": [{"what": "x"}]}},
        {"says": "How much?"},
    )
    assert [insight.parameter for insight in briefs[0].to_ask_for] == ["amount"]


def test_a_value_that_cannot_be_chosen_is_named_unless_it_is_secret(guide: Guide, briefs: list[Brief]) -> None:
    parameters = {
        "account": {"choice_provider": "tests.guidance_code.own_accounts"},
        "memo": {"choice_provider": "tests.guidance_code.own_accounts"},
    }
    Tool.objects.filter(name="pay").update(parameters=parameters, secret_fields=["memo"])
    guide.guideline("paying", "", "pay")
    said = [{"account": "bob-daily", "amount": 5.0, "memo": "hush 1234"}]
    run = guide.run({"matched": ["paying"], "evaluations": {"pay": said}, "says": "Which?"}, customer="ana")
    values = {insight.parameter: (insight.invalid_value, insight.choices) for insight in briefs[0].to_ask_for}
    assert values == {
        "account": ("bob-daily", ("ana-savings", "ana-daily")),
        "memo": (MASK, None),
    }
    assert (run.state, guide.calls(run)) == ("succeeded", [])
    assert "hush" not in str(list(ToolInsight.objects.values()))


def test_each_customer_chooses_among_their_own(guide: Guide, dana: Any) -> None:
    choices = {"account": {"choice_provider": "tests.guidance_code.own_accounts"}}
    Tool.objects.filter(name="pay").update(parameters=choices)
    guide.guideline("paying", "", "pay")
    entry = {"matched": ["paying"], "evaluations": {"pay": [{"account": "ana-daily", "amount": 5.0}]}, "says": "Which?"}
    assert guide.run(entry, customer="ana").state == "waiting"
    assert guide.calls(guide.run(entry, customer="bob")) == []


def test_without_anything_to_choose_from_nothing_is_called(guide: Guide) -> None:
    Tool.objects.filter(name="pay").update(
        parameters={"account": {"choice_provider": "tests.guidance_code.nothing_to_choose"}}
    )
    guide.guideline("paying", "", "pay")
    said = {"pay": [{"account": "ana", "amount": 5.0}]}
    assert guide.calls(guide.run({"matched": ["paying"], "evaluations": said, "says": "No."})) == []


# --- What results bring along ------------------------------------------------------------------


@tool(effect="read")
def weather(place: str) -> ToolResult:
    """Tell the weather."""
    brought = {"action": "Speak of the storm only.", "priority": 100, "criticality": "high"}
    return ToolResult(data="A storm.", control={"transient_guidelines": [brought]})


def test_a_guideline_that_comes_with_a_result_goes_before_lower_ones_in_this_reply_only(
    guide: Guide, offer: Any, briefs: list[Brief]
) -> None:
    offer(weather)
    guide.guideline("chat", "Speak of the sun.", "weather")
    said = {"weather": [{"place": "Porto"}]}
    run = guide.run({"matched": ["chat"], "evaluations": said}, {"says": "A storm is coming."}, conversation="c")
    assert [guideline.words for guideline in briefs[0].guidelines] == ["Speak of the storm only."]
    assert guide.matched(run, 2) == {"weather:1.1": "transient"}
    assert GuidelineMatch.objects.get(step__number=2, guideline="chat").suppressed_by == "weather:1.1"
    later = guide.run({"matched": ["chat"], "says": "The sun shines."}, conversation="c")
    assert [guideline.name for guideline in briefs[1].guidelines] == ["chat"]
    assert guide.matched(later, 1) == {"chat": "model"}


def test_what_a_result_brings_along_counts_also_where_the_iterations_are_used_up(guide: Guide, offer: Any) -> None:
    guide.set(max_iterations=1)
    offer(weather)
    guide.guideline("chat", "Speak of the sun.", "weather")
    run = guide.run({"matched": ["chat"], "evaluations": {"weather": [{"place": "Porto"}]}}, {"says": "A storm."})
    assert guide.matched(run, 2) == {"weather:1.1": "transient"}


def test_what_a_kept_result_brought_along_counts_when_its_run_is_tried_again(guide: Guide, offer: Any) -> None:
    offer(weather)
    guide.guideline("chat", "Speak of the sun.", "weather")
    said = {"weather": [{"place": "Porto"}, {"place": "Lisbon"}]}
    first = guide.run({"matched": ["chat"], "evaluations": said}, {"matched": ["chat"], "says": "A storm."})
    again = guide.clerk.drive(actions.retry_run(first.pk, guide.clerk.starter, 2))
    assert (again.answer, guide.calls(again)) == ("A storm.", [])
    assert guide.matched(again, 1) == {"weather:0.1": "transient", "weather:0.2": "transient"}


# --- In which order ----------------------------------------------------------------------------


def test_guidelines_are_told_by_how_critical_they_are_and_then_by_priority(guide: Guide, briefs: list[Brief]) -> None:
    guide.guideline("low", "Be brief.", matcher="always", criticality="low", priority=9)
    guide.guideline("plain", "Be kind.", matcher="always", priority=1)
    guide.guideline("plainer", "Be clear.", matcher="always")
    guide.guideline("vital", "Never promise.", matcher="always", criticality="high")
    guide.guideline("seen", "", matcher="always")
    guide.run({"says": "Hello."})
    assert [guideline.name for guideline in briefs[0].guidelines] == ["vital", "plain", "plainer", "low"]


def test_a_brief_says_what_cannot_be_used_and_what_it_could_be() -> None:
    wrong = Insight("invalid", "pay", "to", "the account", choices=("a", "b"), invalid_value="c", examples=("a",))
    text = compose("Be exact.", Brief([], [wrong], ["pay"], ["You said too much."], is_cut_off=True))
    assert 'the account; what was given is data, and cannot be used: "c"; one of ["a", "b"]; for example a' in text
    assert "You said too much." in text
    assert "Nothing more can be looked up" in text


# --- What is claimed ---------------------------------------------------------------------------


def test_a_reply_that_claims_what_was_not_done_is_written_again(guide: Guide) -> None:
    guide.guideline("paying", "", "pay")
    entry = {
        "matched": ["paying"],
        "evaluations": {"pay": {"state": "not_applicable"}},
        "says": ["It is paid.", "It is not paid yet."],
        "claims": [["pay"], []],
    }
    run = guide.run(entry)
    assert run.answer == "It is not paid yet."
    assert last_event(run, "step.reply_checked") == {"step": 1, "acts": ["pay"], "corrections": 1, "replaced": False}


def test_a_reply_that_goes_on_claiming_it_gives_way_to_an_honest_sentence(guide: Guide) -> None:
    guide.guideline("paying", "", "pay")
    entry = {
        "matched": ["paying"],
        "evaluations": {"pay": {"state": "not_applicable"}},
        "says": "It is paid.",
        "claims": ["pay"],
    }
    run = guide.run(entry)
    assert run.answer == "I cannot confirm that this has been done: pay."
    noted = last_event(run, "step.reply_checked")
    assert (noted["corrections"], noted["replaced"], noted["unsupported"]) == (2, True, ["pay"])


def test_a_call_that_was_rejected_was_not_done_whatever_the_reply_says(guide: Guide, dana: Any) -> None:
    guide.guideline("paying", "", "pay")
    run = guide.run(
        {"matched": ["paying"], "evaluations": {"pay": [{"account": "ana", "amount": 5.0}]}},
        {"says": ["It is paid.", "It was not allowed."], "claims": [["pay"], []]},
    )
    (approval,) = guide.clerk.open(run)
    guide.clerk.decide(approval, dana, "reject", message="No.")
    assert guide.clerk.drive(run).answer == "It was not allowed."
    assert effects_of("pay") == []


def pay_ana(guide: Guide, dana: Any, **more: Any) -> Run:
    """A run that pays once, as Dana allows."""
    run = guide.run(WANTED, {"says": "It is paid.", "claims": ["pay"]}, **more)
    guide.clerk.decide(guide.clerk.open(run)[0], dana)
    return guide.clerk.drive(run)


def test_what_an_earlier_run_of_the_conversation_did_was_done(guide: Guide, dana: Any) -> None:
    guide.guideline("paying", "", "pay")
    assert pay_ana(guide, dana, conversation="c").answer == "It is paid."
    assert guide.run(PAID_BEFORE, conversation="c").answer == "It was paid before."
    assert guide.run(PAID_BEFORE, conversation="d").answer == "I cannot confirm that this has been done: pay."


def test_what_is_refused_as_done_before_was_done(guide: Guide, dana: Any) -> None:
    Tool.objects.filter(name="pay").update(business_key_template="pay {account}")
    guide.guideline("paying", "", "pay")
    pay_ana(guide, dana)
    refused = guide.run(WANTED, PAID_BEFORE, conversation="c")
    assert (refused.executions.get().reason, refused.answer) == ("idempotency_key_consumed", "It was paid before.")
    assert guide.run(PAID_BEFORE, conversation="c").answer == "It was paid before.", "also when it is asked again"


def test_what_was_taken_back_since_was_not_done(guide: Guide, dana: Any) -> None:
    Tool.objects.filter(name="pay").update(business_key_template="pay {account}")
    guide.guideline("paying", "", "pay")
    paid = pay_ana(guide, dana, conversation="c")
    refused = guide.run(WANTED, PAID_BEFORE, conversation="d")
    guide.guideline("finding", "", "look_up")
    back = guide.run({"matched": ["finding"], "evaluations": {"look_up": [{"what": "x"}]}}, {"says": "Taken back."})
    Run.objects.filter(pk=back.pk).update(undoes=paid.executions.get())
    later = [guide.run(PAID_BEFORE, conversation="c"), guide.run(PAID_BEFORE, conversation="d")]
    Run.objects.filter(pk__in=[paid.pk, refused.pk]).update(script=[{}, PAID_BEFORE])
    later += [guide.clerk.drive(actions.retry_run(run.pk, guide.clerk.starter, 2)) for run in (paid, refused)]
    assert {run.answer for run in later} == {"I cannot confirm that this has been done: pay."}


def test_nor_was_what_was_taken_back_while_the_run_that_did_it_waited(guide: Guide, dana: Any) -> None:
    guide.guideline("paying", "", "pay")
    paid = pay_ana(guide, dana)
    state: Any = SimpleNamespace(steps=load_steps(paid))
    [done] = guidance_facts._own(state)
    assert (done.took_effect, done.stands) == (True, True)
    guide.guideline("finding", "", "look_up")
    back = guide.run({"matched": ["finding"], "evaluations": {"look_up": [{"what": "x"}]}}, {"says": "Taken back."})
    Run.objects.filter(pk=back.pk).update(undoes=paid.executions.get())
    [done] = guidance_facts._own(state)
    assert (done.took_effect, done.stands) == (False, True)


def test_nothing_is_held_against_a_reply_where_no_act_was_at_stake(guide: Guide) -> None:
    guide.guideline("finding", "", "look_up")
    run = guide.run({"matched": ["finding"], "says": "It is paid.", "claims": ["pay"]})
    assert run.answer == "It is paid."
    assert not Event.objects.filter(type="step.reply_checked").exists()


# --- Planner and batcher -----------------------------------------------------------------------


def test_the_default_planner_lets_two_calls_through_in_one_go(guide: Guide) -> None:
    guide.guideline("both", "", "look_up", "fail")
    said = {"look_up": [{"what": "a"}], "fail": [{"how": "never"}]}
    run = guide.run({"matched": ["both"], "evaluations": said}, {"says": "Done."})
    assert (len(guide.calls(run)), run.step_count) == (2, 2)


def test_a_planner_is_told_of_each_stage_also_without_tools(guide: Guide) -> None:
    guidance_code.Watching.noted.clear()
    guide.set(planner="tests.guidance_code.Watching")
    guide.guideline("finding", "", "look_up")
    guide.run({"matched": ["finding"], "evaluations": {"look_up": [{"what": "a"}]}}, {"says": "Done."})
    assert guidance_code.Watching.noted == [
        ("resolved", ["finding"]),
        ("inferred", ["look_up"]),
        ("called", ["look_up"]),
        ("resolved", ["finding"]),
        ("inferred", []),
        ("more", 2),
    ]


def test_the_looks_that_a_planner_wanted_in_earlier_steps_count(guide: Guide) -> None:
    guidance_code.Watching.noted.clear()
    guide.set(planner="tests.guidance_code.Insatiable", max_iterations=2)
    code = {"matcher": "python", "python": "tests.guidance_code.at_a_second_look"}
    guide.guideline("finding", "", "look_up", **code)
    run = guide.run({"evaluations": {"look_up": [{"what": "a"}]}}, {"says": "Done."})
    assert (guide.calls(run), run.answer) == ([("look_up", {"what": "a"})], "Done.")
    assert [kind for kind, _ in guidance_code.Watching.noted].count("resolved") == 2
    assert last_event(run, "step.iterations_used_up")["most"] == 2


def test_a_planner_reorders_leaves_out_and_looks_again(guide: Guide) -> None:
    guide.set(planner="tests.guidance_code.Backwards")
    guide.guideline("finding", "", "look_up")
    wanted = [{"what": "a"}, {"what": "b"}, {"what": "c"}]
    run = guide.run({"matched": ["finding"], "evaluations": {"look_up": wanted}}, {"says": "Done."})
    assert [arguments["what"] for _, arguments in guide.calls(run)] == ["c", "b"]
    quiet = guide.run({"says": "Nothing to do."})
    assert quiet.answer == "Nothing to do."
    assert quiet.steps.get().guideline_matches.count() == 1


@pytest.mark.parametrize(("batcher", "batches"), [("", {1, 2}), ("tests.guidance_code.one_batch", {1})])
def test_a_batcher_can_be_replaced(guide: Guide, batcher: str, batches: set[int]) -> None:
    guide.set(**({"batcher": batcher} if batcher else {}))
    guide.guideline("both", "", "look_up", "fail")
    run = guide.run({"matched": ["both"], "says": "No."})
    assert {evaluation.batch for evaluation in guide.evaluations(run).values()} == batches


def test_overlapping_tools_are_one_batch_and_each_has_its_evaluation(guide: Guide) -> None:
    guide.guideline("both", "", "look_up", "fail")
    guide.overlap("look_up", "fail")
    run = guide.run({"matched": ["both"], "evaluations": {"look_up": {"state": "cannot_run"}}, "says": "No."})
    found = guide.evaluations(run)
    assert {name: (each.batch, each.state) for name, each in found.items()} == {
        "look_up": (1, "cannot_run"),
        "fail": (1, "not_applicable"),
    }
