"""Whether this thread works on a mocked run: while it does, no code of a tool is found, and none runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_on: ContextVar[bool] = ContextVar("isolated", default=False)


class Isolated(Exception):
    """The code of a tool was called on behalf of a mocked run. It did not run."""


@contextmanager
def isolated(wanted: bool = True) -> Iterator[None]:
    """Keep the code of tools out of reach for a while. Nothing inside brings it back."""
    before = _on.set(wanted or _on.get())
    try:
        yield
    finally:
        _on.reset(before)


def is_on() -> bool:
    return _on.get()
