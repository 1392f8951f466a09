"""The decision in a text: found, checked, and its arguments normalised."""

import json
import time
from typing import Any

import pytest

from agentapp.drivers.react_decision import Decision, NoDecision, normalised, read_decision
from agentapp.messages import ToolSpec

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer"},
            "unit": {"type": "string", "default": "pieces"},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
PING = ToolSpec("ping", "", {"type": "object", "properties": {}})
CALL = {"thought": "Sum.", "type": "call_tool", "tool": "add", "args": {"a": 2, "b": 3}}


def read(decision: Any, choice: str = "auto") -> Decision:
    text = decision if isinstance(decision, str) else json.dumps(decision)
    return read_decision(text, (ADD, PING), choice)


def refused(decision: Any, choice: str = "auto") -> tuple[str, str]:
    with pytest.raises(NoDecision) as caught:
        read(decision, choice)
    return caught.value.reason, str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CALL),
        f"\n  {json.dumps(CALL)}  \n",
        f"```json\n{json.dumps(CALL, indent=2)}\n```",
        f"```json \r\n \n\n{json.dumps(CALL)}\n\n```",
        f"I think {{so}}. Let me add: {json.dumps(CALL)} That is all.",
        f'Given {{"a": 2}} I decide {json.dumps(CALL)}',
        # What a model makes up after its first decision does not count.
        json.dumps(CALL) + '\nObservation: 5\n{"type": "final_answer", "answer": "5"}',
    ],
)
def test_a_decision_is_found_wherever_it_stands(text: str) -> None:
    assert read(text) == Decision("call_tool", "Sum.", "add", {"unit": "pieces", "a": 2, "b": 3})


@pytest.mark.parametrize("filler", ["\n", " \n", " ", "a", "```", "```\n "])
def test_what_a_reply_that_runs_away_takes_grows_as_its_length_does(filler: str) -> None:
    began = time.thread_time()
    refused("```json" + (filler * 20_000)[:20_000])
    assert time.thread_time() - began < 0.5


def test_a_final_answer_is_its_text() -> None:
    found = read({"thought": "Known.", "type": "final_answer", "answer": "Five."})
    assert found == Decision("final_answer", "Known.", answer="Five.")


def test_an_answer_that_is_data_becomes_its_json() -> None:
    assert read({"type": "final_answer", "answer": {"Größe": 5}}).answer == '{"Größe": 5}'


@pytest.mark.parametrize("text", ["", "Hello.", "{bad json", '{"type": ', "[1, 2]", "{}{}", '{"a": NaN}', "{" * 500])
def test_a_text_without_a_decision_says_which_there_are(text: str) -> None:
    reason, message = refused(text)
    assert reason == "decision_extraction"
    assert "call_tool or final_answer" in message


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ({"type": "think"}, "Decision type must be call_tool or final_answer."),
        ({"tool": "add"}, "Decision type must be call_tool or final_answer."),
        ({"type": ["call_tool"]}, "Decision type must be call_tool or final_answer."),
        ({**CALL, "tool": " "}, "Tool name is required when type=call_tool."),
        ({**CALL, "tool": None}, "Tool name is required when type=call_tool."),
        ({**CALL, "tool": "shell"}, "Requested tool is not available. Available tools: add, ping."),
        ({**CALL, "args": [1, 2]}, 'Arguments must be a JSON object, as in {"name": "value"}.'),
        ({**CALL, "args": '{"a": 2}'}, 'Arguments must be a JSON object, as in {"name": "value"}.'),
        ({**CALL, "args": None}, "Arguments are required when type=call_tool."),
        ({**CALL, "args": {"a": 2}}, "Required arguments are missing: b."),
        ({**CALL, "args": {"a": None, "c": 1}}, "Required arguments are missing: a, b."),
        ({"type": "final_answer"}, "Answer is required when type=final_answer."),
        ({"type": "final_answer", "answer": "  "}, "Answer is required when type=final_answer."),
    ],
)
def test_a_decision_that_cannot_be_followed_says_why(decision: dict[str, Any], message: str) -> None:
    assert refused(decision) == ("decision_validation", message)


def test_a_tool_that_takes_nothing_is_called_without_arguments() -> None:
    assert read({"type": "call_tool", "tool": "ping"}).arguments == {}


@pytest.mark.parametrize(
    ("choice", "decision"),
    [
        ("required", {"type": "final_answer", "answer": "5"}),
        ("add", {"type": "final_answer", "answer": "5"}),
        ("ping", CALL),
        ("none", CALL),
    ],
)
def test_a_decision_against_the_choice_of_tools_is_not_followed(choice: str, decision: dict[str, Any]) -> None:
    assert refused(decision, choice)[0] == "decision_validation"


def test_a_forced_choice_without_a_tool_lets_the_model_answer() -> None:
    found = read_decision('{"type": "final_answer", "answer": "5"}', (), "required")
    assert found.answer == "5"


def test_unknown_arguments_and_nulls_are_dropped_and_defaults_filled_in() -> None:
    given = {"a": 1, "b": None, "planted": True}
    assert normalised(given, ADD.input_schema) == {"a": 1, "unit": "pieces"}
    assert given == {"a": 1, "b": None, "planted": True}


def test_a_tool_that_takes_any_argument_gets_them() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}
    assert normalised({"colour": "red"}, schema) == {"colour": "red"}


def test_a_null_that_must_be_said_stays() -> None:
    properties = {"until": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    schema = {"type": "object", "properties": properties, "required": ["until"]}
    assert normalised({"until": None}, schema) == {"until": None}
