"""Messages go out and are marked as done through one client, as long as there is one way to the broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings

from agentapp.celery import app
from agentapp.redis_transport import Transport


@pytest.fixture
def channel() -> Iterator[Any]:
    with app.connection_for_write(settings.CELERY_BROKER_URL) as connection:
        assert isinstance(connection.transport, Transport)
        yield connection.default_channel


@pytest.mark.parametrize(("scheme", "is_encrypted"), [("redis", False), ("rediss", True)])
def test_a_broker_whose_address_says_so_is_spoken_to_in_secret(scheme: str, is_encrypted: bool) -> None:
    connection = app.connection_for_write(f"{scheme}://:hunter2@broker.example:6379/0")
    assert connection.transport_cls == scheme
    assert bool(connection.ssl) is is_encrypted
    assert connection.as_uri() == f"{scheme}://:**@broker.example:6379/0"


@pytest.mark.redis
def test_every_message_of_a_channel_goes_through_one_client(channel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    usual = channel.Client

    def client(**options: Any) -> Any:
        made.append(usual(**options))
        return made[-1]

    monkeypatch.setattr(channel, "Client", client)
    for number in range(5):
        channel._put("told-in-a-test", {"number": number})
    assert channel._purge("told-in-a-test") == 5
    assert len(made) == 1


@pytest.mark.redis
def test_a_channel_whose_connections_were_closed_goes_on_through_new_ones(channel: Any) -> None:
    with channel.conn_or_acquire() as first:
        assert first.ping()
    channel._disconnect_pools()
    with channel.conn_or_acquire() as second:
        assert second.ping()
    assert second is not first
