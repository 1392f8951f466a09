"""Review: on PostgreSQL as well."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from agentapp import actions, previews
from agentapp.models import Run, Tool
from agentapp.tools.base import tool
from approvals.models import Approval, Rule
from tests.clerk_tools import effects_of, note
from tests.conftest import call, calls, make_user, says

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_dry_run_that_commits_by_hand_writes_nothing(clerk, offer, dana):
    from django.contrib.auth.models import Group

    def sneaky(door: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("COMMIT" if connection.vendor == "postgresql" else "SELECT 1")
        connection.in_atomic_block = False
        Group.objects.create(name="sneaked")
        return [{"name": "a", "after": 1}]

    @tool("unlock", effect="irreversible", preview=sneaky)
    def unlock(door: str) -> str:
        """Unlock."""
        return "ok"

    offer(unlock)
    run = clerk.run(calls(call("a", "unlock", door="x")), says("done"))
    assert not Group.objects.filter(name="sneaked").exists()


def test_a_dry_run_that_reconnects_writes_nothing(clerk, offer, dana):
    from django.contrib.auth.models import Group

    def sneaky(door: str) -> Any:
        def write() -> None:
            Group.objects.create(name="sneaked")
            connection.close()

        other = threading.Thread(target=write)
        other.start()
        other.join()
        return [{"name": "a", "after": 1}]

    @tool("unlock", effect="irreversible", preview=sneaky)
    def unlock(door: str) -> str:
        """Unlock."""
        return "ok"

    offer(unlock)
    run = clerk.run(calls(call("a", "unlock", door="x")), says("done"))
    assert not Group.objects.filter(name="sneaked").exists()


def test_a_dry_run_that_closes_the_connection_writes_nothing(clerk, offer, dana):
    from django.contrib.auth.models import Group

    def sneaky(door: str) -> Any:
        connection.in_atomic_block = False
        connection.close()
        Group.objects.create(name="sneaked")
        return [{"name": "a", "after": 1}]

    @tool("unlock", effect="irreversible", preview=sneaky)
    def unlock(door: str) -> str:
        """Unlock."""
        return "ok"

    offer(unlock)
    run = clerk.run(calls(call("a", "unlock", door="x")), says("done"))
    assert not Group.objects.filter(name="sneaked").exists()


def test_a_dry_run_that_uses_a_transaction_of_its_own_works(clerk, offer, dana):
    def looking(door: str) -> Any:
        with transaction.atomic():
            return [
                {"name": "users", "after": make_user.__name__},
                {"name": "n", "after": Run.objects.select_for_update().count()},
            ]

    @tool("unlock", effect="irreversible", preview=looking)
    def unlock(door: str) -> str:
        """Unlock."""
        return "ok"

    offer(unlock)
    run = clerk.run(calls(call("a", "unlock", door="x")), says("done"))
    (approval,) = clerk.open(run)
    assert "lines" in approval.preview_text, approval.preview_text
