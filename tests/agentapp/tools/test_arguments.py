"""Arguments a tool's schema does not name are refused or dropped, and what is judged is what is shown and run."""

from datetime import date

import pytest
from pydantic import BaseModel, model_validator

from agentapp.models import Tool
from agentapp.tools.base import tool
from agentapp.tools.schema import check_arguments
from tests.clerk_tools import EFFECTS, effects_of
from tests.conftest import call, calls, says


def test_an_argument_there_is_not_is_refused_by_name_with_what_was_sent(clerk):
    run = clerk.run(calls(call("a", "look_up", wat="x", colour="secret red")), says("done"))
    execution = clerk.execution(run, "a")
    assert (run.state, execution.reason) == ("succeeded", "missing_arguments")
    assert execution.message == (
        "look_up: what is missing. colour is not an argument of this tool. wat is not an argument of this tool. "
        "You sent colour, wat."
    )
    assert EFFECTS == []


def test_a_tool_may_drop_arguments_there_are_not_and_people_see_what_is_left(clerk, dana):
    Tool.objects.update(additional_arguments="drop")
    run = clerk.run(
        calls(call("a", "look_up", what="x", colour="red"), call("b", "pay", account="ana", amount=1, to="bob")),
        says("done"),
    )
    assert clerk.execution(run, "a").executed_text == '{"what":"x"}'
    [approval] = clerk.open(run)
    assert approval.arguments_text == '{"account":"ana","amount":1,"memo":""}'
    clerk.decide(approval, dana)
    clerk.drive(run)
    assert effects_of("pay") == [{"account": "ana", "amount": 1.0}]
    assert "to" in clerk.execution(run, "b").arguments_text, "what was proposed is kept as it came"


def test_what_only_the_types_refuse_is_refused_before_people_are_asked(clerk, offer):
    class Booking(BaseModel):
        day: date
        nights: int

        @model_validator(mode="after")
        def _is_short(self) -> "Booking":
            if self.nights > 14:
                raise ValueError("two weeks at most")
            return self

    @tool(effect="irreversible", args_schema=Booking)
    def book(day: date, nights: int) -> str:
        """Book a room."""
        return "booked"

    @tool(effect="irreversible", args_schema=Booking, on_invalid="Rooms are booked for two weeks at most.")
    def book_kindly(day: date, nights: int) -> str:
        """Book a room."""
        return "booked"

    offer(book, book_kindly)
    stay = {"day": "2026-12-24", "nights": 4711}
    run = clerk.run(calls(call("a", "book", **stay), call("b", "book_kindly", **stay)), says("done"))
    assert run.state == "succeeded", "nobody was asked"
    first, second = clerk.execution(run, "a"), clerk.execution(run, "b")
    assert (first.result_status, first.reason) == (second.result_status, second.reason) == (
        "refused", "invalid_arguments",
    )  # fmt: skip
    assert "two weeks at most" in first.message
    assert "4711" not in first.message
    assert second.message == "book_kindly: Rooms are booked for two weeks at most."


def test_a_call_with_dropped_arguments_is_the_same_call_as_without(clerk, dana):
    Tool.objects.update(additional_arguments="drop")
    run = clerk.run(
        calls(call("a", "pay", account="ana", amount=1)),
        calls(call("b", "pay", account="ana", amount=1, to="bob")),
        says("done"),
    )
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    assert clerk.execution(run, "b").reason == "idempotency_key_consumed"


def test_what_is_dropped_is_dropped_at_the_top_only(clerk, offer):
    @tool(effect="read", additional_arguments="drop", input_schema={
        "type": "object",
        "properties": {"line": {"type": "object", "properties": {}, "additionalProperties": False}},
    })  # fmt: skip
    def weigh(line: dict) -> str:  # type: ignore[type-arg]
        """Weigh it."""
        return "1 kg"

    offer(weigh)
    run = clerk.run(calls(call("a", "weigh", line={"x": 1}), call("b", "weigh", line={}, x=1)), says("done"))
    assert clerk.execution(run, "a").reason == "invalid_arguments"
    assert clerk.execution(run, "b").result_status == "ok"


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ({}, ["extra"]),
        ({"additionalProperties": False}, ["extra"]),
        ({"additionalProperties": True}, []),
        ({"additionalProperties": {"type": "integer"}}, []),
        ({"patternProperties": {"^b": {}}}, []),
        ({"allOf": [{"properties": {"b": {}}}]}, []),
    ],
)
def test_a_schema_that_says_nothing_of_other_arguments_takes_none(more, kinds):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, **more}
    assert [problem.kind for problem in check_arguments(schema, {"a": 1, "b": 2})] == kinds


@pytest.mark.parametrize("text", ["false", "true", "no", "0", ""])
def test_a_word_is_neither_true_nor_false_whatever_it_says(text):
    schema = {"type": "object", "properties": {"b": {"type": "boolean"}}}
    assert [problem.field for problem in check_arguments(schema, {"b": text})] == ["b"]


@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_no_numbers_and_numbers_are_neither(value):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "b": {"type": "boolean"}}}
    assert check_arguments(schema, {"n": value})
    assert check_arguments(schema, {"b": int(value)})
    assert not check_arguments(schema, {"n": int(value), "b": value})
