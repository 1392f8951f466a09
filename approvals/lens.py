"""How much personal data the current reader may see. One lens per request, set by `agentapp.discretion`.

Where nobody is answered, as in a worker, there is no lens: what is stored is stored whole. What leaves the system, such
as notifications, always goes through a closed one.
"""

import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from approvals.blots import blotting
from approvals.detectors import MASK, clean, within, without_secrets
from approvals.digest import load
from approvals.masking import SAID_OF, blotted, is_of, secret_texts

# They hold what a call was given and returned, and what was looked up for its request.
TEXTS = ("arguments_text", "final_arguments_text", "proposed_text", "executed_text", "result_text", "snapshot_text")
PREVIEWS = ("preview_text", "final_preview_text")
_COLUMNS = (*TEXTS, *PREVIEWS, "comparison", "difference")


@dataclass
class Lens:
    is_open: bool = False
    """Whether personal data is shown."""
    rows: list[Any] = field(default_factory=list)
    """The calls and requests that were read, whose marked values are therefore known."""
    runs: set[Any] = field(default_factory=set)
    """The runs that anything was read from, whose calls' values are therefore known too."""

    def texts(self) -> set[str]:
        """The values of marked fields in what was read, which may appear in any surrounding text."""
        return set().union(*(values_of(row.__dict__, row.pii_fields) for row in self.rows))


_current: ContextVar[Lens | None] = ContextVar("lens", default=None)


@contextmanager
def put_up(lens: Lens) -> Iterator[Lens]:
    token = _current.set(lens)
    try:
        yield lens
    finally:
        _current.reset(token)


def current() -> Lens | None:
    return _current.get()


def show() -> None:
    """Let the reader see personal data: they may decide about it, or it is their own."""
    lens = _current.get()
    if lens is not None:
        lens.is_open = True


def leave_as_written() -> None:
    """Return a text exactly as it was hashed or signed: once a part is masked, it proves nothing.

    Only for answers that are nothing else. Such a text about runs was masked when it was written, except for the names
    of people who work here. Events of configuration changes hold what was configured, addresses included. Exports hold
    both too. Secrets are still looked for.
    """
    show()


def note(row: Any) -> None:
    """A call or request was read. Its marked values are looked up when the answer is made."""
    lens = _current.get()
    if lens is not None and not lens.is_open:
        lens.runs.add(row.__dict__.get(row.column_of_run))
        if row.__dict__.get("pii_fields"):
            lens.rows.append(row)


def hidden(secret: Iterable[str], personal: Iterable[str]) -> list[str]:
    """The names of the fields whose values are masked for the reader."""
    lens = _current.get()
    shows = lens is None or lens.is_open
    return list(dict.fromkeys([*secret, *(() if shows else personal)]))


def values_of(columns: Mapping[str, Any], fields: Collection[str]) -> set[str]:
    """The values of fields in what was read of one call or request, as texts."""
    if not fields:
        return set()
    values = [_read(columns[name]) for name in TEXTS if columns.get(name)]
    values += _states(_read(columns.get("snapshot_text")))
    previews = (_read(columns.get(name)) for name in PREVIEWS)
    lines = [*_lines(columns.get("comparison")), *(columns.get("difference") or ()), *chain(*map(_lines, previews))]
    return _texts_of(values, fields).union(*(_of_line(line, fields) for line in lines)) - {MASK}


def values_in(texts: Iterable[str], fields: Collection[str]) -> set[str]:
    """The values of fields in some JSON texts, as texts."""
    return _texts_of(map(_read, texts), fields) - {MASK} if fields else set()


def told(text: str, rows: Iterable[Any] = ()) -> str:
    """A text as it may leave the system: without secrets, personal data, and the marked values of these rows."""
    return clean(blotted(text, set().union(*map(_hidden_of, rows))))


def seen(value: Any, known: Collection[str], is_open: bool, keeps: Container[str] = ()) -> Any:
    """A JSON value as the reader may see it. `keeps`: keys that say nothing about anybody."""
    if is_open:
        return within(value, without_secrets, keeps)
    blot = blotting(known, json.dumps(value, ensure_ascii=False), spares_made_here=True) if known else str
    return within(value, lambda text: clean(blot(text)), keeps)


def in_words(text: str) -> str:
    """A text of a field as the reader may see it, except for values marked elsewhere."""
    return clean(text) if hidden((), ("any",)) else without_secrets(text)


def _texts_of(values: Iterable[Any], fields: Collection[str]) -> set[str]:
    return set().union(*(secret_texts(value, fields) for value in values))


def _hidden_of(row: Any) -> set[str]:
    columns = {name: getattr(row, name) for name in _COLUMNS if hasattr(row, name)}
    return values_of(columns, [*row.pii_fields, *getattr(row, "secret_fields", ())])


def _read(text: str | None) -> Any:
    try:
        return load(text) if text else None
    except (ValueError, RecursionError):
        return None


def _states(snapshot: Any) -> list[Any]:
    """For a plan: the state that each of its calls depends on, which is kept as text."""
    found = snapshot.values() if isinstance(snapshot, dict) else ()
    return [_read(each["state"]) for each in found if isinstance(each, dict) and isinstance(each.get("state"), str)]


def _lines(dry_run: Any) -> list[dict[str, Any]]:
    """What a dry run predicted, or what happened, line by line."""
    return list(dry_run.get("lines", ())) if isinstance(dry_run, dict) else []


def _of_line(line: dict[str, Any], fields: Collection[str]) -> set[str]:
    said = [line[key] for key in SAID_OF if key in line]
    name = line["name"]
    return secret_texts({name: said}, {*fields, name} if is_of(name, fields) else fields)
