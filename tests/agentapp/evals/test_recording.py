"""A case made from a run, before any page has looked at it: it contains no secret and no personal data."""

import json
from typing import Any

from agentapp.evals import recording, results, runner, suites
from agentapp.evals.suites import read_case
from agentapp.messages import ToolResult
from agentapp.models import EvalResult, Tool
from agentapp.tools.base import tool
from tests.conftest import call, calls, says
from tests.guided import Guide


def test_a_secret_and_personal_data_stand_nowhere_in_a_case(clerk):
    Tool.objects.filter(name="look_up").update(secret_fields=["what"])
    Tool.objects.filter(name="label").update(pii_fields=["text"])
    run = clerk.run(
        calls(call("a", "look_up", what="swordfish-4711"), text="I look for swordfish-4711."),
        calls(call("b", "label", text="Josephine Baker")),
        input="The word is swordfish-4711, for Josephine Baker, at josephine.baker@mail.example.",
        customer="Josephine Baker",
    )
    document = recording.document_of(run, "a-case")
    written = json.dumps(document)
    for word in ("swordfish", "Josephine", "josephine.baker"):
        assert word not in written
    case = read_case(document)
    assert (case.customer, case.tools.keys()) == (recording.CUSTOMER, {"look_up"})


def test_calls_with_other_arguments_have_mocks_of_their_own_and_the_same_one_its_answers_in_turn(clerk):
    again = [calls(call(name, "look_up", what=what)) for name, what in (("a", "x"), ("b", "y"), ("c", "x"))]
    run = clerk.run(*again, says("done"))
    assert recording.document_of(run, "a-case")["tools"] == {
        "look_up": [
            {
                "when": {"what": "x"},
                "sequence": [{"result": {"found": "x"}, "trust": "trusted_system"}] * 2,
            },
            {"when": {"what": "y"}, "result": {"found": "y"}, "trust": "trusted_system"},
        ]
    }


def test_a_case_made_of_a_guided_run_has_no_script_for_nobody_kept_what_its_model_answered(clerk):
    guide = Guide(clerk)
    guide.guideline("greeting", "Greet them")
    run = guide.run({"matched": {"greeting": "They greet."}, "says": "Good morning."})
    assert run.state == "succeeded"
    document = recording.document_of(run, "a-case")
    assert "script" not in document
    assert read_case(document).script is None


def test_a_case_of_a_call_that_its_tool_refused_has_what_the_tool_said_and_passes_as_it_was_made(clerk, offer):
    @tool(effect="read", trust="trusted_system")
    def get_order(number: int) -> Any:
        """Look an order up."""
        return ToolResult("refused", message=f"There is no order {number}.", reason="tool_failure")

    offer(get_order)
    run = clerk.run(calls(call("a", "get_order", number=7)), says("There is no such order."))
    assert clerk.execution(run, "a").result_status == "refused"
    document = recording.document_of(run, "a-case")
    assert document["tools"] == {"get_order": [{"error": "There is no order 7.", "retryable": False}]}
    assert "no_tools" not in document["expect"]
    made = results.create(suites.create("desk", "", "test"), [read_case(document)])
    runner.go_on(made.pk, seconds=float("inf"))
    found = EvalResult.objects.get(eval_run=made)
    assert (found.verdict, found.reasons) == ("passed", [])


def test_a_case_of_calls_that_never_began_wants_no_tools_called(clerk):
    run = clerk.run(calls(call("a", "look_up", wat=1)), says("done"))
    document = recording.document_of(run, "a-case")
    assert (document["expect"]["no_tools"], "tools" in document) == (True, False)
