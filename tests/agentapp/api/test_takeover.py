"""Writing in the agent's place, through the API."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import auth
from agentapp.models import Agent, Message, Run
from tests.agentapp.api.conftest import ApiClient

pytestmark = pytest.mark.django_db
TICKET = {"agent": "support", "input": "Where is it?", "conversation": "ticket-7"}


@pytest.fixture
def sams(client_of: Any, support: Agent, sam: User) -> Any:
    return client_of(sam, "runs:create", "runs:read")


@pytest.fixture
def taken(sams: Any) -> str:
    """A run that Sam has taken over."""
    run: str = sams.post("/runs", TICKET).data["id"]
    answer = sams.post(f"/runs/{run}/take_over")
    assert (answer.status, answer.data["state"]) == (200, "paused")
    assert answer.data["taken_over_by"] == {"username": "sam", "name": "Sam Operator"}
    return run


def test_what_the_customer_says_meanwhile_is_kept_and_starts_nothing(sams: Any, taken: str) -> None:
    kept = sams.post("/runs", {**TICKET, "input": "Hello?"}, **{"Idempotency-Key": "k"})
    assert (kept.status, kept.data["id"], Run.objects.count()) == (202, taken, 1)
    again = sams.post("/runs", {**TICKET, "input": "Hello?"}, **{"Idempotency-Key": "k"})
    assert (again.status, again.headers["Idempotent-Replay"]) == (200, "true")
    assert sams.post("/runs", {**TICKET, "input": "Ho?"}, **{"Idempotency-Key": "k"}).code == "idempotency_key_reused"
    assert Message.objects.count() == 2


def test_the_person_writes_and_is_named(sams: Any, taken: str) -> None:
    wrote = sams.post(f"/runs/{taken}/messages", {"text": "I look into it."}, **{"Idempotency-Key": "m"})
    assert (wrote.status, wrote.data["role"], wrote.data["author"]["username"]) == (201, "assistant", "sam")
    again = sams.post(f"/runs/{taken}/messages", {"text": "I look into it."}, **{"Idempotency-Key": "m"})
    assert (again.status, again.data, again.headers["Idempotent-Replay"]) == (200, wrote.data, "true")
    assert "Idempotent-Replay" not in wrote.headers
    read = sams.get(f"/conversations/{sams.get(f'/runs/{taken}').data['conversation_id']}").data
    assert (read["mode"], read["version"]) == ("manual", 2)
    assert [message["author"] and message["author"]["name"] for message in read["messages"]] == [None, "Sam Operator"]
    stale = {"text": "Too late.", "conversation_version": 1}
    assert sams.post(f"/runs/{taken}/messages", stale).code == "conversation_changed"


def test_handed_back_the_run_goes_on(sams: Any, taken: str) -> None:
    answer = sams.post(f"/runs/{taken}/hand_back")
    assert (answer.status, answer.data["state"], answer.data["taken_over_by"]) == (200, "queued", None)
    again = sams.post(f"/runs/{taken}/hand_back")
    assert (again.status, again.code) == (409, "not_taken_over")
    assert sams.post(f"/runs/{taken}/messages", {"text": "Hm."}).code == "not_taken_over"


def test_who_comes_second_is_told_who_was_first(client_of: Any, taken: str, mia: User) -> None:
    mias = client_of(mia, "runs:create")
    refused = mias.post(f"/runs/{taken}/take_over")
    assert (refused.status, refused.code) == (409, "taken_over")
    assert "Sam Operator" in refused.data["detail"]
    assert "Sam Operator" in mias.post(f"/runs/{taken}/resume").data["detail"]


def test_what_may_not_be_seen_is_not_there(client_of: Any, taken: str, otto: User) -> None:
    ottos = client_of(otto, "runs:create")
    for path in (f"/runs/{taken}", f"/runs/{uuid.uuid4()}"):
        for act, body in (("take_over", None), ("hand_back", None), ("messages", {"text": "Hi"})):
            assert ottos.post(f"{path}/{act}", body).code == "not_found"


@pytest.mark.parametrize("body", [{}, {"text": 7}, {"text": ""}, {"text": "a", "more": 1}, {"text": "x" * 100_001}])
def test_a_message_that_makes_no_sense_is_refused(sams: Any, taken: str, body: Any) -> None:
    assert sams.post(f"/runs/{taken}/messages", body).status == 422


def test_who_made_the_token_it_was_done_with_decides_nothing_about_the_run_either(
    client_of: Any, sams: Any, sam: User, dana: User, support: Agent
) -> None:
    run = sams.post("/runs", TICKET).data["id"]
    _, secret = auth.issue_token(sam, "theirs", ["runs:create"], actor="system", issued_by=dana)

    assert ApiClient(secret).post(f"/runs/{run}/take_over").status == 200

    assert Run.objects.get(pk=run).takers == [sam.pk, dana.pk]
