"""A database that accepts no changes, such as a standby before it is promoted, can still be read."""

import pytest
from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from django.db import connection

from agentapp import auth
from approvals import ledger

READ_ONLY = {"postgresql": "SET default_transaction_read_only = on", "sqlite": "PRAGMA query_only = ON"}
AS_BEFORE = {"postgresql": "SET default_transaction_read_only = off", "sqlite": "PRAGMA query_only = OFF"}


@pytest.fixture
def token(dana, transactional_db):
    """A token that nobody has used yet, so that its first use would be noted."""
    return auth.issue_token(dana, "reader", ["approvals:read"], ledger.SYSTEM)[1]


@pytest.fixture
def signed_in(client, dana, transactional_db):
    """Through the sign-in page, so that the session is in the list of sessions, which says when it was last seen."""
    client.force_login(dana)
    session = client.session
    session[AUTHENTICATION_METHODS_SESSION_KEY] = [{"method": "password"}]
    session.save()
    return client


@pytest.fixture
def read_only(token, signed_in):
    with connection.cursor() as cursor:
        cursor.execute(READ_ONLY[connection.vendor])
    yield
    with connection.cursor() as cursor:
        cursor.execute(AS_BEFORE[connection.vendor])


def test_programs_can_read(client, token, read_only):
    answer = client.get("/api/v1/approvals", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_people_can_read(signed_in, read_only):
    assert signed_in.get("/inbox/").status_code == 200
