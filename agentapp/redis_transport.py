"""Celery's transport for Redis, with one client for each channel.

kombu makes a client for every message that is sent, returned or acknowledged. This takes a twentieth of a worker's
time, and all that a client holds is the connection pool, which stays the same.
"""

from typing import Any

from kombu.transport import redis


class Channel(redis.Channel):
    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        create: Any = super()._create_client  # type: ignore[misc]  # not in kombu's types
        if asynchronous:
            return create(asynchronous)
        # After losing the broker, the channel may come back with another pool.
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = create()
        return self._kept


class Transport(redis.Transport):
    Channel = Channel
