"""Messages are sent and acknowledged through one client, as long as there is one way to the broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings

from agentapp import connections
from agentapp.celery import app
from agentapp.redis_transport import Transport
from benchmarks.servers import Redis


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
def test_a_broker_is_reached_over_a_socket_in_the_file_system(tmp_path: Path) -> None:
    socket = tmp_path / "redis.sock"
    server = Redis(tmp_path, "--unixsocket", str(socket))
    server.start()
    try:
        with redis.Redis.from_url(f"unix://{socket}") as client:
            client.config_set("requirepass", "s3cret/1")
        address = f"unix://{socket}?db=3&password=s3cret%2F1"
        url = connections.broker_url(address)
        with app.connection_for_write(url) as connection:
            channel: Any = connection.default_channel
            channel._put("told-in-a-test", {"number": 1})
        with redis.Redis.from_url(address) as client:
            assert client.llen("told-in-a-test") == 1
    finally:
        server.end()


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
