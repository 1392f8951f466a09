"""What whoever is answered may see of personal data. One per request, put up by `agentapp.discretion`.

Where nobody is answered, as in a worker, there is none: what is stored there is stored whole. What is said outside,
as in notifications, is always said through a closed one.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from approvals.blots import blotting
from approvals.detectors import MASK, clean, within, without_secrets
from approvals.digest import load
from approvals.masking import blotted, secret_texts

# In this order they hold what a call was told and gave.
_TEXTS = ("arguments_text", "final_arguments_text", "proposed_text", "executed_text", "result_text")


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
        return set().union(*(marked_texts(row) for row in self.rows))


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


def marked_texts(row: Any) -> set[str]:
    """The values that marked fields have in one call or request, as texts."""
    return values_in((getattr(row, name, "") for name in _TEXTS), row.pii_fields)


def values_in(texts: Iterable[str], fields: Collection[str]) -> set[str]:
    """The values that fields have in some JSON texts, as texts."""
    return set().union(*(_of_text(text, fields) for text in texts if text)) if fields else set()


def told(text: str, rows: Iterable[Any] = ()) -> str:
    """A text as it may leave the system: without secrets, personal data, and what is marked in these rows."""
    known = set().union(*(marked_texts(row) | secret_texts_of(row) for row in rows))
    return clean(blotted(text, known))


def secret_texts_of(row: Any) -> set[str]:
    return values_in((getattr(row, name, "") for name in _TEXTS), getattr(row, "secret_fields", ()))


def seen(value: Any, known: Collection[str], is_open: bool) -> Any:
    """A JSON value as whoever is answered may read it."""
    if is_open:
        return within(value, without_secrets)
    blot = blotting(known, json.dumps(value, ensure_ascii=False)) if known else str
    return within(value, lambda text: clean(blot(text)))


def in_words(text: str) -> str:
    """A text as it stands in a field for whoever is answered, but for what is marked elsewhere."""
    return clean(text) if hidden((), ("any",)) else without_secrets(text)


def _of_text(text: str, fields: Collection[str]) -> set[str]:
    try:
        return {found for found in secret_texts(load(text), fields) if found != MASK}
    except (ValueError, RecursionError):
        return set()
