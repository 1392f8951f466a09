"""Reporting what became of a call whose outcome is unknown."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import executions
from agentapp.messages import ToolResult
from agentapp.models import Run, ToolExecution
from approvals import ledger
from approvals.models import Event

NOTE = "It stands in the payment provider's list."


@pytest.fixture
def resolving(client_of: Any, dana: User) -> Any:
    return client_of(dana, "approvals:decide")


@pytest.mark.parametrize(
    ("outcome", "state", "status"),
    [("happened", "finished", "ok"), ("did_not_happen", "finished", "fatal_error"), ("retry", "proposed", None)],
)
def test_a_person_says_what_became_of_a_call(
    resolving: Any, lost: Any, sam: User, outcome: str, state: str, status: str | None
) -> None:
    execution = lost(sam)
    said = resolving.post(f"/tool-executions/{execution.pk}/outcome", {"outcome": outcome, "note": NOTE})
    assert (said.status, said.data["state"], said.data["result_status"]) == (200, state, status)
    assert said.data["outcome_note"] == NOTE
    assert said.data["args"]["account"] == "••••••"
    assert Run.objects.get(pk=execution.run_id).wake_at is not None
    assert Event.objects.filter(run_id=execution.run_id, actor__contains="dana", type__startswith="tool_call.").exists()


def test_the_second_to_say_so_is_refused(resolving: Any, lost: Any, sam: User, everything: Any) -> None:
    execution = lost(sam)
    path = f"/tool-executions/{execution.pk}/outcome"
    resolving.post(path, {"outcome": "happened", "note": NOTE})
    before = everything()
    refused = resolving.post(path, {"outcome": "did_not_happen", "note": NOTE})
    assert (refused.status, refused.code) == (409, "already_resolved")
    assert everything() == before


def test_a_call_that_waits_for_approval_cannot_be_resolved_instead(
    resolving: Any, ask: Any, sam: User, everything: Any
) -> None:
    approval = ask(sam)
    before = everything()
    path = f"/tool-executions/{approval.execution_id}/outcome"
    assert resolving.post(path, {"outcome": "happened", "note": NOTE}).code == "already_resolved"
    assert resolving.post(path, {"outcome": "retry", "note": NOTE}).code == "already_resolved"
    assert everything() == before


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"outcome": "maybe", "note": NOTE}, "invalid", "outcome"),
        ({"outcome": "happened"}, "invalid", "note"),
        ({"outcome": "happened", "note": " "}, "message_required", "note"),
        ({"outcome": "happened", "note": 5}, "invalid", "note"),
        ({"outcome": "happened", "note": "n" * 10_001}, "invalid", "note"),
        ({"note": NOTE}, "invalid", "outcome"),
        ({"outcome": "happened", "note": NOTE, "result": {"paid": True}}, "invalid", "result"),
    ],
)
def test_an_outcome_that_makes_no_sense_names_the_field(
    resolving: Any, lost: Any, sam: User, everything: Any, body: Any, code: str, field: str
) -> None:
    execution = lost(sam)
    before = everything()
    refused = resolving.post(f"/tool-executions/{execution.pk}/outcome", body)
    assert (refused.status, refused.code, refused.data["field"]) == (422, code, field)
    assert everything() == before


def test_who_started_the_run_says_nothing_about_its_calls(
    client_of: Any, lost: Any, dana: User, everything: Any
) -> None:
    execution = lost(dana)
    client, before = client_of(dana, "approvals:decide"), everything()
    refused = client.post(f"/tool-executions/{execution.pk}/outcome", {"outcome": "happened", "note": NOTE})
    assert (refused.status, refused.code) == (403, "forbidden")
    assert everything() == before


def test_a_foreign_call_a_missing_one_and_a_bad_id_look_the_same(
    client_of: Any, lost: Any, sam: User, otto: User, everything: Any
) -> None:
    execution = lost(sam)
    client, before = client_of(otto, "approvals:decide"), everything()
    answers = [
        client.post(f"/tool-executions/{id}/outcome", {"outcome": "happened", "note": NOTE})
        for id in (execution.pk, uuid.uuid4(), "not-an-id")
    ]
    assert {found.status for found in answers} == {404}
    assert len({str(found.data) for found in answers}) == 1
    assert everything() == before
    assert ToolExecution.objects.get(pk=execution.pk).state == "outcome_unknown"


def test_whoever_may_see_the_run_reads_the_whole_of_a_result_and_its_artifact(
    client_of: Any, lost: Any, sam: User, otto: User
) -> None:
    execution = lost(sam)
    result = ToolResult(data={"rows": ["x" * 20_000]}, artifact={"file": "a.csv"}, metadata={"took": 3})
    with ledger.transaction():
        executions.resolve(execution, result, NOTE, "person")
    path = f"/tool-executions/{execution.pk}/result"
    read = client_of(sam, "runs:read").get(path)
    assert (read.status, read.data["result_status"]) == (200, "ok")
    assert (read.data["result"], read.data["artifact"]) == ({"rows": ["x" * 20_000]}, {"file": "a.csv"})
    assert (read.data["metadata"], read.data["cost"]) == ({"took": 3}, "0.000000")
    foreign = client_of(otto, "runs:read")
    missing = foreign.get(f"/tool-executions/{uuid.uuid4()}/result")
    assert (foreign.get(path).status, foreign.get(path).data) == (404, missing.data)


def test_a_call_without_a_result_yet_has_none(client_of: Any, lost: Any, sam: User) -> None:
    read = client_of(sam, "runs:read").get(f"/tool-executions/{lost(sam).pk}/result")
    assert (read.status, read.data["result"], read.data["result_status"]) == (200, None, None)
