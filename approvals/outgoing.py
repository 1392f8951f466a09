"""Whose turn it is to wait for servers of others: what is sent keeps few of a worker's threads from the work.

A mail server that hangs keeps each who asks it for ten seconds and more, and requests go on being made meanwhile.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from approvals import nudges

# Of one process, and one more that is counted apart: a worker has 16 threads, the one beside the web server 5.
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
    apart: set[str] = set()
    turned_away = False


@contextmanager
def turn(to: str, apart: bool = False) -> Iterator[bool]:
    """Whether this thread may send there: no other of its process does, and few send anywhere.

    `apart`: these few are not waited for. For what is sent by one thread alone, as mail about accounts.
    Whoever is turned away need not come back: when a turn ends, a worker is told to look again.
    """
    with _Turns.lock:
        taken = _Turns.apart if apart else _Turns.taken
        mine = to not in taken and (apart or len(taken) < AT_ONCE)
        if mine:
            taken.add(to)
        else:
            _Turns.turned_away = True
    try:
        yield mine
    finally:
        if mine and _ended(to, taken):
            nudges.nudge()


def _ended(to: str, taken: set[str]) -> bool:
    """Whether anybody was turned away meanwhile."""
    with _Turns.lock:
        taken.discard(to)
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
