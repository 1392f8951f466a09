"""What code makes of a model's answer about a tool: unknown, missing, optional, impossible values, repeats."""

from datetime import date, datetime, time, timedelta
from typing import Any

import pytest

from agentapp.guidance import prompts
from agentapp.guidance.batching import Batch, Candidate
from agentapp.guidance.evaluation import MISSING, Checked, Guess, Verdict, check, mode_of
from agentapp.guidance.insights import to_ask_for
from agentapp.guidance.known import Done, ToolFacts
from agentapp.tools.base import tool
from agentapp.tools.schema import check_arguments
from approvals.masking import MASK

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "Who is paid."},
        "currency": {"$ref": "#/$defs/Currency"},
        "tags": {"type": "array", "items": {"enum": ["gift", "rent"]}},
        "memo": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "fast": {"type": "boolean", "default": False},
    },
    "required": ["to", "currency"],
    "$defs": {"Currency": {"enum": ["EUR", "USD"]}},
    "additionalProperties": False,
}
WHOLE = {"to": "ana", "currency": "EUR"}


def facts(**more: Any) -> ToolFacts:
    return ToolFacts("transfer", input_schema=more.pop("input_schema", SCHEMA), **more)


def checked(
    *calls: Any, made: tuple[Any, ...] = (), choices: Any = None, state: Any = "needs_to_run", **more: Any
) -> Checked:
    tool = facts(**more)
    before = [Done(1, "transfer", arguments) for arguments in made]
    return check(Candidate(tool), Verdict(state, "Because.", calls), before, choices or {})


def lacking(found: Checked, kind: str = "missing") -> list[str]:
    return [insight.parameter for insight in found.insights if insight.kind == kind]


def test_a_whole_call_is_made_and_what_is_optional_and_unknown_is_null_or_left_out() -> None:
    assert checked(WHOLE).calls == ({**WHOLE, "memo": None},)
    assert checked({**WHOLE, "memo": MISSING, "fast": MISSING, "tags": None}).calls == ({**WHOLE, "memo": None},)
    assert checked({**WHOLE, "memo": "rent", "fast": True}).calls == ({**WHOLE, "memo": "rent", "fast": True},)


@pytest.mark.parametrize("given", [{}, {"limit": MISSING}, {"limit": Guess(5, "missing")}])
def test_what_is_unknown_is_left_to_a_default_that_is_not_null(given: dict[str, Any]) -> None:
    number: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"limit": number | {"default": 20}, "page": number}, "required": []}
    assert checked(given, input_schema=schema).calls == ({"page": None},)
    assert checked({"limit": 20, "page": None}, made=({"page": None},), input_schema=schema).calls == ()


def test_a_null_that_a_model_means_goes_before_the_default() -> None:
    limit = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 20}
    schema = {"type": "object", "properties": {"limit": limit}, "required": []}
    assert checked({"limit": None}, input_schema=schema).calls == ({"limit": None},)


def test_arguments_that_the_tool_does_not_have_are_dropped() -> None:
    assert checked({**WHOLE, "sudo": True}).calls == ({**WHOLE, "memo": None},)


@pytest.mark.parametrize("given", [{"currency": "EUR"}, {**WHOLE, "to": MISSING}, {**WHOLE, "to": None}])
def test_a_call_that_lacks_what_is_required_is_not_made(given: dict[str, Any]) -> None:
    found = checked(given)
    assert (found.state, found.calls, lacking(found)) == ("cannot_run", (), ["to"])
    assert found.insights[0].description == "Who is paid."


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({**WHOLE, "currency": "DM"}, ["currency"]),
        ({**WHOLE, "tags": ["gift", "bribe"]}, ["tags"]),
        ({**WHOLE, "to": Guess("", "invalid")}, ["to"]),
    ],
)
def test_a_value_that_cannot_be_chosen_is_invalid_also_in_a_list(given: dict[str, Any], wrong: list[str]) -> None:
    found = checked(given)
    assert (found.state, found.calls, lacking(found, "invalid")) == ("cannot_run", (), wrong)


def test_every_value_of_a_list_that_can_be_chosen_is_taken() -> None:
    assert checked({**WHOLE, "tags": ["rent", "gift"]}).calls[0]["tags"] == ["rent", "gift"]


