"""Secrets by reference: the environment holds one, or names the file that does."""

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

# A longer file is no secret, and not what was meant.
_LONGEST = 64 * 1024


class Unreadable(ImproperlyConfigured):
    """A secret is named in two ways, or in one that leads nowhere. Its words hold nothing of it."""

    @classmethod
    def named_twice(cls, name: str) -> "Unreadable":
        return cls(f"{name} and {name}_FILE are both set. Keep one of them.")


def secret(name: str) -> str:
    """A variable that may hold a secret: its value, or what stands in the file that `<name>_FILE` names. Else empty.

    Where secrets are mounted as files none is in the environment, which programs that are started inherit. The file is
    read each time, so that what is read while a call runs is changed without a restart. Raises Unreadable.
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
        # Whoever mounts secrets may be late, and what counts without one is not what was meant.
        raise Unreadable(f"{name}_FILE={file!r} is empty.")
    return text
