"""How a worker waits for its broker."""

from typing import Any

from celery import Celery

from agentapp.celery import app
from agentapp.consumer import Consumer


class Returning:
    """A connection to a broker that comes back. Notes how long may be waited between two tries."""

    most = 0.0

    def ensure_connection(self, *_: Any, interval_max: float = 30.0, **__: Any) -> "Returning":
        self.most = interval_max
        return self


def test_a_worker_is_one_of_ours() -> None:
    assert app.conf.worker_consumer == "agentapp.consumer:Consumer"


def test_a_broker_that_was_away_for_long_is_soon_found_again() -> None:
    consumer = Consumer.__new__(Consumer)
    consumer.app, consumer.first_connection_attempt = Celery(set_as_current=False), False
    returning = Returning()
    assert consumer.ensure_connected(returning) is returning
    assert returning.most == 1
