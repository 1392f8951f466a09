"""From what a tool returned to the envelope of its result: as JSON, checked, and small enough to keep."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

from agentapp.messages import ResultStatus, ToolResult
from agentapp.reasons import Reason
from agentapp.tools.schema import RESULT, InvalidSchema, plain_json, problems_of
from approvals.digest import storable_json

MAX_RESULT_CHARS = 256 * 1024
"""The most that is kept of a result. The model is shown less."""
MAX_ARTIFACT_CHARS = 1024 * 1024
KEPT_CHARS = 16_000
"""How much is kept of the beginning of a result that is too large."""
MAX_RETRY_AFTER = 24 * 3600

Response = Literal["content", "content_and_artifact"]
# How a tool words an error: as it is and left to the executor, as it is, by a fixed text, or by a function.
Wording = bool | str | Callable[[Any], str]

IT_RAN = "The call ran, and its effect has happened; do not call it again to get a better result."


class ToolError(Exception):
    """A tool could not do what it was asked. The message is read by the model, so say what to do next.

    `retryable` says that the same call may work later; `refused` that the call is at fault rather than the tool, so no
    breaker counts it. A tool that raises this, or anything else, has not had its effect. If it cannot know that, it
    raises OutcomeUnknown.
    """

    def __init__(
        self, message: str = "", *, retryable: bool = False, retry_after: float | None = None, refused: bool = False
    ) -> None:
        if refused and retryable:
            raise ValueError("A refused call cannot be retryable.")
        super().__init__(message)
        self.retryable, self.retry_after, self.refused = retryable, retry_after, refused


class InvalidArguments(ToolError):
    """Arguments that fit the schema but not the tool's types. The tool was not called."""


def of_value(value: Any, response: Response = "content") -> ToolResult:
    """The envelope of what a tool returned."""
    if response == "content_and_artifact":
        if not isinstance(value, tuple) or len(value) != 2:
            message = "The tool did not return a pair of content and artifact, as it declares."
            return ToolResult("fatal_error", _json(value), message, Reason.TOOL_RESULT_INVALID)
        value, artifact = value
        result = value if isinstance(value, ToolResult) else ToolResult(data=value)
        value = replace(result, artifact=artifact)
    if not isinstance(value, ToolResult):
        return ToolResult(data=_json(value))
    if value.status not in get_args(ResultStatus):
        message = f"The tool returned a result with the unknown status {value.status!r}."
        return replace(value, status="fatal_error", data=_json(value.data), reason=Reason.TOOL_RESULT_INVALID,
                       message=message)  # fmt: skip
    return replace(
        value,
        data=_json(value.data),
        artifact=_json(value.artifact),
        metadata=_json(value.metadata),
        control=_json(value.control),
        reason=value.reason or ("" if value.status == "ok" else Reason.TOOL_FAILURE),
        retry_after=_seconds(value.retry_after),
    )


def of_error(error: ToolError, message: str | None = None) -> ToolResult:
    """The envelope of an error that a tool raised on purpose: it has not had its effect."""
    message = str(error) if message is None else message
    if isinstance(error, InvalidArguments):
        return ToolResult("refused", message=message, reason=Reason.INVALID_ARGUMENTS)
    if error.refused:
        return ToolResult("refused", message=message, reason=Reason.TOOL_FAILURE)
    status: ResultStatus = "retryable_error" if error.retryable else "fatal_error"
    return ToolResult(status, message=message, reason=Reason.TOOL_FAILURE, retry_after=_seconds(error.retry_after))


def worded(wording: Wording, error: Exception, fallback: str) -> str:
    """An error's text, as the tool chose it. If the tool's function for this fails, the text stays as it was."""
    if isinstance(wording, str):
        return wording
    if callable(wording):
        try:
            return str(wording(error))
        except Exception:  # a tool's own code may fail in any way; the first failure is the one that counts
            return str(error) or fallback
    return fallback


def checked(result: ToolResult, output_schema: dict[str, Any] | None, *, acted: bool) -> ToolResult:
    """A result checked against its tool's output schema and limited to the size that is kept.

    `acted`: the call was a write. Its effect has happened, so the result never suggests otherwise: one
    that does not fit is kept and says that the call ran, and one that is too large stays ok.
    """
    size = len(json.dumps(storable_json(result.data), ensure_ascii=False))
    # A result that is not kept whole is not checked: the tool's schema does not describe its size.
    if result.status == "ok" and output_schema is not None and size <= MAX_RESULT_CHARS:
        problem = _misfit(output_schema, result.data)
        if problem:
            message = f"The result does not fit the tool's output schema: {problem}"
            result = replace(result, status="fatal_error", reason=Reason.TOOL_RESULT_INVALID, message=message)
    if acted and result.reason == Reason.TOOL_RESULT_INVALID:
        result = replace(result, message=f"{result.message} {IT_RAN}")
    if size <= MAX_RESULT_CHARS:
        return result
    text = result.data if isinstance(result.data, str) else json.dumps(storable_json(result.data), ensure_ascii=False)
    start = {"truncated": True, "characters": size, "start": text[:KEPT_CHARS]}
    kept = f"The result has {size} characters; its first {KEPT_CHARS} were kept."
    if acted or result.status != "ok":
        note = f"{result.message} {kept} {IT_RAN if acted and result.status == 'ok' else ''}".strip()
        return replace(result, data=start, message=note, reason=result.reason or Reason.RESULT_TOO_LARGE)
    message = f"{kept} Ask for less at a time."
    return replace(result, status="fatal_error", data=start, message=message, reason=Reason.RESULT_TOO_LARGE)


def _misfit(schema: dict[str, Any], data: Any) -> str:
    try:
        found = problems_of(schema, data, RESULT)
    except InvalidSchema as error:
        return str(error)
    return " ".join(problem.sentence for problem in found[:3])


def _json(value: Any) -> Any:
    """Any value as JSON. What a tool returned is on record, whatever it is."""
    try:
        return plain_json(value)
    except (ValueError, RecursionError, TypeError) as error:
        return f"{type(value).__name__} that cannot be written as JSON: {str(error)[:200]}"


def _seconds(value: float | None) -> float | None:
    """A pause in seconds that can be waited for, or None."""
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return float(min(value, MAX_RETRY_AFTER))


def kept(value: Any, limit: int) -> str:
    """A value as JSON text, cut to what is kept: what happened must be on record, whatever the tool returned."""
    try:
        text = json.dumps(storable_json(value), ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        text = json.dumps({"unreadable": str(error)[:200]})
    if len(text) <= limit:
        return text
    return json.dumps({"truncated": True, "characters": len(text), "start": text[:KEPT_CHARS]}, ensure_ascii=False)
