"""Lines of the log: what never reaches one, whoever writes it, and what each says of where it belongs.

A line belongs to a request, a task, a run or a call. What binds these is noted in a context variable, so that whoever
writes the line need not know; a line has the same ids as text and as JSON.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from approvals.detectors import clean

type Id = str | Callable[[], str]
"""An id, or what says it when a line is written: who somebody is may become known later. Empty: there is none."""

_NOTHING: Mapping[str, Id] = MappingProxyType({})
_bound: ContextVar[Mapping[str, Id]] = ContextVar("log_ids", default=_NOTHING)
_OF_A_LINE = {"time", "level", "logger", "message", "exc_info", "stack_info", "status_code"}

_MASK = "[redacted]"
_formatter = logging.Formatter()
# Django names the path of a request that it refuses; these open the choice of a password, and what a customer said.
_LINK = re.compile(r"(/login/reset/)[0-9A-Za-z]+-[^/\s]+|(/talk/)[^/\s]+")
# What would begin a line, or move about in a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# What others may name a request: nothing that breaks a line, a header or a page.
_SAFE_ID = re.compile(r"[0-9A-Za-z._-]{8,128}")


def safe_id(text: str) -> str:
    """An id that came from outside, if it may stand in a log. Empty: it may not."""
    return text if _SAFE_ID.fullmatch(text) else ""


@contextmanager
def bound(**ids: Id) -> Iterator[None]:
    """What is logged within belongs to these as well."""
    token = _bound.set({**_bound.get(), **ids})
    try:
        yield
    finally:
        _bound.reset(token)


def bind(**ids: Id) -> None:
    """What this thread logs from now on belongs to these, and to nothing else."""
    _bound.set(ids)


def ids(record: logging.LogRecord | None = None) -> dict[str, str]:
    """What a line written now belongs to. Django tells of an answer when it has left: its record names the request."""
    of_request: Mapping[str, Id] = getattr(getattr(record, "request", None), "log_ids", _NOTHING)
    found = {name: id if isinstance(id, str) else id() for name, id in {**of_request, **_bound.get()}.items()}
    return {name: id for name, id in found.items() if id}


class WithoutWords(logging.Filter):
    """Blots out what looks like a secret or like personal data, in the line and in the trace of an error."""

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
    """Blots out links that are as good as a password."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if _LINK.search(message):
            record.msg, record.args = _LINK.sub(lambda found: f"{found[1] or found[2]}…", message), ()
        return True


def _legible(text: str) -> str:
    """A text without what would begin a line, or move about in a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Line(logging.Formatter):
    """One line for people: time, level, logger, message, then what it belongs to."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        # What an error says may begin lines of its own: all that follows the first are set in.
        first, *rest = super().format(record).split("\n")
        return "\n".join([first, *(f"  {_legible(line)}" for line in rest)])

    def formatMessage(self, record: logging.LogRecord) -> str:
        # Paths and errors have words of others in them.
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
        """It is made anew for each line, whatever a filter has blotted out of the record's."""
        return clean(_formatter.formatException(ei), _MASK)

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        log_data["time"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        super().add_fields(log_data, record, message_dict)
        # What libraries add to a record may be anything: whole requests, the arguments of tasks.
        for name in [*log_data]:
            if name not in _OF_A_LINE:
                del log_data[name]
        log_data.update(ids(record))


def configuration(level: str, form: str) -> dict[str, Any]:
    """The settings of Python's logging."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "agentapp.logs.Line"}, "json": {"()": "agentapp.logs.Json"}},
        "filters": {"links": {"()": "agentapp.logs.WithoutLinks"}, "words": {"()": "agentapp.logs.WithoutWords"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": form, "filters": ["links", "words"]}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            # They write by handlers of their own, past the form and the filters, and each of their lines a second time.
            **{name: {"handlers": [], "propagate": True} for name in ("django", "uvicorn")},
            # Of a request to the outside they write its address and its answer's headers: either can hold a secret.
            **{n: {"level": "WARNING"} for n in ("celery", "httpx2", "httpcore2", "httpx", "httpcore", "google_genai")},
            # The MCP SDK quotes what servers sent; what goes wrong with one is told by our own words.
            **{name: {"level": "CRITICAL"} for name in ("mcp", "client")},
            # Apprise quotes what services answered, and their addresses, which hold tokens.
            **{name: {"level": "CRITICAL"} for name in ("apprise", "urllib3")},
            # It writes a line for every batch that a collector did not take; ours is one.
            "opentelemetry": {"level": "CRITICAL"},
        },
    }
