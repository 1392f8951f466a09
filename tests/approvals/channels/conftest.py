"""A chat service on loopback. Its address is a secret."""

from collections.abc import Iterator

import pytest

from tests.webhook_receiver import Receiver


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    running = Receiver()
    monkeypatch.setenv("CREDENTIAL_CHAT", running.url.replace("http://", "json://someone:hunter3@"))
    yield running
    running.close()
