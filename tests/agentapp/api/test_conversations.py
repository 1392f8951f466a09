"""Conversations over the API: what was said, who may read it, versions and forks."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import conversations, runs
from agentapp.messages import StopSignal
from agentapp.models import Agent, Conversation, Run
from approvals import ledger

NEW = {"agent": "support", "input": "Please refund it.", "conversation": "ticket-1"}


@pytest.fixture
def sams(client_of: Any, sam: User, support: Agent) -> Any:
    return client_of(sam, "runs:create", "runs:read")


@pytest.fixture
def answered(sams: Any) -> Callable[..., Conversation]:
    """`answered("One?", "Two?")`: a conversation in which each question has its answer."""

    def make(*questions: str) -> Conversation:
        for question in questions:
            finish(sams.post("/runs", {**NEW, "input": question}).data["id"], f"{question} Yes.")
        return Conversation.objects.get(key="ticket-1")

    return make


def finish(run_id: str, answer: str) -> None:
    with ledger.transaction():
        run = runs.lock(run_id)
        assert run is not None
        assert runs.finish(run, "succeeded", StopSignal("completed", ""), answer)
        conversations.add(run.conversation, run, "assistant", answer)


def path(conversation: Conversation, end: str = "") -> str:
    return f"/conversations/{conversation.pk}{end}"


def test_a_conversation_is_read_with_its_messages_and_version(sams: Any, answered: Any) -> None:
    conversation = answered("One?", "Two?")
    read = sams.get(path(conversation))
    assert read.status == 200
    assert (read.data["key"], read.data["agent"], read.data["version"]) == ("ticket-1", "support", 4)
    said = [(message["seq"], message["role"], message["content"]) for message in read.data["messages"]]
    assert said == [
        (1, "user", "One?"),
        (2, "assistant", "One? Yes."),
        (3, "user", "Two?"),
        (4, "assistant", "Two? Yes."),
    ]
    assert sams.get(path(conversation)).data == read.data
    of_runs = {message["run"] for message in read.data["messages"]}
    assert of_runs == {run["id"] for run in sams.get("/runs", conversation=conversation.pk).data["items"]}


def test_a_long_conversation_is_read_in_pages(sams: Any, answered: Any) -> None:
    conversation = answered("One?", "Two?")
    first = sams.get(path(conversation), limit=3).data
    rest = sams.get(path(conversation), after=first["next"]).data
    assert [message["seq"] for message in first["messages"] + rest["messages"]] == [1, 2, 3, 4]
    assert rest["next"] is None


def test_the_runs_of_one_conversation_are_listed_with_what_each_took(sams: Any, answered: Any) -> None:
    conversation = answered("One?", "Two?")
    sams.post("/runs", {**NEW, "conversation": "ticket-2"})
    listed = sams.get("/runs", conversation=conversation.pk).data["items"]
    assert [(run["title"], run["state"], run["step_count"]) for run in listed] == [
        ("Two?", "succeeded", 0), ("One?", "succeeded", 0)
    ]  # fmt: skip
    assert {run["conversation_id"] for run in listed} == {str(conversation.pk)}


def test_a_second_run_says_what_it_waits_for_and_has_no_answer(sams: Any) -> None:
    first = sams.post("/runs", NEW).data
    second = sams.post("/runs", {**NEW, "input": "And the cups?"}).data
    assert (first["after"], second["after"]) == (None, first["id"])
    finish(first["id"], "Refunded.")
    second = sams.get(f"/runs/{second['id']}").data
    assert (second["after"], second["answer"], second["state"]) == (None, None, "queued")


def test_a_start_that_has_not_read_the_last_message_is_a_conflict(sams: Any, answered: Any) -> None:
    answered("One?")
    conflict = sams.post("/runs", {**NEW, "conversation_version": 1})
    assert (conflict.status, conflict.code, conflict.data["conversation_version"]) == (409, "conversation_changed", 2)
    assert Run.objects.count() == 1
    assert sams.post("/runs", {**NEW, "conversation_version": 2}).status == 201


@pytest.mark.parametrize("version", [-1, "1", 1.5, True, 2**31])
def test_a_version_is_a_whole_number(sams: Any, version: Any) -> None:
    refused = sams.post("/runs", {**NEW, "conversation_version": version})
    assert (refused.status, refused.data["field"]) == (422, "conversation_version")


def test_a_run_that_is_told_to_stop_says_why_when_it_has(sams: Any) -> None:
    run = Run.objects.get(pk=sams.post("/runs", NEW).data["id"])
    assert runs.claim(run.pk) is not None
    with ledger.transaction():
        assert runs.request_cancel(run, "system", "superseded", "A new message came in.")
    shown = sams.get(f"/runs/{run.pk}").data
    assert (shown["stop_reason"], shown["stop_message"]) == (None, None)


def test_a_fork_is_made_and_returned(sams: Any, answered: Any) -> None:
    source = answered("One?", "Two?")
    forked = sams.post(path(source, "/fork"), {"key": "ticket-1-b", "upto": 2})
    assert forked.status == 201
    assert (forked.data["forked_from"], forked.data["version"]) == (str(source.pk), 2)
    assert [message["content"] for message in forked.data["messages"]] == ["One?", "One? Yes."]
    assert sams.get(f"/conversations/{forked.data['id']}").data == forked.data


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "key"),
        ({"key": ""}, 422, "key"),
        ({"key": " "}, 422, "key"),
        ({"key": "k" * 201}, 422, "key"),
        ({"key": "b", "upto": 0}, 422, "upto"),
        ({"key": "b", "upto": 3}, 422, "upto"),
        ({"key": "b", "upto": "2"}, 422, "upto"),
        ({"key": "b", "until": 2}, 422, "until"),
        ({"key": "ticket-1"}, 409, "key"),
    ],
)
def test_a_fork_that_makes_no_sense_names_the_field(
    sams: Any, answered: Any, body: Any, status: int, field: str
) -> None:
    refused = sams.post(path(answered("One?"), "/fork"), body)
    assert (refused.status, refused.data["field"]) == (status, field)
    assert Conversation.objects.count() == 1


def test_a_summary_is_kept_and_returned(sams: Any, answered: Any) -> None:
    conversation = answered("One?", "Two?")
    body = {"summary": "Yes, twice.", "until": 4, "conversation_version": 4}
    kept = sams.post(path(conversation, "/summary"), body)
    assert (kept.status, kept.data["summary"], kept.data["summary_until"]) == (200, "Yes, twice.", 4)
    assert (kept.data["version"], len(kept.data["messages"])) == (4, 4)
    assert sams.get(path(conversation)).data == kept.data
    assert sams.post(path(conversation, "/summary"), body).data == kept.data


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"until": 2}, 422, "invalid", "summary"),
        ({"summary": "", "until": 2}, 422, "message_required", "summary"),
        ({"summary": 5, "until": 2}, 422, "invalid", "summary"),
        ({"summary": "x" * 100_001, "until": 2}, 422, "invalid", "summary"),
        ({"summary": "x"}, 422, "invalid", "until"),
        ({"summary": "x", "until": 0}, 422, "invalid", "until"),
        ({"summary": "x", "until": 3}, 422, "invalid", "until"),
        ({"summary": "x", "until": "2"}, 422, "invalid", "until"),
        ({"summary": "x", "until": 2, "upto": 2}, 422, "invalid", "upto"),
        ({"summary": "x", "until": 1}, 409, "already_summarised", "until"),
        ({"summary": "x", "until": 2, "conversation_version": 1}, 409, "conversation_changed", "conversation_version"),
    ],
)
def test_a_summary_that_is_not_kept_says_why(
    sams: Any, answered: Any, body: Any, status: int, code: str, field: str
) -> None:
    conversation = answered("One?")
    conversations.summarise(conversation, "Before.", 2)
    refused = sams.post(path(conversation, "/summary"), body)
    assert (refused.status, refused.code, refused.data["field"]) == (status, code, field)
    conversation.refresh_from_db()
    assert (conversation.summary, conversation.summary_until) == ("Before.", 2)


def test_a_foreign_conversation_and_a_missing_one_look_the_same(
    client_of: Any, answered: Any, otto: User, mia: User
) -> None:
    conversation = answered("One?")
    ottos = client_of(otto, "runs:create", "runs:read")
    bodies = {"": None, "/fork": {"key": "mine"}, "/summary": {"summary": "Mine.", "until": 2}}
    for end, body in bodies.items():
        send = ottos.get if body is None else lambda where, body=body: ottos.post(where, body)
        foreign, missing = send(path(conversation, end)), send(f"/conversations/{conversation.agent_id}{end}")
        assert (foreign.status, foreign.data) == (404, missing.data | {"detail": foreign.data["detail"]})
        assert foreign.data["detail"] == missing.data["detail"]
    assert client_of(mia, "runs:read").get(path(conversation)).status == 200


def test_of_a_shared_conversation_each_sees_what_they_started(
    client_of: Any, answered: Any, sam: User, otto: User, make_run: Callable[..., Run]
) -> None:
    conversation = answered("One?")
    conversations.summarise(conversation, "Sam asked.", 2)
    with ledger.transaction():
        conversations.add(conversation, make_run(otto), "user", "Mine.")
    ottos = client_of(otto, "runs:create", "runs:read")
    read = ottos.get(path(conversation)).data
    assert [message["content"] for message in read["messages"]] == ["Mine."]
    assert (read["summary"], read["summary_until"]) == (None, 0)
    assert ottos.post(path(conversation, "/fork"), {"key": "mine"}).status == 403
    assert client_of(sam, "runs:read").get(path(conversation)).data["summary"] == "Sam asked."
