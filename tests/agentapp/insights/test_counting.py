"""The counts for an hour's rows."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import erasing
from agentapp.insights import counting
from approvals.models import Approval
from tests.conftest import call, calls, make_user, says

EDITED = '{"account":"ann","amount":4}'


@pytest.mark.parametrize(("answer", "changed"), [({"type": "edit", "arguments_text": EDITED}, 1), ({}, 0)])
def test_a_call_that_people_changed_counts_so_after_its_words_are_gone(
    clerk: Any, dana: User, ada: User, client: Client, answer: dict[str, str], changed: int
) -> None:
    run = clerk.run(calls(call("a", "pay", account="ann", amount=5)), says("done"))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana, **answer)
    approval.refresh_from_db()
    if approval.state == "pending":  # the person who changed it does not approve it alone
        clerk.decide(approval, make_user("Marco", "approver"))
    clerk.drive(run)

    def figures() -> list[int]:
        now = timezone.now()
        rows = counting.count_requests(now - timedelta(hours=2), now + timedelta(hours=1))
        mine = [row for row in rows if (row.by, row.team) == ("all", counting.ALL_TEAMS)]
        return [sum(getattr(row, name) for row in mine) for name in ("asked", "approved", "changed")]

    before = figures()
    assert before[-1] == changed
    erasing.erase("run", str(run.pk), "Ticket 12", ada, "ada")
    assert figures() == before
    assert Approval.objects.get(pk=approval.pk).is_edited == bool(changed)
    client.force_login(dana)
    for page in (f"/approvals/{approval.pk}/", f"/runs/{run.pk}/?step=1&call=0", "/inbox/?view=decided"):
        assert client.get(page).status_code == 200, page
