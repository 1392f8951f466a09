"""Tells workers something, over a broker that may fail in any way: refusing, silent, full."""

import logging
import time
from typing import Any

from celery import Task, current_app
from kombu.exceptions import ChannelError

log = logging.getLogger(__name__)

# After waiting for a broker in vain, do not ask it for a while: deciding about fifty requests at once would wait fifty
# times. A broker that refuses at once costs nothing and is asked each time.
WAITED_SECONDS = 1.0
# Redis keeps a list per priority and takes the lowest first. Sweeps overtake other work, and so does a run that
# somebody has just answered and is looking at.
ANSWERED = 3
WORK = 6
SILENT_FOR_SECONDS = 10.0


class _Silence:
    """Until when this process does not ask the broker."""

    until = 0.0


_silence = _Silence()


def tell(
    task: "Task[..., object] | str",
    arguments: tuple[object, ...] = (),
    *,
    about: str,
    delay: float = 0,
    priority: int = 0,
    queue: str = "",
) -> bool:
    """Have a worker do a task; its name is enough. Never raises: rows say what is due anyway.

    `priority`: WORK for tasks that may take long and of which many can wait; ANSWERED for what people wait for.
    `queue`: whose workers; empty: those of the usual one.
    """
    how: dict[str, Any] = {"countdown": delay, "retry": False, "priority": priority}
    if queue:
        how["queue"] = name_of(queue)
    began = time.monotonic()
    if began < _silence.until:
        log.warning("Did not tell a worker %s: the broker did not answer a moment ago", about)
        return False
    try:
        if isinstance(task, str):
            current_app.send_task(task, arguments, **how)
        else:
            task.apply_async(arguments, **how)
    except Exception as error:  # the broker may be down in any way
        _note_silence(began)
        log.warning("Could not tell a worker %s (%s: %s)", about, type(error).__name__, error)
        return False
    return True


def name_of(queue: str) -> str:
    """The name that the broker knows a queue by; empty: the usual one."""
    usual = str(current_app.conf.task_default_queue)
    return f"{usual}.{queue}" if queue else usual


def waiting() -> int:
    """How many messages no worker has taken yet, in all queues. 0 if that cannot be known. Never raises."""
    began = time.monotonic()
    if began < _silence.until:
        return 0
    try:
        with current_app.connection_or_acquire() as connection, connection.channel() as channel:
            return sum(_in(channel, name) for name in {name_of(""), *(current_app.conf.task_queues or ())})
    except Exception:  # it may be down in any way
        _note_silence(began)
        return 0


def _in(channel: Any, name: str) -> int:
    try:
        return int(channel.queue_declare(name, passive=True).message_count)
    except ChannelError:  # there is none yet: Redis has none while it is empty
        return 0


def _note_silence(began: float) -> None:
    ended = time.monotonic()
    if ended - began >= WAITED_SECONDS:
        _silence.until = ended + SILENT_FOR_SECONDS
