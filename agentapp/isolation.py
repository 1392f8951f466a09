"""Whether this thread works on a mocked run. While it does, no tool's code is found, and none runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_on: ContextVar[bool] = ContextVar("isolated", default=False)


class Isolated(Exception):
    """A tool's code was called for a mocked run. It did not run."""


@contextmanager
def isolated(wanted: bool = True) -> Iterator[None]:
    """Keep tools' code out of reach within this block. Nothing inside can bring it back."""
    before = _on.set(wanted or _on.get())
    try:
        yield
    finally:
        _on.reset(before)


def is_on() -> bool:
    return _on.get()