def test_a_secret_value_is_masked_in_what_is_kept() -> None:
    found = checked({**WHOLE, "currency": "4242"}, secret_fields=("currency",))
    assert (found.insights[0].invalid_value, found.insights[0].choices) == (MASK, None)


def test_true_is_not_one_and_one_is_not_true() -> None:
    schema = {"type": "object", "properties": {"level": {"enum": [1, 2]}}, "required": ["level"]}
    assert lacking(checked({"level": True}, input_schema=schema), "invalid") == ["level"]
    assert checked({"level": 1}, input_schema=schema).calls == ({"level": 1},)


def test_choices_of_now_go_before_those_of_the_schema_and_none_at_all_lets_nothing_through() -> None:
    own = {("transfer", "to"): ["savings", "daily"]}
    assert lacking(checked(WHOLE, choices=own), "invalid") == ["to"]
    assert checked({**WHOLE, "to": "daily"}, choices=own).state == "needs_to_run"
    found = checked(WHOLE, choices={("transfer", "to"): []})
    assert (found.state, found.insights[0].choices) == ("cannot_run", ())


# --- Calls that were made ----------------------------------------------------------------------


def test_a_call_is_held_against_every_call_that_was_made_and_not_the_first_alone() -> None:
    other = {**WHOLE, "to": "bob"}
    found = checked(WHOLE, made=(other, {**WHOLE, "memo": None}))
    assert (found.state, found.calls) == ("data_already_in_context", ())
    assert found.why == "Because. The same call has been made in this run."


def test_a_call_with_other_arguments_is_made_again() -> None:
    assert checked(WHOLE, made=({**WHOLE, "to": "bob"},)).state == "needs_to_run"


def test_a_default_that_is_spelled_out_makes_no_other_call() -> None:
    assert checked({**WHOLE, "fast": False}, made=({**WHOLE, "memo": None},)).calls == ()


def test_a_call_that_may_be_made_again_does_not_count_as_made() -> None:
    again = [Done(1, "transfer", WHOLE, stands=False)]
    assert check(Candidate(facts()), Verdict("needs_to_run", "", (WHOLE,)), again, {}).state == "needs_to_run"
    wanted = Batch(1, (Candidate(ToolFacts("drinks", consequential=False), ("thirst",)),))
    assert mode_of(wanted, [Done(1, "drinks", {}, stands=False)]) == "auto_approved"


def test_of_several_calls_the_whole_ones_are_made_and_each_once() -> None:
    found = checked(WHOLE, {"to": "bob"}, WHOLE, {**WHOLE, "to": "cy"})
    assert [call["to"] for call in found.calls] == ["ana", "cy"]
    assert (found.state, lacking(found)) == ("needs_to_run", ["currency"])


# --- What the model says -----------------------------------------------------------------------


@pytest.mark.parametrize("state", ["not_applicable", "data_already_in_context"])
def test_a_word_against_running_counts_whatever_calls_stand_beside_it(state: str) -> None:
    found = checked(WHOLE, state=state)
    assert (found.state, found.calls, found.insights) == (state, (), ())


def test_a_tool_that_cannot_run_is_not_run_and_says_what_is_missing() -> None:
    found = checked({"to": "ana"}, state="cannot_run")
    assert (found.state, found.calls, lacking(found)) == ("cannot_run", (), ["currency"])
    assert lacking(checked(state="cannot_run")) == ["to", "currency"]


# --- How a tool is looked at -------------------------------------------------------------------


def test_a_read_is_looked_at_shortly_and_a_write_argument_by_argument() -> None:
    assert mode_of(Batch(1, (Candidate(facts(consequential=False)),)), []) == "short"
    assert mode_of(Batch(1, (Candidate(facts(consequential=True)),)), []) == "full"


def test_a_read_without_parameters_is_approved_until_it_was_called() -> None:
    tool = ToolFacts("drinks", consequential=False)
    wanted = Batch(1, (Candidate(tool, ("thirst",)),))
    assert mode_of(wanted, []) == "auto_approved"
    assert mode_of(wanted, [Done(1, "drinks", {})]) == "short"
    assert mode_of(Batch(1, (Candidate(tool),)), []) == "short", "no guideline asks for it"
    assert mode_of(Batch(1, (Candidate(tool), Candidate(facts(consequential=False)))), []) == "short"
    assert mode_of(Batch(1, (Candidate(ToolFacts("restart", consequential=True)),)), []) == "full"


