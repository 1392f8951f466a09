"""Whose turn it is to wait for servers of others: what is sent keeps few of a worker's threads from the work.

A mail server that hangs keeps each who asks it for ten seconds and more, and requests go on being made meanwhile.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from approvals import nudges

# Of one process: a worker has 16 threads, the one beside the web server 4.
AT_ONCE = 3
# A server that failed after so long is left to the next pass. One that refuses at once costs nothing, as the others do
# that go over it.
WAITED_SECONDS = 1.0
# One pass goes on for so long: others get their turn.
PASS_SECONDS = 20.0


class _Turns:
    """Where this process sends now, and whether anybody was turned away since that was so."""

    lock = threading.Lock()
    taken: set[str] = set()
    turned_away = False


@contextmanager
def turn(to: str) -> Iterator[bool]:
    """Whether this thread may send there: no other of its process does, and few send anywhere.

    Whoever is turned away need not come back: when a turn ends, a worker is told to look again.
    """
    with _Turns.lock:
        mine = to not in _Turns.taken and len(_Turns.taken) < AT_ONCE
        if mine:
            _Turns.taken.add(to)
        else:
            _Turns.turned_away = True
    try:
        yield mine
    finally:
        if mine and _ended(to):
            nudges.nudge()


def _ended(to: str) -> bool:
    """Whether anybody was turned away meanwhile."""
    with _Turns.lock:
        _Turns.taken.discard(to)
        turned_away, _Turns.turned_away = _Turns.turned_away, False
    return turned_away


def one_after_another[T](items: Iterable[T], send: Callable[[T], bool]) -> bool:
    """Send each until the pass is over. False: a server was waited for in vain, and is left alone for now."""
    until = time.monotonic() + PASS_SECONDS
    for item in items:
        began = time.monotonic()
        if not send(item) and time.monotonic() - began >= WAITED_SECONDS:
            return False
        if time.monotonic() >= until:
            break
    return True
