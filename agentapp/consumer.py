"""How a worker waits for its broker."""

from functools import partial
from typing import Any

from celery.worker import consumer

# Celery's own waits two seconds longer before each try, up to half a minute.
TRIES_AGAIN_WITHIN_SECONDS = 1


class Consumer(consumer.Consumer):
    """Celery's own, but it soon notices that the broker is back."""

    def ensure_connected(self, conn: Any) -> Any:
        conn.ensure_connection = partial(conn.ensure_connection, interval_max=TRIES_AGAIN_WITHIN_SECONDS)
        return super().ensure_connected(conn)
