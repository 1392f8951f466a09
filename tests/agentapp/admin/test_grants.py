"""A view of what people have allowed ahead, without values that have since become secret."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agentapp.models import Tool
from tests.conftest import Clerk
from tests.grants import a_grant


@pytest.fixture
def shown(clerk: Clerk, dana: User, ada: User, client: Client):
    grant = a_grant(clerk, dana, rules={"to": "is"})
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    client.force_login(User.objects.get(pk=ada.pk))
    return lambda: client.get(reverse("admin:approvals_grant_change", args=[grant.pk])).content.decode()


def test_its_constraints_are_told(shown) -> None:
    assert "to is exactly ann" in shown()


def test_what_its_tool_marks_as_secret_since_is_masked(shown) -> None:
    Tool.objects.filter(name="send").update(secret_fields=["to"])
    assert "exactly ann" not in shown()
