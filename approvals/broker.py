"""Telling workers something, over a broker that may be away in any way: refusing, silent, full."""

import logging
import time

from celery import Task, current_app

log = logging.getLogger(__name__)

# A broker that was waited for in vain is not told anything for a while: whoever decides about fifty requests at once
# would wait fifty times. One that refuses at once costs nothing, and is asked each time.
WAITED_SECONDS = 1.0
# Redis keeps a list for each, and the lowest goes first: what looks after everything overtakes the work, and so does a
# run that somebody has just answered, and looks at.
ANSWERED = 3
WORK = 6
SILENT_FOR_SECONDS = 10.0


class _Silence:
    """Until when the broker is not asked, in this process."""

    until = 0.0


_silence = _Silence()


def tell(
    task: "Task[..., object] | str",
    arguments: tuple[object, ...] = (),
    *,
    about: str,
    delay: float = 0,
    priority: int = 0,
) -> bool:
    """Have a worker do a task, which its name is enough for. Never raises: rows say what is due anyway.

    `priority`: WORK for what may take long, of which many can wait; ANSWERED for what people wait for.
    """
    began = time.monotonic()
    if began < _silence.until:
        log.warning("No worker was told %s: the broker did not answer a moment ago", about)
        return False
    try:
        if isinstance(task, str):
            current_app.send_task(task, arguments, countdown=delay, retry=False, priority=priority)
        else:
            task.apply_async(arguments, countdown=delay, retry=False, priority=priority)
    except Exception:  # the broker may be down in any way
        _note_silence(began)
        log.warning("No worker could be told %s", about, exc_info=True)
        return False
    return True


def waiting() -> int:
    """How many messages no worker has taken yet. 0 where that cannot be known. Never raises."""
    began = time.monotonic()
    if began < _silence.until:
        return 0
    try:
        with current_app.connection_or_acquire() as connection, connection.channel() as channel:
            declared = channel.queue_declare(current_app.conf.task_default_queue, passive=True)
            return int(declared.message_count)
    except Exception:  # down in any way, or it has no queue yet: Redis has none while it is empty
        _note_silence(began)
        return 0


def _note_silence(began: float) -> None:
    ended = time.monotonic()
    if ended - began >= WAITED_SECONDS:
        _silence.until = ended + SILENT_FOR_SECONDS
