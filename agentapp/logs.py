"""Log lines: what never appears in one, whoever writes it, and how each says what it belongs to.

A line belongs to a request, a task, a run or a call. Their ids are kept in a context variable, so the code that writes
a line need not know them. A line has the same ids as text and as JSON.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from psycopg_pool import PoolTimeout
from pythonjsonlogger.json import JsonFormatter

from approvals.detectors import clean

type Id = str | Callable[[], str]
"""An id, or a function that gives it when a line is written: a person may only become known later. Empty: none."""

_NOTHING: Mapping[str, Id] = MappingProxyType({})
_bound: ContextVar[Mapping[str, Id]] = ContextVar("log_ids", default=_NOTHING)
_OF_A_LINE = {"time", "level", "logger", "message", "exc_info", "stack_info", "status_code"}

_MASK = "[redacted]"
_formatter = logging.Formatter()
# Django logs the path of a request that it refuses. These paths open a password reset, or what a customer said.
_LINK = re.compile(r"(/login/reset/)[0-9A-Za-z]+-[^/\s]+|(/talk/)[^/\s]+")
# What would begin a new line, or control a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# The request ids that callers may choose: nothing that breaks a line, a header or a page.
_SAFE_ID = re.compile(r"[0-9A-Za-z._-]{8,128}")


def safe_id(text: str) -> str:
    """An id from outside, if it is safe to log. Empty: it is not."""
    return text if _SAFE_ID.fullmatch(text) else ""


@contextmanager
def bound(**ids: Id) -> Iterator[None]:
    """Lines logged within this block also belong to these."""
    token = _bound.set({**_bound.get(), **ids})
    try:
        yield
    finally:
        _bound.reset(token)


def bind(**ids: Id) -> None:
    """From now on, lines that this thread logs belong only to these."""
    _bound.set(ids)


def ids(record: logging.LogRecord | None = None) -> dict[str, str]:
    """What a line written now belongs to. Django logs a response after it is sent: its record names the request."""
    of_request: Mapping[str, Id] = getattr(getattr(record, "request", None), "log_ids", _NOTHING)
    found = {name: id if isinstance(id, str) else id() for name, id in {**of_request, **_bound.get()}.items()}
    return {name: id for name, id in found.items() if id}


class WithoutWords(logging.Filter):
    """Redacts what looks like a secret or personal data, in the line and in an error's traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        shown = clean(message, _MASK)
        if shown != message:
            record.msg, record.args = shown, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _formatter.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = clean(record.exc_text, _MASK)
        return True


class WithoutLinks(logging.Filter):
    """Redacts links that are as good as a password."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if _LINK.search(message):
            record.msg, record.args = _LINK.sub(lambda found: f"{found[1] or found[2]}…", message), ()
        return True


class WithoutRepetition(logging.Filter):
    """Leaves out where something was that got no connection to the database: all that is tried meanwhile gets none."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and isinstance(error.__cause__, PoolTimeout):
            record.msg, record.args = f"{record.getMessage()} ({error})", ()
            record.exc_info = record.exc_text = None
        return True


def _legible(text: str) -> str:
    """A text with its control characters escaped, so that it cannot begin a new line or control a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Line(logging.Formatter):
    """One line for people: time, level, logger, message, then what it belongs to."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        # An error's text may contain line breaks: all lines after the first are indented.
        first, *rest = super().format(record).split("\n")
        return "\n".join([first, *(f"  {_legible(line)}" for line in rest)])

    def formatMessage(self, record: logging.LogRecord) -> str:
        # Paths and errors contain text from others.
        record.message = _legible(record.message)
        said = " ".join(f"{name}={id}" for name, id in ids(record).items())
        return f"{super().formatMessage(record)} [{said}]" if said else super().formatMessage(record)


class Json(JsonFormatter):
    """One object a line: time (UTC), level, logger, message, and what it belongs to."""

    def __init__(self) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s",
            rename_fields={"levelname": "level", "name": "logger"},
            json_ensure_ascii=False,
        )

    def formatException(self, ei: Any) -> str:
        """It is formatted again for each line, so it is redacted here, whatever a filter did to the record's text."""
        return clean(_formatter.formatException(ei), _MASK)

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        log_data["time"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        super().add_fields(log_data, record, message_dict)
        # Libraries may add anything to a record: whole requests, the arguments of tasks.
        for name in [*log_data]:
            if name not in _OF_A_LINE:
                del log_data[name]
        log_data.update(ids(record))


_FILTERS = {"repetition": WithoutRepetition, "links": WithoutLinks, "words": WithoutWords}


def configuration(level: str, form: str) -> dict[str, Any]:
    """The settings of Python's logging."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "agentapp.logs.Line"}, "json": {"()": "agentapp.logs.Json"}},
        "filters": {name: {"()": f"agentapp.logs.{filter.__name__}"} for name, filter in _FILTERS.items()},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": form, "filters": [*_FILTERS]}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            # Their own handlers would bypass the format and the filters, and write each line a second time.
            **{name: {"handlers": [], "propagate": True} for name in ("django", "uvicorn")},
            # They log the address of outgoing requests and the response headers: either can hold a secret.
            **{n: {"level": "WARNING"} for n in ("celery", "httpx2", "httpcore2", "httpx", "httpcore", "google_genai")},
            # The MCP SDK quotes what servers sent. We report problems with them in our own words.
            **{name: {"level": "CRITICAL"} for name in ("mcp", "client")},
            # Apprise quotes services' answers, and their addresses, which hold tokens.
            **{name: {"level": "CRITICAL"} for name in ("apprise", "urllib3")},
            # It logs a line for every batch that a collector did not take; we log only one.
            "opentelemetry": {"level": "CRITICAL"},
        },
    }
