"""A script is replayed to the letter, and ends."""

from decimal import Decimal
from typing import Any

import pytest

from agentapp.drivers.base import ModelError, StepRequest
from agentapp.messages import Reply, ToolCall, Usage
from agentapp.script import check_script
from tests.agentapp.drivers.binding import bound


def replay(script: list[dict[str, Any]] | None, step: int = 1) -> Reply:
    if script:
        check_script(script)
    return bound("scripted").next_step(StepRequest("run", step, {}, script, (), ()))


def test_step_n_is_the_nth_reply() -> None:
    script = [{"text": "One."}, {"text": "Two."}]
    assert [replay(script, step).text for step in (1, 2)] == ["One.", "Two."]


@pytest.mark.parametrize("step", [0, -1, 2, 99])
def test_past_its_ends_a_script_has_no_reply(step: int) -> None:
    with pytest.raises(ModelError, match=f"The script has no reply for step {step}.") as caught:
        replay([{"text": "One."}], step)
    assert not caught.value.retryable


def test_a_run_without_a_script_has_no_reply() -> None:
    with pytest.raises(ModelError, match="no reply for step 1"):
        replay(None)


def settings_of(script: Any) -> dict[str, Any]:
    return {"driver_settings": {"script": script}}


def test_without_a_script_of_its_own_a_run_replays_its_agents() -> None:
    always, own = settings_of([{"text": "Always."}]), [{"text": "This once."}]
    driver = bound("scripted")
    assert driver.next_step(StepRequest("run", 1, always, None, (), ())).text == "Always."
    assert driver.next_step(StepRequest("run", 1, always, own, (), ())).text == "This once."


@pytest.mark.parametrize("script", ["Hello.", [1], [{"text": 1}], {"text": "Hello."}, None, False, 0, "", {}])
def test_an_agents_script_that_is_none_is_an_error_that_says_so(script: Any) -> None:
    with pytest.raises(ModelError, match="The agent's script cannot be replayed") as caught:
        bound("scripted").next_step(StepRequest("run", 1, settings_of(script), None, (), ()))
    assert not caught.value.retryable


def test_arguments_become_canonical_text_and_texts_stay_as_they_are() -> None:
    calls = [
        {"id": "a", "name": "refund", "arguments": {"order": "A-1", "amount": 12.50}},
        {"id": "b", "name": "refund", "arguments": '{"order": "A-1"'},
    ]
    reply = replay([{"tool_calls": calls}])
    assert reply.tool_calls == (
        ToolCall("a", "refund", '{"amount":12.5,"order":"A-1"}'),
        ToolCall("b", "refund", '{"order": "A-1"'),
    )
    assert (reply.text, reply.finish_reason) == ("", "tool_call")


def test_arguments_that_json_cannot_say_end_the_script() -> None:
    with pytest.raises(ModelError, match="'a' cannot be sent") as caught:
        replay([{"tool_calls": [{"id": "a", "name": "refund", "arguments": {"amount": 2**60}}]}])
    assert not caught.value.retryable


def test_usage_is_the_scripts_and_else_nothing_at_no_cost() -> None:
    usage = {"input_tokens": 10, "output_tokens": 2, "cached_tokens": 4, "cost": 0.1}
    assert replay([{"text": "Hi.", "usage": usage}]).usage == Usage(10, 2, 4, Decimal("0.1"))
    assert replay([{"text": "Hi."}]).usage == Usage(0, 0, 0, Decimal(0))


def test_a_script_may_have_its_model_fail() -> None:
    with pytest.raises(ModelError, match="The provider is down") as caught:
        replay([{"text": "One."}, {"error": "The provider is down."}], 2)
    assert (caught.value.retryable, caught.value.code) == (False, "scripted")
