"""Limits how many threads wait for other people's servers, so that sending leaves a worker's threads free for other
work.

A mail server that hangs holds each thread for ten seconds or more, while new requests keep coming.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from approvals import nudges

# Per process, and one more that is counted separately. A worker has 16 threads, the one inside the web server 5.
AT_ONCE = 3
# A server that failed after this long is left to the next pass. One that refuses at once costs nothing, and neither do
# the other messages that go through it.
WAITED_SECONDS = 1.0
# A pass lasts this long, then others get their turn.
PASS_SECONDS = 20.0


class _Turns:
    """Where this process is sending now, and whether anybody has been turned away since."""

    lock = threading.Lock()
    taken: set[str] = set()
    apart: set[str] = set()
    turned_away = False


@contextmanager
def turn(to: str, apart: bool = False) -> Iterator[bool]:
    """Whether this thread may send there: no other thread of its process does, and only a few send anywhere.

    `apart`: do not count against these few. For what only one thread sends, such as mail about accounts. A thread that
    is turned away need not come back: when a turn ends, a worker is told to look again.
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
    """Send each until the pass is over. False: a server did not answer in time, and is left alone for now."""
    until = time.monotonic() + PASS_SECONDS
    for item in items:
        began = time.monotonic()
        if not send(item) and time.monotonic() - began >= WAITED_SECONDS:
            return False
        if time.monotonic() >= until:
            break
    return True
