"""Threat 8 at every address that changes something: neither a cookie alone nor a wrong token changes anything."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.security import surface
from tests.security.surface import World

pytestmark = pytest.mark.django_db
# Returned before the form's token is checked: nothing is there, another method is needed, or it is another's page.
REFUSALS = {401, 403, 404, 405}
WRONG = ("none", "wrong")


@pytest.fixture
def world(roles: object) -> World:
    return surface.make_world()


def changing() -> Iterator[tuple[str, str, str]]:
    return ((method, route, scope) for method, route, scope in surface.operations() if method != "GET")


def forged(client: Client, method: str, url: str, **more: Any) -> tuple[int, set[str]]:
    """The status of the answer, and the tables that were written. Everything is rolled back."""
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries:
            response = client.generic(method, url, **more)
        transaction.set_rollback(True)
    written = {found[1] for query in queries if (found := surface.WRITES.match(query["sql"]))}
    return response.status_code, written - surface.ALLOWED


@pytest.mark.parametrize("token", WRONG)
def test_no_page_takes_a_post_without_the_token_of_its_form(world: World, token: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.people["admin"])
    client.get("/inbox/")
    headers = {"X-CSRFToken": uuid.uuid4().hex * 2} if token == "wrong" else {}
    seen, taken = 0, []
    for route in surface.routes():
        if route.startswith(surface.API):
            continue
        url = surface.address(route, world)
        status, written = forged(client, "POST", url, headers=headers)
        seen += status == 403
        if status not in REFUSALS or written:
            taken.append((url, status, written))
    assert taken == []
    assert seen > 100


@pytest.mark.parametrize("token", WRONG)
def test_no_operation_takes_a_cookie_or_a_token_that_is_none(world: World, token: str) -> None:
    """In the browser of a person who may do it: cookies do not count there."""
    wrong = []
    for method, route, scope in changing():
        client = Client(enforce_csrf_checks=True)
        client.force_login(world.people["admin"])
        headers = {"Authorization": f"Bearer cs_{uuid.uuid4().hex}"} if token == "wrong" else {}
        body = surface.body(method, route)
        url = surface.address(route, world)
        status, written = forged(client, method, url, data=body, content_type="application/json", headers=headers)
        if status != 401 or written:
            wrong.append((method, url, status, written))
        # The token is the reason, not the body: the right token gets further.
        right = surface.token_of(world.people["admin"], scope)
        assert forged(client, method, url, data=body, content_type="application/json", headers=right)[0] != 401
    assert wrong == []
