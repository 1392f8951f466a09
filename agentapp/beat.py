"""Beat, which notes in a file that it goes round: so one that hangs can be told from one that waits."""

import logging
from datetime import timedelta
from typing import Any

from celery.beat import Scheduler
from django.conf import settings

log = logging.getLogger(__name__)

# Celery's own waits up to half a minute, in which a Redis that is back is not noticed.
TRIES_AGAIN_WITHIN_SECONDS = 5
# What is done each hour is done a minute after the start as well: many a beat does not live for an hour.
FIRST_WITHIN = timedelta(minutes=1)
_CLOCKS_DIFFER = timedelta(seconds=5)


class NotedScheduler(Scheduler):
    """The sweep repeats, so nothing is worth a schedule file: this one knows nothing of before it was started."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for entry in self.schedule.values():
            every = getattr(entry.schedule, "run_every", FIRST_WITHIN)  # what has its time of day has none
            entry.last_run_at = entry.default_now() - max(every - FIRST_WITHIN, timedelta(0))

    def tick(self, *args: Any, **more: Any) -> Any:
        self._forget_what_is_yet_to_come()
        wait = super().tick(*args, **more)
        _note()
        return wait

    def _forget_what_is_yet_to_come(self) -> None:
        """Where the clock was put back nothing was done later than now, or all would wait until it is as late again."""
        for entry in self.schedule.values():
            now = entry.default_now()
            if entry.last_run_at is not None and entry.last_run_at > now + _CLOCKS_DIFFER:
                log.warning("The clock was put back: %s is due as if it had just been done", entry.name)
                entry.last_run_at = now
                self._heap = None  # in the order of when each is due

    def _ensure_connected(self) -> Any:
        """Wait for the broker, for as long as it takes."""

        def failed(error: Exception, seconds: float) -> None:
            log.error("The broker cannot be reached; trying again in %s s (%s)", seconds, type(error).__name__)
            _note()

        # Without a number of tries there is no end to them.
        return self.connection.ensure_connection(failed, interval_max=TRIES_AGAIN_WITHIN_SECONDS)


def _note() -> None:
    if settings.BEAT_FILE is not None:
        settings.BEAT_FILE.touch()
