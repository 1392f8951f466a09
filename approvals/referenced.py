"""Secrets by reference: the environment holds one, or names the file that does."""

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

# A longer file is not a secret, but some other file named by mistake.
_LONGEST = 64 * 1024


class Unreadable(ImproperlyConfigured):
    """A secret is named in two ways, or in one that leads nowhere. The message contains nothing of it."""

    @classmethod
    def named_twice(cls, name: str) -> "Unreadable":
        return cls(f"{name} and {name}_FILE are both set. Keep one of them.")


def secret(name: str) -> str:
    """A variable that may hold a secret: its value, or the content of the file that `<name>_FILE` names. Otherwise
    empty.

    Secrets mounted as files stay out of the environment, which started programs inherit. The file is read each time, so
    secrets read during a call can change without a restart. Raises Unreadable.
    """
    value, file = os.environ.get(name, "").strip(), os.environ.get(f"{name}_FILE", "").strip()
    if not file:
        return value
    if value:
        raise Unreadable.named_twice(name)
    try:
        with Path(file).open("rb") as opened:
            found = opened.read(_LONGEST + 1)
        if len(found) > _LONGEST:
            raise ValueError
        text = found.decode().strip()
    except (OSError, ValueError) as error:
        raise Unreadable(f"{name}_FILE={file!r} cannot be read as a secret: {type(error).__name__}.") from None
    if not text:
        # Secrets may be mounted late, and going on without one is not what was meant.
        raise Unreadable(f"{name}_FILE={file!r} is empty.")
    return text
