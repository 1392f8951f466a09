"""What providers' errors mean, in words that are safe to show."""

import re
from collections.abc import Iterable
from typing import Any

from pydantic_ai import exceptions as problems

from agentapp.llm.bounded import Unread
from agentapp.llm.contract import ModelError

MAX_EXCERPT = 300

_KINDS: tuple[tuple[type[Exception], str, bool, str], ...] = (
    # The first match counts. Each: class, code, whether to retry, what to say.
    (problems.ModelQuotaExceededError, "quota_exceeded", False, "{model}: the account's quota or credit is used up"),
    (problems.ModelContextWindowExceededError, "context_window", False, "{model}: the conversation is too long for it"),
    (problems.ModelAuthenticationError, "authentication", False, "{model}: the provider refused our key"),
    (problems.ModelNotFoundError, "model_not_found", False, "{model}: the provider does not know this model"),
    (problems.ModelRequestRejectedError, "rejected", False, "{model}: the provider rejected the request"),
    (problems.ModelRateLimitError, "rate_limited", True, "{model}: the provider asks us to slow down"),
    (problems.ModelUnavailableError, "overloaded", True, "{model}: the provider is overloaded or unavailable"),
    (problems.ModelServerError, "server_error", True, "{model}: the provider failed"),
    (problems.ModelTimeoutError, "timeout", True, "{model}: the provider did not answer in time"),
    (problems.ModelConnectionError, "connection", True, "{model}: the connection to the provider failed"),
    (problems.ContentFilterError, "content_filter", False, "{model}: the provider's content filter withheld the reply"),
    (problems.UserError, "rejected", False, "{model}: the model cannot be asked this way"),
)
# Worth a retry, although the client library has no class for them.
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})

_BEARER = re.compile(r"(?i)\bbearer\s+[^\s\"']+|\b(?:sk|pk|rk)-[\w*.-]{8,}|\bAIza[\w-]{10,}")


def model_error(error: Exception, model: str, secrets: Iterable[str]) -> ModelError:
    """The ModelError that `error` amounts to. What the provider said is cut, cleaned and redacted."""
    unread = _unread(error)
    if unread is not None:
        return ModelError(f"{model}: {unread}.", code="invalid_reply")
    status = _status(error)
    code, retryable, sentence = _kind(error, status)
    details = sentence.format(model=model) + (f" ({status})" if status else "")
    # A provider that refuses a key may echo the key, or a part of it.
    said = "" if code == "authentication" else excerpt(_said(error), secrets)
    retry_after = getattr(error, "retry_after", None) if retryable else None
    return ModelError(
        f"{details}: {said}" if said else f"{details}.", retryable=retryable, retry_after=retry_after, code=code
    )


def _unread(error: BaseException | None) -> Unread | None:
    """The Unread behind an error, if any: clients treat whatever stops them from reading as a broken connection."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Unread):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def timed_out(model: str, seconds: float) -> ModelError:
    return ModelError(f"{model}: no whole reply within {seconds:g} seconds.", retryable=True, code="timeout")


def empty(model: str) -> ModelError:
    return ModelError(f"{model}: the reply is empty.", retryable=True, code="invalid_reply")


def broken_off(model: str) -> ModelError:
    return ModelError(f"{model}: the reply broke off.", retryable=True, code="connection")


def excerpt(text: str, secrets: Iterable[str]) -> str:
    """One short line of what a provider said, without control characters or secrets."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    text = _BEARER.sub("[redacted]", text)
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_EXCERPT else line[: MAX_EXCERPT - 1] + "…"


def _kind(error: Exception, status: int | None) -> tuple[str, bool, str]:
    for kind, code, retryable, sentence in _KINDS:
        if isinstance(error, kind):
            return code, retryable, sentence
    if status is not None and 300 <= status < 500:
        retryable = status in _RETRYABLE_STATUSES
        return (
            ("busy", True, "{model}: the provider is busy")
            if retryable
            else ("rejected", False, "{model}: the provider did not take the request")
        )
    return "invalid_reply", True, "{model}: the reply could not be read"


def _status(error: Exception) -> int | None:
    for candidate in (error, error.__cause__):
        for attribute in ("status_code", "code"):
            status = getattr(candidate, attribute, None)
            if isinstance(status, int) and status >= 300:
                return status
    return None


def _said(error: Exception) -> str:
    """The sentence in an error's body, or an empty string: HTML pages and unknown shapes are not quoted."""
    body: Any = getattr(error, "body", None)
    for _ in range(4):
        if isinstance(body, list):
            body = body[0] if body else None
        elif isinstance(body, dict):
            body = body.get("message") or body.get("error") or body.get("detail")
    return body if isinstance(body, str) and "<" not in body else ""
