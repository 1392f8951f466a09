"""What whoever is answered may see of personal data. One per request, put up by `agentapp.discretion`.

Where nobody is answered, as in a worker, there is none: what is stored there is stored whole. What is said outside,
as in notifications, is always said through a closed one.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from approvals.blots import blotting
from approvals.detectors import MASK, clean, within, without_secrets
from approvals.digest import load
from approvals.masking import SAID_OF, blotted, is_of, secret_texts

# They hold what a call was told and gave, and what was looked up for its request.
TEXTS = ("arguments_text", "final_arguments_text", "proposed_text", "executed_text", "result_text", "snapshot_text")
PREVIEWS = ("preview_text", "final_preview_text")
_COLUMNS = (*TEXTS, *PREVIEWS, "comparison", "difference")


@dataclass
class Lens:
    is_open: bool = False
    """Whether personal data is shown."""
    rows: list[Any] = field(default_factory=list)
    """The calls and requests that were read: the values that are marked in them are known."""
    runs: set[Any] = field(default_factory=set)
    """The runs that anything was read of: so are those of their calls."""

    def texts(self) -> set[str]:
        """The values of marked fields in what was read, which may stand in any words around them."""
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
    """Let whoever is answered see personal data: they may decide about it, or it is their own."""
    lens = _current.get()
    if lens is not None:
        lens.is_open = True


def leave_as_written() -> None:
    """Let an answer be the text that was hashed or signed, which proves nothing once a part of it is masked.

    For answers that are nothing else. Of what runs did, such a text was masked when it was written, but for the names
    of people who work here; of a change of the configuration it has what was configured, addresses with it. Exports
    have both, too. Secrets are looked for all the same.
    """
    show()


def note(row: Any) -> None:
    """A call or a request has been read. What is marked in it is looked up when the answer is made."""
    lens = _current.get()
    if lens is not None and not lens.is_open:
        lens.runs.add(row.__dict__.get(row.column_of_run))
        if row.__dict__.get("pii_fields"):
            lens.rows.append(row)


def hidden(secret: Iterable[str], personal: Iterable[str]) -> list[str]:
    """The names of fields whose values are masked for whoever is answered."""
    lens = _current.get()
    shows = lens is None or lens.is_open
    return list(dict.fromkeys([*secret, *(() if shows else personal)]))


def values_of(columns: Mapping[str, Any], fields: Collection[str]) -> set[str]:
    """The values that fields have in what is at hand of one call or request, as texts."""
    if not fields:
        return set()
    values = [_read(columns[name]) for name in TEXTS if columns.get(name)]
    values += _states(_read(columns.get("snapshot_text")))
    previews = (_read(columns.get(name)) for name in PREVIEWS)
    lines = [*_lines(columns.get("comparison")), *(columns.get("difference") or ()), *chain(*map(_lines, previews))]
    return _texts_of(values, fields).union(*(_of_line(line, fields) for line in lines)) - {MASK}


def values_in(texts: Iterable[str], fields: Collection[str]) -> set[str]:
    """The values that fields have in some JSON texts, as texts."""
    return _texts_of(map(_read, texts), fields) - {MASK} if fields else set()


def told(text: str, rows: Iterable[Any] = ()) -> str:
    """A text as it may leave the system: without secrets, personal data, and what is marked in these rows."""
    return clean(blotted(text, set().union(*map(_hidden_of, rows))))


def seen(value: Any, known: Collection[str], is_open: bool) -> Any:
    """A JSON value as whoever is answered may read it."""
    if is_open:
        return within(value, without_secrets)
    blot = blotting(known, json.dumps(value, ensure_ascii=False)) if known else str
    return within(value, lambda text: clean(blot(text)))


def in_words(text: str) -> str:
    """A text as it stands in a field for whoever is answered, but for what is marked elsewhere."""
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
    """Of a plan: the state that each of its calls rests on, which is kept as a text."""
    found = snapshot.values() if isinstance(snapshot, dict) else ()
    return [_read(each["state"]) for each in found if isinstance(each, dict) and isinstance(each.get("state"), str)]


def _lines(dry_run: Any) -> list[dict[str, Any]]:
    """What a dry run foresaw, or what came of it, line by line."""
    return list(dry_run.get("lines", ())) if isinstance(dry_run, dict) else []


def _of_line(line: dict[str, Any], fields: Collection[str]) -> set[str]:
    said = [line[key] for key in SAID_OF if key in line]
    name = line["name"]
    return secret_texts({name: said}, {*fields, name} if is_of(name, fields) else fields)
