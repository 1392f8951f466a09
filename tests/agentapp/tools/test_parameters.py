"""What a tool may say of its parameters beyond their schema."""

from typing import Any

import pytest

from agentapp.tools.base import tool
from agentapp.tools.parameters import choices_of, takes_null

SCHEMA: dict[str, Any] = {
    "properties": {
        "plain": {"type": "string"},
        "named": {"enum": ["a", "b"]},
        "only": {"const": "a"},
        "listed": {"type": "array", "items": {"$ref": "#/$defs/Kind"}},
        "maybe": {"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}]},
        "mixed": {"anyOf": [{"enum": ["a"]}, {"type": "integer"}]},
        "either": {"type": ["string", "null"]},
        "circle": {"$ref": "#/$defs/Circle"},
        "elsewhere": {"$ref": "https://example.test/kind"},
    },
    "$defs": {"Kind": {"enum": ["x", "y"]}, "Circle": {"$ref": "#/$defs/Circle"}},
}


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("plain", None),
        ("named", ["a", "b"]),
        ("only", ["a"]),
        ("listed", ["x", "y"]),
        ("maybe", ["x", "y"]),
        ("mixed", None),
        ("circle", None),
        ("elsewhere", None),
        ("unknown", None),
    ],
)
def test_the_values_a_schema_allows_are_found_through_lists_references_and_alternatives(
    name: str, choices: Any
) -> None:
    assert choices_of(SCHEMA, name) == choices


def test_a_parameter_that_may_be_null_is_known() -> None:
    assert [name for name in SCHEMA["properties"] if takes_null(SCHEMA, name)] == ["maybe", "either"]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"sum": {}}, "has no parameter 'sum'"),
        ({"amount": {"colour": "red"}}, "colour is not an argument"),
        ({"amount": {"source": "guess"}}, "The parameter 'amount' of the tool 'pay': source"),
    ],
)
def test_what_means_nothing_is_refused_when_the_tool_is_made(parameters: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):

        @tool(parameters=parameters)
        def pay(amount: float) -> None:
            """Pay."""


def test_a_tool_that_says_nothing_of_its_parameters_keeps_its_version() -> None:
    def pay(amount: float) -> None:
        """Pay."""

    assert tool(pay).version == tool(parameters={}, overlap="auto")(pay).version
