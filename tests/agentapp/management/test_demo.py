"""The demo as processes of its own: opened once, resumed afterwards."""

import socket
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from agentapp import embedded
from agentapp.demo.accounts import PASSWORD
from agentapp.models import Run


@pytest.mark.django_db(transaction=True)
def test_it_is_opened_without_serving_it(settings: Any) -> None:
    settings.DEBUG, settings.BASE_URL = True, "http://127.0.0.1:8000"
    first, second = StringIO(), StringIO()
    call_command("demo", no_serve=True, stdout=first)
    assert f"Everybody's password: {PASSWORD}" in first.getvalue()
    assert "http://127.0.0.1:8000" in first.getvalue()
    assert User.objects.filter(username="dana").exists()
    started = Run.objects.count()
    assert started >= 3
    call_command("demo", no_serve=True, stdout=second)
    assert "Going on with the data from last time." in second.getvalue()
    assert Run.objects.count() == started


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", ["demo", "serve"])
@pytest.mark.parametrize("said", ["", "https://console.example"])
def test_links_lead_to_where_it_listens_unless_somebody_said_where(
    settings: Any, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    settings.DEBUG, settings.BASE_URL = True, said or "http://127.0.0.1:8000"
    settings.BASE_URL_IS_SET = bool(said)
    seen: list[str] = []

    def serve(listener: socket.socket, worker: object) -> int:
        seen.extend([settings.BASE_URL, embedded.address(listener)])
        listener.close()
        return 0

    monkeypatch.setattr(embedded, "run", serve)
    monkeypatch.setattr(embedded, "Worker", object)
    call_command(command, port=0, stdout=StringIO())
    link, address = seen
    assert link == (said or address)
    assert not address.endswith(":8000")
