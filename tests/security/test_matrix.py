"""Every address × every role, compared with one table: `matrix.txt`. An address missing from the table fails.

The file is written by hand: when you add a page, say there who may open it.
"""

import re
from pathlib import Path

import pytest
from django.test import Client

from agentapp import auth
from tests.security import surface
from tests.security.surface import API, ROLES, World

# Lines about something else than an address, which other tests read.
OTHER = ("STREAM ", "MAIL ")
TABLE = Path(__file__).with_name("matrix.txt")
OF_API = ROLES[1:]
ADMIN = "admin/"
_LINE = re.compile(r"(.*?) +([-sxhno]{8})(?: ([-sxhno]{8}))?")
# These lead to the sign-in page after they have done their work.
OF_SIGNING_IN = ("logout/", "login/passkey/")
# What everybody has of their own.
THEIRS = ("settings/", "inbox/views/", *OF_SIGNING_IN)
pytestmark = pytest.mark.django_db


def table() -> dict[str, tuple[str, str]]:
    """Route → the letters of all roles for GET and for POST. The API has `METHOD route | scope` instead."""
    rows = {}
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            route, first, last = _LINE.fullmatch(line).groups()
            rows[route] = (first, last or first)
    return rows


@pytest.fixture
def world(roles: object) -> World:
    return surface.make_world()


def pages() -> list[str]:
    return [route for route in surface.routes() if not route.startswith((API, ADMIN))]


def test_every_address_has_its_line_and_every_line_its_address() -> None:
    listed = {name for name in table() if not name.startswith(OTHER)}
    there = {*pages(), *(f"{method} {route} | {scope}" for method, route, scope in surface.operations())}
    assert (sorted(there - listed), sorted(listed - there)) == ([], [])


@pytest.mark.parametrize("role", ROLES)
def test_each_page_answers_a_role_as_the_table_says(world: World, role: str) -> None:
    """A refusal must have written nothing."""
    expected, place, client = table(), ROLES.index(role), surface.signed_in(world, role)
    wrong = []
    for route in pages():
        for letters, method in zip(expected[route], ("GET", "POST"), strict=True):
            found, written = surface.asked(client, method, surface.address(route, world))
            if found != letters[place] or (found != "o" and written and route not in OF_SIGNING_IN):
                wrong.append(f"{method} {route}: {found}, not {letters[place]} {sorted(written)}")
    assert wrong == []


@pytest.mark.parametrize("role", OF_API)
def test_each_operation_answers_a_token_as_the_table_says(world: World, role: str) -> None:
    """With the scope it needs, for each role. Without a token nobody is let in."""
    expected, client, wrong = table(), Client(), []
    tokens = {scope: surface.token_of(world.people[role], scope) for scope in auth.SCOPES}
    for method, route, scope in surface.operations():
        url, place = surface.address(route, world), ROLES.index(role)
        letters = expected[f"{method} {route} | {scope}"][0]
        sent = {"data": surface.body(method, route), "content_type": "application/json"}
        found, written = surface.asked(client, method, url, headers=tokens[scope], **sent)
        if found != letters[place] or (found != "o" and written):
            wrong.append(f"{method} {route}: {found}, not {letters[place]} {sorted(written)}")
        without, written = surface.asked(client, method, url)
        if without != letters[0] or written:
            wrong.append(f"{method} {route} without a token: {without}")
    assert wrong == []


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_no_page_of_the_admin_opens_for_who_is_no_admin(world: World, role: str) -> None:
    client, wrong = surface.signed_in(world, role), []
    for route in surface.routes():
        if route.startswith(ADMIN) and route != "admin/logout/":  # which anybody may
            for method in ("GET", "POST"):
                found, written = surface.asked(client, method, surface.address(route, world))
                if found == "o" or written:
                    wrong.append(f"{method} {route}: {found} {sorted(written)}")
    assert wrong == []


def test_a_token_of_an_admin_with_any_other_scope_opens_no_operation(world: World) -> None:
    tokens = {scope: surface.token_of(world.people["admin"], scope) for scope in auth.SCOPES}
    let_in = [
        (method, route, other)
        for method, route, scope in surface.operations()
        for other in set(auth.SCOPES) - {scope}
        if surface.asked(Client(), method, surface.address(route, world), headers=tokens[other]) != ("x", set())
    ]
    assert let_in == []


def test_whoever_may_only_look_changes_nothing_but_what_is_theirs(world: World) -> None:
    """Also if they are refused in words, on a page that is shown again."""
    client, wrong = surface.signed_in(world, "viewer"), []
    for route in pages():
        _, written = surface.asked(client, "POST", surface.address(route, world))
        if written and not route.startswith(THEIRS):
            wrong.append(f"{route}: {sorted(written)}")
    assert wrong == []
