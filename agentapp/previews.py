"""Dry runs: what a call would change, looked up before people decide and compared with what it did change.

A dry run is evidence. It decides nothing, and a failed one stops nothing: the card says why there is none.
"""

from typing import Any

from agentapp.deadline import DeadlineExceeded, within
from agentapp.models import Tool, ToolExecution
from agentapp.read_only import TriedToWrite, reading
from agentapp.tools import base
from agentapp.tools.sources import implementation_of
from approvals.digest import canonical, load, storable_json
from approvals.masking import blotted_within, secret_texts

PREVIEW_SECONDS = 5
MAX_LINES = 40
MAX_TEXT = 300
AS_PREDICTED, DRIFTED, NOT_MEASURED = "as_predicted", "drifted", "not_measured"
_SCALAR = str | int | float | bool | None


class Unusable(ValueError):
    """What a tool returned is not a valid dry run or outcome."""


def take(tool: Tool, arguments: dict[str, Any]) -> str:
    """What a call would change, as canonical text: {"lines": [...]}, or {"unavailable": why there are none}.

    Empty when the tool declares no dry run.
    """
    implementation = implementation_of(tool) if tool.takes_preview else None
    if implementation is None or implementation.preview is None:
        return ""
    try:
        if implementation.version != tool.version:
            raise Unusable("the code here is another version of the tool")
        return canonical({"lines": _lines(look(implementation, implementation.preview, arguments), tool, arguments)})
    except Exception as error:  # a tool's own code may fail in any way
        return canonical({"unavailable": _why(error, tool, arguments)})


def compared(tool: Tool, execution: ToolExecution, foreseen_text: str, result: Any) -> dict[str, Any] | None:
    """What was predicted for a call that took effect, next to what is true now: {"lines", "unavailable"}.

    A line is as predicted, drifted or not measured; a line that was not predicted has drifted. None: nothing was
    predicted, or the tool reports no outcome.
    """
    implementation = implementation_of(tool)
    foreseen = load(foreseen_text).get("lines") if foreseen_text else None
    if foreseen is None or implementation is None or implementation.outcome is None:
        return None
    arguments = load(execution.executed_text)
    try:
        found = look(implementation, implementation.outcome, arguments, result=result)
        actual = _outcome(found, tool, arguments)
    except Exception as error:  # as above; the call is done, and this changes nothing about it
        return {"lines": [_beside(line, {}) for line in foreseen], "unavailable": _why(error, tool, arguments)}
    lines = [_beside(line, actual) for line in foreseen]
    names = {line["name"] for line in foreseen}
    lines += [{"name": n, "actual": value, "state": DRIFTED} for n, value in actual.items() if n not in names]
    return {"lines": lines, "unavailable": ""}


def drifted(comparison: dict[str, Any]) -> list[str]:
    """The names of the values that came out differently from the prediction."""
    return [line["name"] for line in comparison["lines"] if line["state"] == DRIFTED]


def is_as_predicted(comparison: dict[str, Any]) -> bool:
    return all(line["state"] == AS_PREDICTED for line in comparison["lines"])


def look(implementation: base.Tool, function: Any, arguments: dict[str, Any], **more: Any) -> Any:
    """What a tool's side function returns, run in its own thread with a read-only connection."""
    return within(PREVIEW_SECONDS, _reading, implementation, function, arguments, more)


def _reading(implementation: base.Tool, function: Any, arguments: dict[str, Any], more: dict[str, Any]) -> Any:
    return reading(implementation.says, function, arguments, seconds=PREVIEW_SECONDS, **more)


def _beside(line: dict[str, Any], actual: dict[str, Any]) -> dict[str, Any]:
    name, after = line["name"], line["after"]
    row = {"name": name, "predicted": after, **({"before": line["before"]} if "before" in line else {})}
    if name not in actual:
        return {**row, "state": NOT_MEASURED}
    same = canonical(actual[name]) == canonical(after)
    return {**row, "actual": actual[name], "state": AS_PREDICTED if same else DRIFTED}


def _lines(found: Any, tool: Tool, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(_is_line(line) for line in found):
        raise Unusable("it is not a list of {name, before, after} with plain values")
    names = [line["name"] for line in found]
    if len(set(names)) != len(names):
        raise Unusable("two of its lines have the same name")
    if len(found) > MAX_LINES:
        raise Unusable(f"it has more than {MAX_LINES} lines; give totals instead")
    secrets = secret_texts(arguments, tool.secret_fields)
    return [
        {key: _shown(line[key], secrets) for key in ("name", "before", "after") if key in line}
        for line in found
        if line["name"] not in tool.secret_fields
    ]


def _is_line(line: Any) -> bool:
    if not isinstance(line, dict) or not {"name", "after"} <= line.keys() <= {"name", "before", "after"}:
        return False
    named = isinstance(line["name"], str) and bool(line["name"].strip())
    return named and all(isinstance(value, _SCALAR) for value in line.values())


def _outcome(found: Any, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(found, dict) or not all(isinstance(value, _SCALAR) for value in found.values()):
        raise Unusable("it is not an object of plain values")
    if len(found) > 2 * MAX_LINES:
        raise Unusable("it has too many values")
    secrets = secret_texts(arguments, tool.secret_fields)
    return {
        str(_shown(name, secrets)): _shown(value, secrets)
        for name, value in found.items()
        if name not in tool.secret_fields
    }


def _shown(value: Any, secrets: set[str]) -> Any:
    text = blotted_within(storable_json(value), secrets)
    if not isinstance(text, str):
        return text
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _why(error: Exception, tool: Tool, arguments: dict[str, Any]) -> str:
    if isinstance(error, DeadlineExceeded):
        return f"no answer in {PREVIEW_SECONDS} s"
    if isinstance(error, TriedToWrite):
        return "it tried to write, which a dry run may not do"
    words = str(error) if isinstance(error, Unusable | base.ToolError) else f"{type(error).__name__}: {error}"
    return str(_shown(words, secret_texts(arguments, tool.secret_fields)))
