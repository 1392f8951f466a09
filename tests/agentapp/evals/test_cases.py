"""Cases: what they may say, how mocks are abbreviated, and what is refused, with its place."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import ValidationError

from agentapp.evals import files
from agentapp.evals.cases import Kind
from agentapp.evals.files import FilesRefused
from agentapp.evals.shorthand import tool_of
from agentapp.evals.suites import read_case
from agentapp.models import EvalCase
from tests.agentapp.evals.conftest import a_case

MINIMAL = """
name: {name}
kind: positive
agent: clerk
input: Do it.
expect: {{}}
"""


def written(directory: Path, **contents: str) -> Path:
    for name, text in contents.items():
        (directory / name.replace("__", ".")).write_text(dedent(text), "utf-8")
    return directory


def refused(directory: Path) -> list[str]:
    with pytest.raises(FilesRefused) as error:
        files.read(directory)
    return [str(problem) for problem in error.value.problems]


# --- What answers the tools ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"result": 1}, {"answers": [{"sequence": [{"result": 1}]}]}),
        (
            [{"when": {"a": 1}, "result": 1}, {"error": "no"}],
            {"answers": [{"sequence": [{"result": 1}], "when": {"a": 1}}, {"sequence": [{"error": "no"}]}]},
        ),
        (
            {"sequence": [{"timeout": True}, {"result": 1}]},
            {"answers": [{"sequence": [{"timeout": True}, {"result": 1}]}]},
        ),
        (
            {"result": 1, "snapshot": {"a": 1}},
            {"answers": [{"sequence": [{"result": 1}]}], "snapshot": {"a": 1}},
        ),
        (
            {"answers": [{"result": 1}], "snapshot": [{"a": 1}, {"a": 2}]},
            {"answers": [{"sequence": [{"result": 1}]}], "snapshot": [{"a": 1}, {"a": 2}]},
        ),
    ],
)
def test_mocks_are_written_short_and_kept_at_length(said, kept):
    assert tool_of(said) == kept
    assert tool_of(kept) == kept


@pytest.mark.parametrize("said", [{"results": 1}, {"result": 1, "error": "both"}, 5, "text", {}, None, [[]]])
def test_what_is_no_mock_is_refused(said):
    with pytest.raises(ValidationError, match=r"tools\.look_up\n  Value error, an answer "):
        a_case(tools={"look_up": said})


# --- What a case may say -------------------------------------------------------------------------


def test_a_case_is_the_same_when_it_is_read_again():
    case = a_case(
        tools={"look_up": {"result": 1}},
        people=[{"decide": "reject", "message": "No."}],
        repeats={"of": 3, "needed": 2},
        expect={"tools_called": ["look_up"], "never_after": [["read_mail", "send"]], "limits": {"cost": 0.1}},
    )
    again = read_case(json.loads(json.dumps(case.document)))
    assert again == case
    assert again.digest == case.digest


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"kind": "other"}, "kind"),
        ({"name": "Two Words"}, "name"),
        ({"surprise": 1}, "surprise"),
        ({"expect": {"tool_called": ["x"]}}, "tool_called"),
        ({"expect": {"stop_reason": "because"}}, "stop_reason"),
        ({"expect": {"routing": [{"tool": "x", "verdict": "allow", "groups": ["y"]}]}}, "only a call that must ask"),
        ({"repeats": {"of": 2, "needed": 3}}, "more repeats"),
        ({"people": [{"decide": "edit"}]}, "an edit says"),
        ({"people": [{"decide": "approve", "stop_run": True}]}, "only a rejection"),
        ({"script": [{"says": 1}]}, "script/"),
        ({"script": []}, "script"),
        ({"input": ""}, "input"),
    ],
)
def test_what_a_case_may_not_say_is_refused(said, why):
    with pytest.raises(ValidationError, match=why):
        a_case(**said)


def test_the_kinds_are_those_of_the_table():
    assert {str(kind) for kind in Kind} == set(EvalCase.Kind.values)


# --- Files ---------------------------------------------------------------------------------------


def test_a_directory_is_a_suite_of_files_in_yaml_and_json_with_one_case_or_several(tmp_path):
    written(
        tmp_path,
        suite__yaml="""
            name: shop
            description: What the shop does.
            defaults:
              agent: clerk
              kind: positive
              expect: {}
            """,
        one__yaml="{name: one, input: Do it.}",
        two__json=json.dumps({"name": "two", "input": "Do it.", "agent": "other"}),
        more__yaml="""
            cases:
              - {name: three, input: Do it.}
              - {name: four, input: Do it.}
            """,
    )
    suite = files.read(tmp_path)
    assert (suite.name, suite.description) == ("shop", "What the shop does.")
    assert {case.name: case.agent for case in suite.cases} == {
        "one": "clerk", "two": "other", "three": "clerk", "four": "clerk",
    }  # fmt: skip
    assert suite.files["four"] == "more.yaml:4"


@pytest.mark.parametrize("said", ["1:30", "1:30.5", f"1{':1' * 9999}", f"1{':1' * 9999}.5", "012", "0x1F", "1_000"])
def test_numbers_that_json_has_not_are_texts(said):
    case = files.read_text(MINIMAL.format(name="x") + f"metadata: {{n: {said}}}")
    assert case.metadata == {"n": said}


@pytest.mark.parametrize("said", ["no", "NO", "yes", "on", "Off", "True", "FALSE", "Null", "NULL"])
def test_truth_values_and_nothings_that_json_has_not_are_texts(said):
    case = files.read_text(MINIMAL.format(name="x") + f"metadata: {{n: {said}, {said}: 1, is: [true, false, null, ~]}}")
    assert case.metadata == {"n": said, said: 1, "is": [True, False, None, None]}


def test_what_is_called_a_truth_value_is_refused_where_json_has_none():
    with pytest.raises(FilesRefused, match="no is taken for a bool: write it in quotes"):
        files.read_text(MINIMAL.format(name="x") + "metadata: {n: !!bool no}")


@pytest.mark.parametrize("said", ["!!int 1:30", "!!float 1:30.5", f"!!float 1{':1' * 9999}.5"])
def test_what_is_called_a_number_is_refused_where_json_has_none(said):
    with pytest.raises(FilesRefused, match=r"is taken for a (int|float): write it in quotes"):
        files.read_text(MINIMAL.format(name="x") + f"metadata: {{n: {said}}}")


@pytest.mark.parametrize(
    "said", ["1e5", "1:30", "012", "0x1F", "1_000", ".5", "-0", "1.", "yes", "NO", "~", "Null", "true", "2026-01-01"]
)
def test_a_text_that_looks_like_something_else_comes_back_as_a_text(said):
    case = a_case("x", metadata={"text": said, "numbers": [1, -2.5, 1e-7, 1e22]})
    assert files.read_text(files.written(case.document)).metadata == case.metadata


# Ten lines that expand to more than three thousand million values.
BOMB = "metadata:\n  a0: &a0 [x]\n" + "".join(
    f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 11)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{name: x", "a.yaml:1"),
        ("", "a.yaml:1: it is empty"),
        ("- 1", "a.yaml:1: a case must be an object"),
        (MINIMAL.format(name="x") + "surprise: 1", "a.yaml:7: surprise: Extra inputs are not permitted"),
        (MINIMAL.format(name="x") + "route: 5", "a.yaml:7: route: Input should be a valid string"),
        (MINIMAL.format(name="x") + "name: y", "a.yaml:7: name appears twice"),
        (
            MINIMAL.format(name="x") + "people:\n  - decide: approve\n  - decide: perhaps",
            "a.yaml:9: people.1.decide: Input should be",
        ),
        (
            MINIMAL.format(name="x") + "tools:\n  look_up: {reslt: 1}",
            "a.yaml:8: tools.look_up: an answer has exactly one of "
            "error, malformed, result, stop, timeout, unknown, but this one has reslt",
        ),
        (
            MINIMAL.format(name="x") + "tools:\n  look_up: [{error: It is gone., colour: red}]",
            "a.yaml:8: tools.look_up: colour does not go with error",
        ),
        (
            MINIMAL.format(name="x") + "tools:\n  look_up: {sequence: [{result: 1}, {error: 5}]}",
            'a.yaml:8: tools.look_up: error: the value is not of type "string"',
        ),
        (MINIMAL.format(name="x") + "metadata: {at: 2026-01-01}", "a.yaml:7: 2026-01-01 is taken for a timestamp"),
        (MINIMAL.format(name="x") + "metadata: {at: 2026-13-45}", "a.yaml:7: 2026-13-45 is taken for a timestamp"),
        (MINIMAL.format(name="x") + "metadata: {n: !!bool perhaps}", "a.yaml:7: perhaps is taken for a bool"),
        (MINIMAL.format(name="x") + "metadata: {n: !!timestamp perhaps}", "a.yaml:7: perhaps is taken for a timestamp"),
        (MINIMAL.format(name="x") + f"metadata: {{n: {'9' * 5000}}}", "a.yaml:7: 999"),
        (MINIMAL.format(name="x") + f"metadata: {{n: {'9' * 50}}}", "a.yaml:2: The value has no canonical JSON"),
        (MINIMAL.format(name="x") + "metadata: {? [a, b] : 1}", "a.yaml:7: a name must be text"),
        (
            MINIMAL.format(name="x") + 'metadata: {n: "a\\0b"}',
            "a.yaml:2: a text contains a character that cannot be stored, such as NUL",
        ),
        (MINIMAL.format(name="x") + BOMB, "a.yaml:2: it is too large with its aliases expanded"),
        (MINIMAL.format(name="x") + "metadata: &m {in: *m}", "a.yaml"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line_and_its_field(tmp_path, text, problem):
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    found = refused(tmp_path)
    assert any(problem in each for each in found), found


def test_a_file_that_is_no_text_or_too_large_is_refused_before_it_is_read(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"name: \xff")
    (tmp_path / "suite.yaml").write_bytes("name: shop".encode("utf-16"))
    with (tmp_path / "b.yaml").open("wb") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)
    assert refused(tmp_path) == [
        "suite.yaml:1: it is not UTF-8 text",
        "a.yaml:1: it is not UTF-8 text",
        f"b.yaml:1: it has more than {files.MAX_FILE_BYTES} bytes",
    ]


def test_a_suite_has_a_name_that_can_stand_in_an_address(tmp_path):
    written(tmp_path, suite__yaml="name: My suite", a__yaml=MINIMAL.format(name="x"))
    assert refused(tmp_path) == ["suite.yaml:1: name: 'My suite' is not a name of letters, digits, - and _"]


def test_a_name_that_two_files_have_is_refused(tmp_path):
    written(tmp_path, a__yaml=MINIMAL.format(name="x"), b__yaml=MINIMAL.format(name="x"))
    assert refused(tmp_path) == ["b.yaml:2: name: x is already in a.yaml:2"]


def test_every_wrong_place_is_named_at_once_and_an_empty_directory_is_no_suite(tmp_path):
    assert refused(tmp_path) == [f"{tmp_path}:1: it contains no cases"]
    written(tmp_path, suite__yaml="{nam: x}", a__yaml="{name: A}", b__yaml="{kind: x}")
    found: list[Any] = refused(tmp_path)
    assert {each.split(":")[0] for each in found} == {"suite.yaml", "a.yaml", "b.yaml"}
