"""A process's cache of the configuration, valid as long as the chain of configuration changes has not grown.

Every change of the configuration is an event in its own transaction, so the hash of the chain's last event identifies
one state of all of it. What was read at that hash is not read again: a worker drives many runs between two changes. It
is still kept for only some seconds, in case somebody changes a row by hand in the database.
"""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings


@dataclass
class _Kept:
    hash: str
    until: float
    parts: dict[Hashable, Any] = field(default_factory=dict)


_latest = _Kept("", 0.0)


def at[T](hash: str, name: Hashable, read: Callable[[], T]) -> T:
    """A part of the configuration at one hash of its chain, read if necessary. Callers must not change it.

    `hash` is empty if nothing has ever been configured through the chain. Then nothing is kept.
    """
    global _latest
    now = time.monotonic()
    kept = _latest
    if not hash or settings.CONFIGURATION_KEPT_SECONDS <= 0:
        return read()
    if kept.hash != hash or kept.until < now:
        # Two threads that come here together both read, and both are right.
        kept = _latest = _Kept(hash, now + settings.CONFIGURATION_KEPT_SECONDS)
    if name not in kept.parts:
        kept.parts[name] = read()
    found: T = kept.parts[name]
    return found
