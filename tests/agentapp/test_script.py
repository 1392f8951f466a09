"""What is wrong with a script, in words and with its place."""

from typing import Any

import pytest

from agentapp.script import ScriptError, check_script


@pytest.mark.parametrize(
    ("script", "field", "sentence"),
    [
        ([], "script", "The value has less than 1 item."),
        ({}, "script", 'The value is not of type "array".'),
        ([{"txt": "x"}], "script/0/txt", "txt is not part of a script."),
        ([{"text": "x"}, {"text": 3}], "script/1/text", 'the value is not of type "string".'),
        ([{"tool_calls": [{"id": "1", "nam": "pay"}]}], "script/0/tool_calls/0/name", "name is missing."),
    ],
)
def test_a_wrong_script_is_told_with_its_first_place(script: Any, field: str, sentence: str) -> None:
    with pytest.raises(ScriptError) as found:
        check_script(script)
    assert (found.value.field, str(found.value)) == (field, f"{field}: {sentence}")