# --- What is asked for -------------------------------------------------------------------------


def person(**parameters: dict[str, Any]) -> Checked:
    names = ["full_name", "city", "street", "house_number", "card", "nickname"]
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": names[:-1],
    }
    return checked({}, input_schema=schema, parameters={"card": {"hidden": True}, **parameters})


def test_all_that_is_missing_is_kept_and_what_is_hidden_is_marked() -> None:
    found = person()
    shown = [insight.parameter for insight in found.insights if not insight.hidden]
    assert shown == ["full_name", "city", "street", "house_number"]
    assert [insight.parameter for insight in found.insights if insight.hidden] == ["card"]


def test_only_the_group_that_comes_first_is_asked_for() -> None:
    first, second = {"precedence": 1}, {"precedence": 2}
    found = person(full_name=first, city=first, street=second)
    assert [insight.parameter for insight in to_ask_for(found.insights)] == ["full_name", "city"]


def test_a_hidden_parameter_of_the_first_group_does_not_keep_the_others_from_being_asked_for() -> None:
    found = person(card={"hidden": True, "precedence": 0}, city={"precedence": 1, "display_name": "your city"})
    assert [insight.display_name for insight in to_ask_for(found.insights)] == ["your city"]


def test_without_precedence_all_is_asked_for_at_once_by_the_names_that_are_shown() -> None:
    found = person(house_number={"display_name": "the number of the house"})
    names = [insight.display_name for insight in to_ask_for(found.insights)]
    assert names == ["full name", "city", "street", "the number of the house"]


# --- Schemas of others -------------------------------------------------------------------------


def test_a_value_of_which_a_part_is_not_known_is_missing() -> None:
    shape = {"street": {"type": "string"}, "floors": {"type": "array"}}
    schema = {"type": "object", "properties": {"address": {"type": "object", "properties": shape}}}
    schema["required"] = ["address"]
    assert lacking(checked({"address": {"street": MISSING, "floors": []}}, input_schema=schema)) == ["address"]
    assert lacking(checked({"address": {"street": "a", "floors": [1, MISSING]}}, input_schema=schema)) == ["address"]
    assert checked({"address": {"street": "a", "floors": [1]}}, input_schema=schema).state == "needs_to_run"


@pytest.mark.parametrize("described", [True, {}, {"description": ""}])
def test_a_parameter_that_a_schema_hardly_describes_can_be_missing(described: Any) -> None:
    schema = {"type": "object", "properties": {"what": described}, "required": ["what"]}
    assert lacking(checked({}, input_schema=schema)) == ["what"]


def test_numbers_that_no_call_can_carry_do_not_break_a_schema() -> None:
    level = {"enum": [2**60, 1], "default": 2**60}
    schema = {"type": "object", "properties": {"level": level}, "required": []}
    assert checked({"level": 1}, input_schema=schema).state == "needs_to_run"
    assert lacking(checked({"level": 2}, input_schema=schema), "invalid") == ["level"]
    assert checked({}, input_schema=schema).state == "needs_to_run"


def test_of_what_is_missing_and_what_is_impossible_together_the_first_group_is_asked_for() -> None:
    parameters = {"currency": {"precedence": 1}, "to": {"precedence": 2}}
    found = checked({"currency": "DM"}, parameters=parameters)
    assert {insight.kind for insight in found.insights} == {"missing", "invalid"}
    assert [insight.parameter for insight in to_ask_for(found.insights)] == ["currency"]


@pytest.mark.parametrize(
    ("kind", "example"),
    [
        (datetime, "2026-01-31T14:05:00Z"),
        (date, "2026-01-31"),
        (time, "14:05:00Z"),
        (timedelta, "PT1H30M"),
    ],
)
def test_dates_and_times_are_asked_for_in_a_form_that_a_tool_takes(kind, example):
    def book_at(at):
        """Book something."""
        return str(at)

    book_at.__annotations__["at"] = kind
    book = tool(effect="read")(book_at)
    assert example in prompts._EVALUATE
    assert check_arguments(book.input_schema, {"at": example}) == []
    assert book.misfit({"at": example}) == ""
