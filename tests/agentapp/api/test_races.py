"""Many at once, with real threads on PostgreSQL."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agentapp.models import Agent, Run
from approvals import ledger
from approvals.models import Approval, Decision

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

THREADS = 16


@pytest.fixture(autouse=True)
def _needs_postgresql(vendor: str) -> None:
    if vendor != "postgresql":
        pytest.skip("needs PostgreSQL")


def at_once[T](acts: list[Callable[[], T]]) -> list[T]:
    """What each act gave, all started at the same moment, each in a thread with a connection of its own."""
    gate = threading.Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        try:
            gate.wait()
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_one_key_sent_by_sixteen_at_once_starts_one_run(client_of: Any, sam: User, support: Agent) -> None:
    secret = client_of(sam, "runs:create").secret
    for _ in range(5):
        body = {"agent": "support", "input": "Refund it.", "conversation": f"c-{uuid.uuid4()}"}
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        clients = [type(client_of(sam, "runs:create"))(secret) for _ in range(THREADS)]
        answers = at_once([partial(client.post, "/runs", body, **headers) for client in clients])
        assert Counter(answer.status for answer in answers) == {201: 1, 200: THREADS - 1}
        [run_id] = {answer.data["id"] for answer in answers}
        assert Run.objects.filter(request_key=headers["Idempotency-Key"]).count() == 1
        assert ledger.verify(f"run:{run_id}") == (1, None)


def test_one_decision_sent_by_sixteen_at_once_counts_once(
    client_of: Any, ask: Any, answer: Any, sam: User, dana: User
) -> None:
    approval = ask(sam)
    secret, body = client_of(dana, "approvals:decide").secret, answer(approval)
    clients = [type(client_of(dana, "approvals:decide"))(secret) for _ in range(THREADS)]
    path = f"/approvals/{approval.pk}/decisions"
    answers = at_once([partial(client.post, path, body) for client in clients])
    assert Counter(found.status for found in answers) == {201: 1, 200: THREADS - 1}
    assert Decision.objects.count() == 1


def test_of_two_people_deciding_at_once_one_wins_and_the_other_is_told(
    client_of: Any, ask: Any, answer: Any, sam: User, dana: User, marco: User
) -> None:
    danas, marcos = client_of(dana, "approvals:decide"), client_of(marco, "approvals:decide")
    for _ in range(10):
        approval = ask(sam)
        path = f"/approvals/{approval.pk}/decisions"
        approve, reject = answer(approval), answer(approval, "reject", message="No.")
        answers = at_once([partial(danas.post, path, approve), partial(marcos.post, path, reject)])
        won, lost = sorted(answers, key=lambda found: found.status)
        assert (won.status, lost.status, lost.code) == (201, 409, "already_decided")
        assert lost.data["decided_by"]["username"] == won.data["decision"]["user"]["username"]
        assert Decision.objects.filter(approval=approval).count() == 1
        assert Approval.objects.get(pk=approval.pk).state == won.data["approval"]["state"]
