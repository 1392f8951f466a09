"""Beat, which touches a file on every round, so that a hanging beat can be told from a waiting one."""

import logging
import time
from datetime import timedelta
from itertools import count
from typing import Any

import redis
from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from django.conf import settings
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)

# Celery's own beat waits up to half a minute before it notices that Redis is back.
TRIES_AGAIN_WITHIN_SECONDS = 1
AWAY = (OperationalError, redis.RedisError, OSError)
# Hourly tasks also run a minute after the start: many a beat does not live for an hour.
FIRST_WITHIN = timedelta(minutes=1)
_CLOCKS_DIFFER = timedelta(seconds=5)


class NotedScheduler(Scheduler):
    """The sweep repeats, so no schedule file is needed: this scheduler knows nothing from before its start."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for entry in self.schedule.values():
            every = getattr(entry.schedule, "run_every", FIRST_WITHIN)  # an entry with a time of day has no interval
            entry.last_run_at = entry.default_now() - max(every - FIRST_WITHIN, timedelta(0))

    def tick(self, *args: Any, **more: Any) -> Any:
        self._forget_what_is_yet_to_come()
        wait = super().tick(*args, **more)
        _note()
        return wait

    def _forget_what_is_yet_to_come(self) -> None:
        """After the clock is put back, treat later runs as done now: otherwise all would wait until that time again."""
        for entry in self.schedule.values():
            now = entry.default_now()
            if entry.last_run_at is not None and entry.last_run_at > now + _CLOCKS_DIFFER:
                log.warning("The clock was put back: %s is scheduled as if it had just run", entry.name)
                entry.last_run_at = now
                self._heap = None  # in the order of when each is due

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send what is due, as soon as the broker takes it.

        Celery's own gives up and waits until it is due again: a quarter of a minute for the sweep, an hour for others.
        """
        for tries in count():
            try:
                self.apply_async(entry, producer=producer, advance=False)
                return
            except SchedulingError as error:
                if not isinstance(error.__context__, AWAY):
                    log.exception("%s could not be sent", entry.name)
                    return
                if tries == 0:
                    log.error("The broker does not take %s; trying again until it does (%s)", entry.name, error)
            _note()
            time.sleep(TRIES_AGAIN_WITHIN_SECONDS)

    def _ensure_connected(self) -> Any:
        """Wait for the broker, for as long as it takes."""

        def failed(error: Exception, seconds: float) -> None:
            log.error("The broker cannot be reached; trying again in %s s (%s)", seconds, type(error).__name__)
            _note()

        # Without a maximum number of tries, it never gives up.
        return self.connection.ensure_connection(failed, interval_max=TRIES_AGAIN_WITHIN_SECONDS)


def _note() -> None:
    if settings.BEAT_FILE is not None:
        settings.BEAT_FILE.touch()
