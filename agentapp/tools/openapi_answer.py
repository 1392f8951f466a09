"""A server's answer → the envelope of the call's result. Its text is data from outside, whatever it says."""

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any

from agentapp.messages import ResultStatus, ToolResult
from agentapp.reasons import Reason
from agentapp.tools.credentials import redacted
from agentapp.tools.results import MAX_RESULT_CHARS

# How many bytes of an answer are read. Less is kept.
MAX_ANSWER_BYTES = 4 * MAX_RESULT_CHARS
# How much is kept of what a server says about an error.
_SAID_CHARS = 4_000
_HEADER_CHARS = 500
_TEXT = re.compile(r"text/|application/(xml|javascript|yaml|x-yaml|x-ndjson|x-www-form-urlencoded)\b|.*\+(xml|yaml)$")
_NOTHING_SENT_TWICE = "It was not sent again."


@dataclass(frozen=True)
class Answer:
    """What came back. `complete` is False if the answer was longer than what is read."""

    status: int
    headers: dict[str, str]
    """By lower-case names."""
    content: bytes
    complete: bool = True
    secrets: Collection[str] = field(default=(), repr=False)
    """Removed before the text is cut: part of a secret would not be recognised."""

    @property
    def media(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        said = Message()
        said["Content-Type"] = self.headers.get("content-type", "text/plain")
        try:
            return self.content.decode(str(said.get_content_charset() or "utf-8"), "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    @property
    def start(self) -> str:
        return str(redacted(self.text.strip(), self.secrets))[:_SAID_CHARS]

    def header(self, name: str) -> str:
        return str(redacted(self.headers.get(name, ""), self.secrets))[:_HEADER_CHARS]


def result_of(answer: Answer, *, writes: bool, now: datetime | None = None) -> ToolResult:
    """The envelope of an answer. `writes`: the call changes something, so without certainty it may have happened."""
    status = answer.status
    if 200 <= status < 300:
        return _of_success(answer, writes=writes)
    if 300 <= status < 400:
        return _of_redirect(answer, writes=writes)
    # A proxy also answers 503 for a server that failed in the middle of a call, but then gives no Retry-After.
    if status in (408, 429) or (status == 503 and (not writes or answer.headers.get("retry-after"))):
        message = f"The server cannot do it now ({status}) and did nothing."
        wait = retry_after(answer.headers.get("retry-after", ""), now or datetime.now(UTC))
        return _failure("retryable_error", answer, message, Reason.TOOL_FAILURE, retry_after=wait)
    if status in (401, 403):
        message = f"The server did not let us in ({status}) and did nothing. A person must check the credentials."
        return _failure("fatal_error", answer, message, Reason.TOOL_FAILURE)
    if status < 500:
        return _of_refusal(answer)
    if status in (501, 505):
        return _failure("fatal_error", answer, f"The server does not support that ({status}).", Reason.TOOL_FAILURE)
    if writes:
        message = f"The server failed ({status}): it may have done it."
        return _failure("fatal_error", answer, message, Reason.OUTCOME_UNKNOWN)
    message = f"The server failed ({status})."
    wait = retry_after(answer.headers.get("retry-after", ""), now or datetime.now(UTC))
    return _failure("retryable_error", answer, message, Reason.TOOL_FAILURE, retry_after=wait)


def retry_after(said: str, now: datetime) -> float | None:
    """The seconds that a server asks us to wait, given as a number or as a date."""
    said = said.strip()
    if said.isascii() and said.isdecimal():
        return float(said[:10])
    try:
        moment = parsedate_to_datetime(said)
    except (TypeError, ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, math.ceil((moment - now).total_seconds()))


def _of_success(answer: Answer, *, writes: bool) -> ToolResult:
    metadata = _facts(answer)
    encoding = answer.headers.get("content-encoding", "identity").lower()
    if not answer.complete:
        start = answer.start if _is_text(answer.media) and encoding == "identity" else None
        message = f"The answer is longer than {MAX_ANSWER_BYTES} bytes and was not read to the end."
        if writes:  # it is done, however long the answer is
            return ToolResult("ok", start, message, Reason.RESULT_TOO_LARGE, metadata)
        return ToolResult("fatal_error", start, f"{message} Ask for less.", Reason.RESULT_TOO_LARGE, metadata)
    if encoding != "identity":
        message = f"The server compressed its answer ({encoding[:20]}) although it was asked not to, so it is not read."
        return ToolResult("fatal_error", None, message, Reason.TOOL_RESULT_INVALID, metadata)
    if not answer.content:
        return ToolResult(message=f"Done: the server answered {answer.status} and nothing else.", metadata=metadata)
    if _is_json(answer.media):
        try:
            return ToolResult(data=_parsed(answer.text), metadata=metadata)
        except (ValueError, RecursionError):
            message = "The server said that its answer is JSON, but it is not JSON."
            return ToolResult("fatal_error", answer.start, message, Reason.TOOL_RESULT_INVALID, metadata)
    if _is_text(answer.media):
        return ToolResult(data=answer.text, metadata=metadata)
    what = f"{len(answer.content)} bytes of {answer.media or 'an unnamed type'}"
    data = {"content_type": answer.media, "bytes": len(answer.content)}
    return ToolResult(data=data, message=f"The answer is {what}, which is not shown.", metadata=metadata)


def _of_redirect(answer: Answer, *, writes: bool) -> ToolResult:
    """A redirect that was not followed: because the call sends something, or because there were too many."""
    where = answer.header("location")
    if answer.status == 303:  # it was done; the result is elsewhere
        return ToolResult(data={"see": where}, message="Done: the server says where to find the result.",
                          metadata=_facts(answer))  # fmt: skip
    message = f"The server redirects us ({answer.status}). {_NOTHING_SENT_TWICE}"
    unsaid = writes and answer.status in (300, 301, 302)
    reason = Reason.OUTCOME_UNKNOWN if unsaid else Reason.TOOL_FAILURE
    return ToolResult("fatal_error", {"location": where}, message, reason, _facts(answer))


def _of_refusal(answer: Answer) -> ToolResult:
    """What is wrong with this one call. It is not a failure of the server, so no breaker counts it."""
    status = answer.status
    if status in (400, 422):
        return _failure("refused", answer, f"The server refused the arguments ({status}).", Reason.INVALID_ARGUMENTS)
    said = "has no such thing" if status in (404, 410) else "refused it"
    return _failure("refused", answer, f"The server {said} ({status}).", Reason.TOOL_FAILURE)


def _failure(
    status: ResultStatus, answer: Answer, message: str, reason: Reason, retry_after: float | None = None
) -> ToolResult:
    said = _said(answer)
    if said and (status == "refused" or reason == Reason.OUTCOME_UNKNOWN):
        message = f"{message} It said: {said}"
    return ToolResult(status, said or None, message, reason, _facts(answer), retry_after=retry_after)


def _said(answer: Answer) -> str:
    """What a server says about an error, if it is text."""
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        return ""
    if not (_is_json(answer.media) or _is_text(answer.media) or not answer.media):
        return ""
    return answer.start


def _facts(answer: Answer) -> dict[str, Any]:
    """What people can look up: never shown to a model."""
    kept = ("content-type", "x-request-id", "request-id", "x-github-request-id", "etag", "location")
    return {"status": answer.status, **{name: answer.header(name) for name in kept if name in answer.headers}}


def _is_json(media: str) -> bool:
    return media == "application/json" or media == "text/json" or media.endswith("+json")


def _is_text(media: str) -> bool:
    return bool(_TEXT.match(media))


def _parsed(text: str) -> Any:
    return json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
