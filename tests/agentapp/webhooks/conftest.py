"""An endpoint of the installation, and the program behind it."""

import base64
import ipaddress
from collections.abc import Iterator
from typing import Any

import pytest

from agentapp.models import WebhookEndpoint
from agentapp.models.webhooks import WEBHOOK_EVENTS
from tests.webhook_receiver import Receiver

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes, right").decode()
OTHER_SECRET = "whsec_" + base64.b64encode(b"another key, also long enough, so").decode()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Receiver]:
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.0/24")]
    monkeypatch.setenv("CREDENTIAL_DESK", SECRET)
    monkeypatch.setenv("CREDENTIAL_DESK_NEW", OTHER_SECRET)
    running = Receiver()
    yield running
    running.close()


@pytest.fixture
def endpoint(db: None, receiver: Receiver) -> WebhookEndpoint:
    return WebhookEndpoint.objects.create(name="desk", url=receiver.url, events=list(WEBHOOK_EVENTS), credential="DESK")
