"""Whole runs of an agent that follows guidelines: which tools are called, and what becomes of the run."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentapp import actions, observe
from agentapp.models import GuidelineMatch, Run, Tool, ToolEvaluation, ToolExecution
from agentapp.refused import Refused
from approvals.models import Event
from tests.clerk_tools import effects_of
from tests.conftest import Clerk
from tests.guided import Guide


@pytest.fixture
def guide(clerk: Clerk) -> Guide:
    return Guide(clerk)


def test_without_a_guideline_that_holds_nothing_is_evaluated_and_nothing_called(guide: Guide) -> None:
    guide.guideline("finding", "", "look_up")
    run = guide.run({"matched": {}, "evaluations": {"look_up": [{"what": "kettle"}]}, "says": "Good day."})
    assert (run.state, run.answer) == ("succeeded", "Good day.")
    assert guide.calls(run) == []
    assert not ToolEvaluation.objects.exists()
    step = guide.step(run, 1)
    assert step.disclosed_tools == []
    assert step.guideline_matches.get().matched is False


def test_a_read_without_parameters_is_called_once_and_no_model_is_asked_about_it(guide: Guide) -> None:
    guide.guideline("waking", "", "die")
    Tool.objects.filter(name="die").update(input_schema={"type": "object", "properties": {}})
    guide.guideline("mail", "Say what it says.", "read_mail")
    Tool.objects.filter(name="read_mail").update(input_schema={"type": "object", "properties": {}})
    run = guide.run({"matched": {"mail": "They ask about their mail."}}, {"says": "It is strange."})
    assert (run.state, guide.calls(run)) == ("succeeded", [("read_mail", {})])
    assert guide.evaluations(run)["read_mail"].mode == "auto_approved"


def test_a_tool_is_called_with_several_arguments_in_the_order_they_are_wanted(guide: Guide) -> None:
    guide.guideline("finding", "", "look_up")
    wanted = [{"what": "8+2"}, {"what": "4+6"}]
    run = guide.run({"matched": ["finding"], "evaluations": {"look_up": wanted}}, {"says": "Both are 10."})
    assert guide.calls(run) == [("look_up", {"what": "8+2"}), ("look_up", {"what": "4+6"})]
    assert run.answer == "Both are 10."


@pytest.mark.parametrize("together", [True, False])
def test_two_tools_are_called_whether_one_guideline_asks_for_both_or_two_do(guide: Guide, together: bool) -> None:
    if together:
        guide.guideline("drinks", "", "look_up", "fail")
    else:
        guide.guideline("drinks", "", "look_up")
        guide.guideline("toppings", "", "fail")
    names = ["drinks"] if together else ["drinks", "toppings"]
    wanted = {"look_up": [{"what": "tea"}], "fail": [{"how": "never"}]}
    run = guide.run({"matched": names, "evaluations": wanted}, {"says": "Tea, and no toppings."})
    assert sorted(guide.calls(run)) == [("fail", {"how": "never"}), ("look_up", {"what": "tea"})]
    assert run.state == "succeeded"


def test_the_call_keeps_which_guideline_asked_for_it_and_why(guide: Guide) -> None:
    guide.guideline("finding", "", "look_up")
    said = {"state": "needs_to_run", "calls": [{"what": "tea"}], "why": "They want tea."}
    run = guide.run({"matched": {"finding": "They ask."}, "evaluations": {"look_up": said}}, {"says": "Tea."})
    evaluation = run.executions.get().evaluation
    assert (evaluation.state, evaluation.guidelines, evaluation.rationale) == (
        "needs_to_run",
        ["finding"],
        "They want tea.",
    )
    assert guide.step(run, 1).text == "They want tea."
    assert guide.step(run, 1).guideline_matches.get().rationale == "They ask."


def test_no_reason_that_is_kept_names_a_secret_argument(guide: Guide) -> None:
    Tool.objects.filter(name__in=["look_up", "pay"]).update(secret_fields=["what", "account"])
    guide.guideline("finding", "", "look_up", "pay")
    guide.guideline("thanking", "Thank them.")
    looks = {"state": "needs_to_run", "calls": [{"what": "canary"}], "why": "They want canary."}
    unsure = {"state": "cannot_run", "calls": [{"account": "parrot"}], "why": "Nobody said how much parrot is owed."}
    run = guide.run(
        {"matched": {"finding": "They ask for canary."}, "evaluations": {"look_up": looks, "pay": unsure}},
        {"matched": {"thanking": "Done with canary."}, "says": "There is one."},
    )
    assert [step.text for step in run.steps.order_by("number")] == ["They want ••••••.", "There is one."]
    reasons = ToolEvaluation.objects.filter(run=run).values_list("rationale", flat=True)
    assert set(reasons) >= {"They want ••••••.", "Nobody said how much •••••• is owed."}
    assert not [why for why in reasons if "canary" in why or "parrot" in why]
    matches = GuidelineMatch.objects.filter(run=run).values_list("rationale", flat=True)
    assert set(matches) >= {"They ask for ••••••.", "Done with ••••••."}
    assert not [why for why in matches if "canary" in why]


# --- Iterations --------------------------------------------------------------------------------


def test_what_a_result_says_makes_another_guideline_hold_in_the_same_run(guide: Guide) -> None:
    guide.guideline("balance", "", "look_up")
    guide.guideline("apology", "Apologise for the missing data.", condition="the balance is -555")
    run = guide.run(
        {"matched": ["balance"], "evaluations": {"look_up": [{"what": "-555"}]}},
        {"matched": {"apology": "It is -555."}, "says": "I am sorry, data is missing."},
    )
    assert guide.matched(run, 1) == {"balance": "model"}
    assert guide.matched(run, 2) == {"apology": "model"}
    assert run.answer == "I am sorry, data is missing."


def test_when_the_iterations_are_used_up_the_reply_is_written_anyway(guide: Guide) -> None:
    guide.set(max_iterations=1)
    guide.guideline("balance", "", "look_up")
    guide.guideline("apology", "Apologise.", "fail", condition="the balance is -555")
    run = guide.run(
        {"matched": ["balance"], "evaluations": {"look_up": [{"what": "-555"}]}},
        {"matched": ["apology"], "evaluations": {"fail": [{"how": "never"}]}, "says": "It is -555."},
    )
    assert (run.state, run.answer, len(guide.calls(run))) == ("succeeded", "It is -555.", 1)
    assert guide.matched(run, 2) == {}
    assert Event.objects.get(run_id=run.pk, type="step.iterations_used_up").data == {"most": 1, "step": 2}


def test_later_iterations_look_only_at_tools_of_guidelines_that_have_come_to_hold(guide: Guide) -> None:
    guide.guideline("balance", "", "look_up")
    guide.guideline("offers", "", "fail")
    run = guide.run(
        {"matched": ["balance"], "evaluations": {"look_up": [{"what": "a"}]}},
        {
            "matched": ["balance", "offers"],
            "evaluations": {"look_up": [{"what": "b"}], "fail": [{"how": "never"}]},
        },
        {"says": "That is all."},
    )
    assert guide.calls(run) == [("look_up", {"what": "a"}), ("fail", {"how": "never"})]
    assert set(guide.evaluations(run, 2)) == {"fail"}
    assert guide.step(run, 2).disclosed_tools == ["fail"]


def test_a_guideline_is_looked_at_again_when_the_tool_it_names_has_run(guide: Guide) -> None:
    asking = guide.guideline("asking", "", "look_up")
    guide.relate(asking, "reevaluates", "look_up")
    run = guide.run(
        {"matched": ["asking"], "evaluations": {"look_up": [{"what": "a"}]}},
        {"matched": ["asking"], "evaluations": {"look_up": [{"what": "b"}]}},
        {"matched": [], "says": "Nothing is left to look up."},
    )
    assert guide.calls(run) == [("look_up", {"what": "a"}), ("look_up", {"what": "b"})]
    assert guide.matched(run, 2) == {"asking": "reevaluated"}
    assert guide.matched(run, 3) == {}
    assert run.answer == "Nothing is left to look up."


def test_an_earlier_call_with_other_arguments_does_not_stand_in_the_way(guide: Guide) -> None:
    first = guide.guideline("first", "", "look_up")
    guide.relate(first, "reevaluates", "look_up")
    run = guide.run(
        {"matched": ["first"], "evaluations": {"look_up": [{"what": "a"}, {"what": "b"}]}},
        # Both count as made, not only the first.
        {"matched": ["first"], "evaluations": {"look_up": [{"what": "b"}, {"what": "a"}, {"what": "c"}]}},
        {"matched": ["first"], "evaluations": {"look_up": [{"what": "b"}]}, "says": "Done."},
    )
    assert [arguments["what"] for _, arguments in guide.calls(run)] == ["a", "b", "c"]
    assert guide.evaluations(run, 3)["look_up"].state == "data_already_in_context"


# --- What holds, and what follows --------------------------------------------------------------


def test_what_a_guideline_entails_holds_with_its_tools(guide: Guide) -> None:
    first, second = guide.guideline("first"), guide.guideline("second", "", "look_up", matcher="model")
    guide.relate(first, "entails", second)
    run = guide.run({"matched": ["first"], "evaluations": {"look_up": [{"what": "x"}]}}, {"says": "Done."})
    assert guide.matched(run, 1) == {"first": "model", "second": "entailed"}
    assert guide.calls(run) == [("look_up", {"what": "x"})]


def test_what_was_entailed_counts_no_longer_when_what_it_followed_from_does_not_hold(guide: Guide) -> None:
    first, second = guide.guideline("first", "", "look_up"), guide.guideline("second", "Promise it.")
    guide.relate(first, "entails", second)
    guide.relate(first, "reevaluates", "look_up")
    run = guide.run({"matched": ["first"], "evaluations": {"look_up": [{"what": "x"}]}}, {"matched": [], "says": "No."})
    assert guide.matched(run, 1) == {"first": "model", "second": "entailed"}
    assert guide.matched(run, 2) == {}
    gone = guide.step(run, 2).guideline_matches.get(guideline="second")
    assert (gone.matched, gone.rationale) == (False, "What it followed from no longer holds.")


def test_the_tools_of_a_guideline_that_another_goes_before_are_not_called(guide: Guide) -> None:
    strong, weak = guide.guideline("strong", "Say no."), guide.guideline("weak", "", "look_up")
    guide.relate(strong, "priority", weak)
    run = guide.run({"matched": ["strong", "weak"], "evaluations": {"look_up": [{"what": "x"}]}, "says": "No."})
    assert (guide.matched(run, 1), guide.calls(run)) == ({"strong": "model"}, [])
    assert guide.step(run, 1).guideline_matches.get(guideline="weak").suppressed_by == "strong"


def test_a_guideline_that_always_holds_and_one_that_code_decides_need_no_model(guide: Guide) -> None:
    guide.guideline("polite", "Be polite.", matcher="always")
    guide.guideline("vip", "Be very polite.", matcher="python", python="tests.guidance_code.is_vip")
    assert guide.matched(guide.run({"says": "Sir."}, customer="vip-7"), 1) == {"polite": "always", "vip": "python"}
    assert guide.matched(guide.run({"says": "Hi."}, customer="c-1"), 1) == {"polite": "always"}


def test_code_that_fails_ends_the_run_and_says_which(guide: Guide) -> None:
    guide.guideline("vip", "Be polite.", matcher="python", python="tests.guidance_code.broken")
    run = guide.run({"says": "Sir."})
    assert run.state == "failed"
    assert "The matcher of the guideline vip: tests.guidance_code.broken failed (ZeroDivisionError)" in run.stop_message


def test_a_change_of_guidelines_does_not_reach_a_run_under_way(guide: Guide) -> None:
    kept = guide.guideline("kept", "", "look_up")
    guide.guideline("off", "", "fail", enabled=False)
    run = guide.clerk.start({"matched": ["kept"], "evaluations": {"look_up": [{"what": "x"}]}}, {"says": "Done."})
    kept.delete()
    assert guide.calls(guide.clerk.drive(run)) == [("look_up", {"what": "x"})]
    assert [row["name"] for row in run.agent_snapshot["guidance"]["guidelines"]] == ["kept"]


def test_only_runs_of_agents_that_follow_guidelines_keep_any(clerk: Clerk) -> None:
    assert "guidance" not in clerk.start({"text": "Hi."}).agent_snapshot


def test_a_script_says_what_a_model_would_answer_and_another_form_is_refused(guide: Guide) -> None:
    guide.guideline("finding", "", "look_up")
    with pytest.raises(Refused, match=r"script/0"):
        guide.clerk.start({"text": "Hello."})
    run = guide.run({"matched": ["sought"]})
    assert (run.state, run.stop_message) == ("failed", "The script matches 'sought', which is not a guideline.")
    assert guide.run({"error": "The model is away."}).stop_message == "The model is away."
    assert "has nothing to say in step 1" in guide.run({}).stop_message


def test_a_run_that_is_tried_again_looks_at_all_guidelines_anew_and_knows_what_was_called(guide: Guide) -> None:
    guide.guideline("finding", "", "look_up")
    entries = (
        {"matched": ["finding"], "evaluations": {"look_up": [{"what": "x"}]}},
        {"matched": ["finding"], "evaluations": {"look_up": [{"what": "x"}]}, "says": "It is x."},
    )
    first = guide.run(*entries)
    again = guide.clerk.drive(actions.retry_run(first.pk, guide.clerk.starter, 2))
    assert (again.answer, guide.calls(again)) == ("It is x.", [])
    assert guide.matched(again, 1) == {"finding": "model"}
    assert guide.evaluations(again)["look_up"].state == "data_already_in_context"


def test_a_call_that_never_ran_is_proposed_again_when_its_run_is_tried_again(guide: Guide) -> None:
    guide.guideline("paying", "", "pay")
    wanted = {"matched": ["paying"], "evaluations": {"pay": [{"account": "ana", "amount": 5.0}]}}
    first = guide.run(wanted, wanted)
    actions.cancel_run(first.pk, guide.clerk.starter)
    again = guide.clerk.drive(actions.retry_run(first.pk, guide.clerk.starter, 2))
    assert (again.state, guide.calls(again)) == ("waiting", guide.calls(first))


CANCELLED, FINISHED = ToolExecution.State.CANCELLED, ToolExecution.State.FINISHED


@pytest.mark.parametrize(
    ("became", "is_made_again"),
    [
        ({"state": CANCELLED, "result_status": "", "reason": "cancelled"}, True),
        ({"state": CANCELLED, "result_status": "", "reason": "cancelled", "attempts": 1, "started_at": None}, False),
        ({"result_status": "refused", "reason": "approval_expired"}, True),
        ({"result_status": "refused", "reason": "circuit_open"}, True),
        ({"result_status": "refused", "reason": "action_changed"}, True),
        ({"result_status": "retryable_error", "reason": "tool_timeout"}, True),
        ({"result_status": "fatal_error", "reason": "tool_failure"}, False),
        ({"result_status": "refused", "reason": "approval_rejected"}, False),
        ({"result_status": "refused", "reason": "policy_denied"}, False),
    ],
)
def test_a_call_is_left_out_as_made_before_unless_it_may_be_made_again(
    guide: Guide, became: dict[str, Any], is_made_again: bool
) -> None:
    guide.guideline("finding", "", "look_up")
    wanted = {"matched": ["finding"], "evaluations": {"look_up": [{"what": "x"}]}, "says": "It is x."}
    first = guide.run(wanted, wanted, {"says": "It is x."})
    first.executions.update(**became)
    again = guide.clerk.drive(actions.retry_run(first.pk, guide.clerk.starter, 2))
    assert guide.calls(again) == ([("look_up", {"what": "x"})] if is_made_again else [])


def test_a_read_that_failed_for_now_is_made_again_when_its_guideline_is_looked_at_again(guide: Guide) -> None:
    guide.relate(guide.guideline("trying", "", "fail"), "reevaluates", "fail")
    wanted = {"matched": ["trying"], "evaluations": {"fail": [{"how": "later"}]}}
    run = guide.run(wanted, wanted, {"says": "It does not work now."})
    assert guide.calls(run) == [("fail", {"how": "later"})] * 2


def test_a_call_that_was_taken_back_since_is_made_again(guide: Guide, dana: Any) -> None:
    guide.guideline("paying", "", "pay")
    wanted = {"matched": ["paying"], "evaluations": {"pay": [{"account": "ana", "amount": 5.0}]}, "says": "Paid."}
    first = guide.run(wanted, wanted)
    guide.clerk.decide(guide.clerk.open(first)[0], dana)
    assert guide.clerk.drive(first).answer == "Paid."
    guide.guideline("finding", "", "look_up")
    back = guide.run({"matched": ["finding"], "evaluations": {"look_up": [{"what": "x"}]}}, {"says": "Taken back."})
    Run.objects.filter(pk=back.pk).update(undoes=first.executions.get())
    again = guide.clerk.drive(actions.retry_run(first.pk, guide.clerk.starter, 2))
    assert (again.state, [name for name, _ in guide.calls(again)]) == ("waiting", ["pay"])


def test_what_a_step_looks_at_costs_the_same_however_many_guidelines_there_are(guide: Guide) -> None:
    def statements(run: Any) -> int:
        with CaptureQueriesContext(connection) as captured:
            guide.clerk.drive(run)
        return len(captured)

    entry = {"evaluations": {"look_up": [{"what": "x"}]}}, {"says": "Done."}
    guide.guideline("one", "Be kind.", "look_up", matcher="always")
    few = statements(guide.clerk.start(*entry))
    for number in range(20):
        guide.guideline(f"more-{number}", "Be kind.", "look_up", "fail", matcher="always")
    assert statements(guide.clerk.start(*entry)) == few


# --- Open guidance -----------------------------------------------------------------------------


@pytest.mark.parametrize(("guidance", "called"), [("guided", []), ("open", [("fail", {"how": "never"})])])
def test_a_tool_that_no_guideline_is_for_is_called_only_where_guidance_is_open(
    guide: Guide, guidance: str, called: Any
) -> None:
    guide.set(guidance=guidance)
    guide.guideline("finding", "", "look_up")
    entry = {"evaluations": {"fail": [{"how": "never"}], "look_up": [{"what": "x"}]}, "says": "Done."}
    run = guide.run(entry, {"says": "Done."})
    assert (run.state, guide.calls(run)) == ("succeeded", called)


# --- The gate ----------------------------------------------------------------------------------


def test_a_call_that_changes_the_world_waits_for_a_person_as_any_other(guide: Guide, dana: Any) -> None:
    guide.guideline("paying", "", "pay")
    run = guide.run(
        {"matched": ["paying"], "evaluations": {"pay": [{"account": "ana", "amount": 5.0}]}},
        {"says": "It is paid.", "claims": ["pay"]},
    )
    assert (run.state, run.waiting_for, effects_of("pay")) == ("waiting", "approval", [])
    (approval,) = guide.clerk.open(run)
    guide.clerk.decide(approval, dana)
    run = guide.clerk.drive(run)
    assert (run.state, run.answer, effects_of("pay")) == (
        "succeeded",
        "It is paid.",
        [{"account": "ana", "amount": 5.0}],
    )
    assert guide.evaluations(run)["pay"].mode == "full"


def test_a_guideline_that_says_to_wait_defers_the_call(guide: Guide) -> None:
    guide.guideline("paying", "", "pay")
    guide.guideline("consent", "Get their explicit consent first.")
    run = guide.run(
        {
            "matched": ["paying", "consent"],
            "evaluations": {"pay": {"state": "not_applicable", "why": "They have not agreed yet."}},
            "says": "Shall I pay 5 to Ana?",
        }
    )
    assert (run.state, guide.calls(run), run.answer) == ("succeeded", [], "Shall I pay 5 to Ana?")
    assert guide.evaluations(run)["pay"].state == "not_applicable"


def test_calls_beside_a_word_that_the_tool_should_not_run_are_not_made(guide: Guide) -> None:
    guide.guideline("paying", "", "pay")
    said = {"state": "not_applicable", "calls": [{"account": "ana", "amount": 5.0}], "why": "Not now, they say."}
    run = guide.run({"matched": ["paying"], "evaluations": {"pay": said}, "says": "As you like."})
    assert (guide.calls(run), effects_of("pay")) == ([], [])


def test_a_hook_sees_the_reply_of_a_script_and_people_are_told_what_was_asked(guide: Guide) -> None:
    seen = []
    end = observe.on_event("inference.completed", lambda event: seen.append(event.data["reply"].text))
    guide.run({"says": "Good day."})
    end()
    assert seen == ["Good day."]
