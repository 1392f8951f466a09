"""The demo for processes of their own: opened once, gone on with afterwards."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

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
    assert "Going on with the data of last time." in second.getvalue()
    assert Run.objects.count() == started
