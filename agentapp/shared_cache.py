"""What processes count together in Redis, such as failed sign-ins. While Redis is away, each process counts for itself.

So pages load and limits hold even without Redis. Only JSON is stored there: writing to Redis is not enough to run code
here.
"""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import redis
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache

log = logging.getLogger(__name__)

# How long Redis is left alone after it did not answer: a page counts several things, but should wait only once.
AWAY_FOR_SECONDS = 5
OWN = "while-redis-is-away"


class AsJson:
    """A serializer for Django's Redis cache. What cannot be read was not written by us, and reads as None."""

    def dumps(self, value: Any) -> str:
        return json.dumps(value)

    def loads(self, stored: bytes) -> Any:
        try:
            return json.loads(stored)
        except ValueError:
            log.warning("The shared cache holds something that is not JSON; it is ignored")
            return None


class SharedCache(RedisCache):
    def __init__(self, server: Any, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._own = LocMemCache(OWN, {**params, "OPTIONS": {}})

    def add(self, key: Any, value: Any, *args: Any, **more: Any) -> bool:
        return bool(self._ask(super().add, self._own.add, key, value, *args, **more))

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        found = self._ask(super().get, self._own.get, key, None, version)
        return default if found is None else found

    def set(self, key: Any, value: Any, *args: Any, **more: Any) -> None:
        self._ask(super().set, self._own.set, key, value, *args, **more)

    def touch(self, key: Any, *args: Any, **more: Any) -> bool:
        return bool(self._ask(super().touch, self._own.touch, key, *args, **more))

    def delete(self, key: Any, version: int | None = None) -> bool:
        return bool(self._ask(super().delete, self._own.delete, key, version))

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return bool(self._ask(super().has_key, self._own.has_key, key, version))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return int(self._ask(super().incr, self._own.incr, key, delta, version))

    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        return dict(self._ask(super().get_many, self._own.get_many, keys, version))

    def set_many(self, data: Any, *args: Any, **more: Any) -> list[Any]:
        return list(self._ask(super().set_many, self._own.set_many, data, *args, **more))

    def delete_many(self, keys: Any, version: int | None = None) -> None:
        self._ask(super().delete_many, self._own.delete_many, keys, version)

    def clear(self) -> None:
        """Django's own would empty the whole database, which is the broker's too."""
        self._own.clear()
        self._ask(self._forget, lambda: None)

    def _forget(self) -> None:
        client = self._cache.get_client(None, write=True)
        for key in client.scan_iter(match=f"{self.key_prefix}:*"):
            client.delete(key)

    def _ask(self, shared: Callable[..., Any], own: Callable[..., Any], *args: Any, **more: Any) -> Any:
        if time.monotonic() < _away.until:
            return own(*args, **more)
        try:
            return shared(*args, **more)
        except (redis.RedisError, OSError) as error:
            _away.until = time.monotonic() + AWAY_FOR_SECONDS
            log.warning("Redis does not answer; for now this process counts for itself (%s)", type(error).__name__)
            return own(*args, **more)


class _Away:
    """Until when Redis counts as away. For the whole process, since each thread has its own cache."""

    until = 0.0


_away = _Away()
