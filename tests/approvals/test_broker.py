"""A broker that is away keeps nobody waiting: what was done is done, and workers find it without being told."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from django.conf import settings

from agentapp import connections, nudges
from approvals import broker
from tests.absent import refusing, silent


@pytest.fixture
def told_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`told_over(port)`: the broker is at this port, connected to as the settings would connect."""
    monkeypatch.setattr(broker._silence, "until", 0.0)
    made: list[Celery] = []

    def at(port: int) -> None:
        app = Celery("test", broker=f"redis://127.0.0.1:{port}/0", set_as_current=False)
        app.conf.broker_transport_options = connections.broker_options(embedded=False)
        app.conf.task_default_queue = settings.CELERY_TASK_DEFAULT_QUEUE
        monkeypatch.setattr(broker, "current_app", app)
        made.append(app)

    yield at
    for app in made:
        app.close()


def test_a_broker_that_refuses_is_asked_once_each_time(
    told_over: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A refusal takes no time; what takes time on a slow machine is not waiting.
    monkeypatch.setattr(broker, "WAITED_SECONDS", 60.0)
    with refusing() as port:
        told_over(port)
        assert broker.tell("any.task", about="this") is False
        assert broker.tell("any.task", about="that") is False
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" (")[0] for line in said] == [
        "Could not tell a worker this",
        "Could not tell a worker that",
    ]
    assert all("Connection refused" in line for line in said)


def test_one_that_takes_connections_and_is_silent_is_given_up_and_then_left_alone(told_over: Any) -> None:
    with silent() as server:
        told_over(server.port)
        assert broker.tell("any.task", about="this") is False
        tried = server.connections()
        assert tried >= 1
        for _ in range(50):
            nudges.nudge(uuid.uuid4())
        assert server.connections() == tried


def test_it_is_asked_again_later(told_over: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with silent() as server:
        told_over(server.port)
        broker.tell("any.task", about="this")
        tried = server.connections()
        monkeypatch.setattr(broker._silence, "until", 0.0)
        broker.tell("any.task", about="this")
        assert server.connections() > tried


def test_a_task_is_named_or_given(told_over: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(broker.current_app, "send_task", lambda name, arguments, **how: sent.append((name, how)))
    assert broker.tell("any.task", about="this", delay=2) is True
    assert sent == [("any.task", {"countdown": 2, "retry": False, "priority": 0})]


@pytest.mark.redis
def test_it_is_known_how_many_messages_wait_of_any_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    with Celery("test", broker=settings.REDIS_URL, set_as_current=False) as app:
        _counts_what_it_is_told(app, monkeypatch)


def test_so_it_is_of_the_embedded_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    with Celery("test", broker="memory://localhost//", set_as_current=False) as app:
        _counts_what_it_is_told(app, monkeypatch)


def _counts_what_it_is_told(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    app.conf.task_default_queue = f"test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(broker, "current_app", app)
    assert broker.waiting() == 0
    for priority in (0, broker.WORK, broker.WORK):
        broker.tell("any.task", about="this", priority=priority)
    assert broker.waiting() == 3
    with app.connection() as connection:
        connection.default_channel.queue_purge(app.conf.task_default_queue)
    assert broker.waiting() == 0


def test_of_a_broker_that_is_not_there_nothing_is_known_and_it_is_left_alone_once_it_was_waited_for(
    told_over: Any,
) -> None:
    with refusing() as port:
        told_over(port)
        assert broker.waiting() == 0
    with silent() as server:
        told_over(server.port)
        assert broker.waiting() == 0
        tried = server.connections()
        assert (broker.waiting(), broker.tell("any.task", about="this")) == (0, False)
        assert server.connections() == tried


@pytest.mark.redis
def test_what_looks_after_everything_and_what_people_wait_for_overtake_the_work(told_over: Any) -> None:
    """By a real Redis, as a worker takes messages from it."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    with Celery(broker=settings.REDIS_URL).connection() as connection, connection.SimpleQueue(name) as queue:
        put = (("run 1", broker.WORK), ("run 2", broker.WORK), ("decided", broker.ANSWERED), ("sweep", 0))
        for said, priority in put:
            queue.put(said, priority=priority)
        taken = [queue.get(timeout=5) for _ in put]
        for message in taken:
            message.ack()
    assert [message.payload for message in taken] == ["sweep", "decided", "run 1", "run 2"]
