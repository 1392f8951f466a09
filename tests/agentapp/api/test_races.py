"""Many at once, with real threads on PostgreSQL."""

import uuid
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from agentapp.models import Agent, Run
from approvals import ledger
from approvals.models import Approval, Decision
from tests.races import race

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

THREADS = 16


def copies(client: Any) -> list[Any]:
    """The same token, in as many programs as the pool has connections; the test's own connection is freed for it."""
    connection.close()
    return [replace(client, http=Client()) for _ in range(THREADS)]


def test_one_key_sent_by_sixteen_at_once_starts_one_run(client_of: Any, sam: User, support: Agent) -> None:
    client = client_of(sam, "runs:create")
    for _ in range(5):
        body = {"agent": "support", "input": "Refund it.", "conversation": f"c-{uuid.uuid4()}"}
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        answers = race(*[partial(each.post, "/runs", body, **headers) for each in copies(client)])
        assert Counter(answer.status for answer in answers) == {201: 1, 200: THREADS - 1}
        [run_id] = {answer.data["id"] for answer in answers}
        assert Run.objects.filter(request_key=headers["Idempotency-Key"]).count() == 1
        assert ledger.verify(f"run:{run_id}") == (1, None)


def test_one_decision_sent_by_sixteen_at_once_counts_once(
    client_of: Any, ask: Any, answer: Any, sam: User, dana: User
) -> None:
    approval = ask(sam)
    client, body = client_of(dana, "approvals:decide"), answer(approval)
    path = f"/approvals/{approval.pk}/decisions"
    answers = race(*[partial(each.post, path, body) for each in copies(client)])
    assert Counter(found.status for found in answers) == {201: 1, 200: THREADS - 1}
    assert Decision.objects.count() == 1


def test_of_two_people_deciding_at_once_one_wins_and_the_other_is_told(
    client_of: Any, ask: Any, answer: Any, sam: User, dana: User, marco: User
) -> None:
    danas, marcos = client_of(dana, "approvals:decide"), client_of(marco, "approvals:decide")
    for _ in range(50):
        approval = ask(sam)
        path = f"/approvals/{approval.pk}/decisions"
        approve, reject = answer(approval), answer(approval, "reject", message="No.")
        answers = race(partial(danas.post, path, approve), partial(marcos.post, path, reject))
        won, lost = sorted(answers, key=lambda found: found.status)
        assert (won.status, lost.status, lost.code) == (201, 409, "already_decided")
        assert lost.data["decided_by"]["username"] == won.data["decision"]["user"]["username"]
        assert Decision.objects.filter(approval=approval).count() == 1
        assert Approval.objects.get(pk=approval.pk).state == won.data["approval"]["state"]
