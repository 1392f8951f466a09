"""The trace of an agent that follows guidelines, over the API."""

from typing import Any

from agentapp import auth
from agentapp.models import Tool
from tests.agentapp.api.conftest import ApiClient
from tests.conftest import Clerk
from tests.guided import Guide


def trace_of(run: Any, user: Any) -> Any:
    _, secret = auth.issue_token(user, "t", ["runs:read"], "test")
    return ApiClient(secret).get(f"/runs/{run.pk}/trace").data


def test_a_step_tells_what_it_looked_at_and_a_call_why_it_was_proposed(clerk: Clerk, sam: Any) -> None:
    guide = Guide(clerk)
    Tool.objects.filter(name="pay").update(parameters={"amount": {"precedence": 1}})
    guide.guideline("paying", "Pay.", "pay", "look_up")
    said = {"look_up": {"state": "needs_to_run", "calls": [{"what": "x"}], "why": "Wanted."}, "pay": [{"account": "a"}]}
    run = guide.run({"matched": {"paying": "Due."}, "evaluations": said}, {"says": "How much?"})
    first, last = trace_of(run, sam)["steps"]
    [match] = first["guidance"]["matches"]
    assert (match["guideline"], match["matched"], match["origin"], match["rationale"], match["version"]) == (
        "paying",
        True,
        "model",
        "Due.",
        1,
    )
    states = {each["tool"]: each["state"] for each in first["guidance"]["evaluations"]}
    assert states == {"look_up": "needs_to_run", "pay": "cannot_run"}
    [insight] = next(each for each in first["guidance"]["evaluations"] if each["tool"] == "pay")["insights"]
    assert (insight["kind"], insight["parameter"], insight["precedence"]) == ("missing", "amount", 1)
    [call] = first["calls"]
    assert call["evaluation"] == {
        "state": "needs_to_run",
        "mode": "short",
        "guidelines": ["paying"],
        "rationale": "Wanted.",
    }
    assert (last["guidance"]["matches"], last["guidance"]["evaluations"]) == ([], [])


def test_a_run_without_guidelines_tells_of_none(clerk: Clerk, sam: Any) -> None:
    run = clerk.run(
        {"text": "", "tool_calls": [{"id": "a", "name": "look_up", "arguments": {"what": "x"}}]}, {"text": "Done."}
    )
    steps = trace_of(run, sam)["steps"]
    assert [step["guidance"] for step in steps] == [None, None]
    assert steps[0]["calls"][0]["evaluation"] is None
