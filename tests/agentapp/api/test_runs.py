"""Starting, reading and stopping runs."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from agentapp.models import Agent, Run, Step, ToolExecution
from approvals import ledger
from approvals.models import Approval, Event

NEW = {"agent": "support", "input": "Please refund the kettle."}


@pytest.fixture
def starting(client_of: Any, sam: User, support: Agent, settings: Any) -> Any:
    settings.ALLOW_SCRIPTED_RUNS = True
    return client_of(sam, "runs:create", "runs:read")


def test_a_run_starts_for_the_tokens_person(starting: Any, sam: User) -> None:
    body = {
        **NEW, "route": "refunds", "customer": "cus_81", "conversation": "ticket-5521", "metadata": {"ticket": 5521}
    }  # fmt: skip
    started = starting.post("/runs", body)
    assert started.status == 201
    run = Run.objects.get(pk=started.data["id"])
    assert (run.starter, run.route, run.customer, run.metadata) == (sam, "refunds", "cus_81", {"ticket": 5521})
    assert run.conversation is not None
    assert run.conversation.key == "ticket-5521"
    assert started.data["state"] == "queued"
    assert started.data["starter"] == {"username": "sam", "name": "Sam Operator"}
    assert "Idempotent-Replay" not in started.headers
    assert starting.get(f"/runs/{run.pk}").data == started.data


def test_the_event_of_a_start_names_the_token(starting: Any) -> None:
    run = starting.post("/runs", NEW).data["id"]
    assert Event.objects.get(chain=f"run:{run}", seq=1).actor.endswith("(token test)")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "agent"),
        ({"agent": "support"}, "input"),
        ({**NEW, "agent": "nobody"}, "agent"),
        ({**NEW, "agent": 5}, "agent"),
        ({**NEW, "agent": None}, "agent"),
        ({**NEW, "agent": "s" * 81}, "agent"),
        ({**NEW, "input": ""}, "input"),
        ({**NEW, "input": "  \n "}, "input"),
        ({**NEW, "input": ["a"]}, "input"),
        ({**NEW, "input": "a" * 100_001}, "input"),
        ({**NEW, "route": "elsewhere"}, "route"),
        ({**NEW, "customer": "c" * 201}, "customer"),
        ({**NEW, "conversation": "c" * 201}, "conversation"),
        ({**NEW, "metadata": "text"}, "metadata"),
        ({**NEW, "metadata": []}, "metadata"),
        ({**NEW, "script": "text"}, "script"),
        ({**NEW, "script": []}, "script"),
        ({**NEW, "script": [{"tool_calls": [{"id": "1"}]}]}, "script/0/tool_calls/0/name"),
        ({**NEW, "script": [{"txt": "Done."}]}, "script/0/txt"),
        ({**NEW, "starter": "dana"}, "starter"),
        ({**NEW, "state": "succeeded"}, "state"),
        ({**NEW, "request_key": "mine"}, "request_key"),
    ],
)
def test_a_start_that_makes_no_sense_names_the_field(starting: Any, body: Any, field: str) -> None:
    refused = starting.post("/runs", body)
    assert refused.status == 422
    assert refused.data["field"] == field
    assert not Run.objects.exists()


def test_every_field_at_fault_is_named(starting: Any) -> None:
    refused = starting.post("/runs", {"agent": 5, "colour": "red"})
    assert {error["field"] for error in refused.data["errors"]} == {"agent", "input", "colour"}


def test_a_disabled_agent_is_an_unknown_one(starting: Any, support: Agent) -> None:
    Agent.objects.update(enabled=False)
    assert starting.post("/runs", NEW).code == "unknown_agent"


def test_a_script_is_refused_where_scripts_are_off(starting: Any, settings: Any) -> None:
    settings.ALLOW_SCRIPTED_RUNS = False
    refused = starting.post("/runs", {**NEW, "script": [{"text": "Done."}]})
    assert (refused.status, refused.data["field"]) == (403, "script")
    assert not Run.objects.exists()


def test_a_script_starts_where_scripts_are_on(starting: Any) -> None:
    started = starting.post("/runs", {**NEW, "script": [{"text": "Done."}]})
    assert (started.status, started.data["scripted"]) == (201, True)


def test_a_person_without_the_right_starts_nothing_with_the_right_scope(
    client_of: Any, mia: User, support: Agent
) -> None:
    refused = client_of(mia, "runs:create").post("/runs", NEW)
    assert (refused.status, refused.code) == (403, "forbidden")
    assert not Run.objects.exists()


def test_a_repeated_start_gives_the_first_run(starting: Any) -> None:
    first = starting.post("/runs", NEW, **{"Idempotency-Key": "ticket-5521"})
    again = starting.post("/runs", dict(reversed(NEW.items())), **{"Idempotency-Key": "ticket-5521"})
    assert (first.status, again.status) == (201, 200)
    assert again.headers["Idempotent-Replay"] == "true"
    assert again.data == first.data
    assert Run.objects.count() == 1


def test_the_same_key_with_another_body_is_refused(starting: Any) -> None:
    starting.post("/runs", NEW, **{"Idempotency-Key": "k"})
    refused = starting.post("/runs", {**NEW, "input": "Something else."}, **{"Idempotency-Key": "k"})
    assert (refused.status, refused.code, refused.data["field"]) == (422, "idempotency_key_reused", "Idempotency-Key")
    assert Run.objects.count() == 1


def test_two_people_may_use_the_same_key(starting: Any, client_of: Any, dana: User) -> None:
    key = {"Idempotency-Key": "k"}
    starting.post("/runs", NEW, **key)
    assert client_of(dana, "runs:create").post("/runs", NEW, **key).status == 201
    assert Run.objects.count() == 2


@pytest.mark.parametrize("key", ["", "k" * 256, "naïve", "a\x00b", "a\tb"])
def test_a_key_that_cannot_be_kept_is_refused(starting: Any, key: str) -> None:
    refused = starting.post("/runs", NEW, **{"Idempotency-Key": key})
    assert (refused.status, refused.data["field"]) == (422, "Idempotency-Key")
    assert not Run.objects.exists()


def test_a_key_of_255_characters_is_kept(starting: Any) -> None:
    assert starting.post("/runs", NEW, **{"Idempotency-Key": "k" * 255}).status == 201


def test_the_list_holds_what_the_person_may_see(
    client_of: Any, make_run: Callable[..., Run], sam: User, dana: User, otto: User
) -> None:
    make_run(sam)
    mine = make_run(otto)
    assert [run["id"] for run in client_of(otto, "runs:read").get("/runs").data["items"]] == [str(mine.pk)]
    assert len(client_of(dana, "runs:read").get("/runs").data["items"]) == 2


def test_the_list_can_be_narrowed_to_a_state(
    client_of: Any, ask: Callable[..., Approval], make_run: Any, sam: User
) -> None:
    make_run(sam)
    waiting = ask(sam)
    listed = client_of(sam, "runs:read").get("/runs", state="waiting").data["items"]
    assert [run["id"] for run in listed] == [str(waiting.run_id)]


def test_following_next_gives_every_run_once(client_of: Any, make_run: Callable[..., Run], sam: User) -> None:
    made = [str(make_run(sam).pk) for _ in range(7)]
    client, seen, cursor = client_of(sam, "runs:read"), [], ""
    while True:
        page = client.get("/runs", limit=3, **({"cursor": cursor} if cursor else {})).data
        seen += [run["id"] for run in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert seen == sorted(made, reverse=True)


def test_a_run_that_starts_while_pages_are_read_shifts_none(
    client_of: Any, make_run: Callable[..., Run], sam: User
) -> None:
    made = [str(make_run(sam).pk) for _ in range(4)]
    client = client_of(sam, "runs:read")
    first = client.get("/runs", limit=2).data
    make_run(sam)
    second = client.get("/runs", limit=2, cursor=first["next"]).data
    assert [run["id"] for run in first["items"] + second["items"]] == sorted(made, reverse=True)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"cursor": "nonsense"}, "invalid_cursor"),
        ({"cursor": "\x00"}, "invalid_cursor"),
        ({"cursor": "c" * 501}, "invalid"),
        ({"limit": "0"}, "invalid"),
        ({"limit": "101"}, "invalid"),
        ({"limit": "many"}, "invalid"),
        ({"limit": ["1", "2"]}, "invalid"),
        ({"state": "asleep"}, "invalid"),
        ({"offset": "10"}, "invalid"),
    ],
)
def test_a_list_refuses_parameters_it_does_not_know(client_of: Any, sam: User, query: Any, code: str) -> None:
    refused = client_of(sam, "runs:read").get("/runs", **query)
    assert (refused.status, refused.code) == (422, code)
    assert refused.data["field"] == next(iter(query))


def test_every_wrong_parameter_is_named(client_of: Any, sam: User) -> None:
    refused = client_of(sam, "runs:read").get("/runs", colour="red", state=["failed", "failed"], offset="1", limit="0")
    assert {one["field"]: one["detail"] for one in refused.data["errors"]} == {
        "colour": "There is no such parameter.",
        "state": "It is given more than once.",
        "offset": "There is no such parameter.",
        "limit": "Input should be greater than or equal to 1.",
    }
    assert (refused.code, refused.data["field"]) == ("invalid", "colour")


def test_a_cursor_of_one_list_does_not_open_another(
    client_of: Any, make_run: Callable[..., Run], sam: User, dana: User
) -> None:
    make_run(sam), make_run(sam)
    client = client_of(dana, "runs:read", "approvals:read")
    cursor = client.get("/runs", limit=1).data["next"]
    assert client.get("/approvals", cursor=cursor).code == "invalid_cursor"


def test_a_longer_list_costs_no_more_statements(
    client_of: Any, make_run: Callable[..., Run], sam: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(sam, "runs:read")
    make_run(sam)
    client.get("/runs")
    with django_assert_max_num_queries(4) as few:
        client.get("/runs")
    for _ in range(10):
        make_run(sam)
    with CaptureQueriesContext(few.connection) as many:
        client.get("/runs")
    assert len(many) == len(few)


def test_the_trace_shows_calls_approvals_and_decisions(
    client_of: Any, ask: Callable[..., Approval], answer: Any, sam: User, dana: User
) -> None:
    approval = ask(sam)
    client_of(dana, "approvals:decide").post(
        f"/approvals/{approval.pk}/decisions", answer(approval, "reject", message="Not this one.")
    )
    trace = client_of(sam, "runs:read").get(f"/runs/{approval.run_id}/trace").data
    [step] = trace["steps"]
    [call] = step["calls"]
    assert (step["number"], step["text"], step["disclosed_tools"]) == (1, "I will refund it.", ["refund"])
    assert (call["tool"], call["state"]) == ("refund", "waiting")
    assert call["args"] == {"order": "1042", "amount": 214.5, "account": "••••••"}
    [decision] = call["approval"]["decisions"]
    assert (decision["type"], decision["message"], decision["user"]["username"]) == ("reject", "Not this one.", "dana")


def test_the_trace_shows_what_a_model_thought_and_why_it_decided_nothing(
    client_of: Any, propose: Callable[..., ToolExecution], make_run: Any, sam: User
) -> None:
    client, run = client_of(sam, "runs:read"), propose(make_run(sam)).run_id
    [step] = client.get(f"/runs/{run}/trace").data["steps"]
    assert (step["reasoning"], step["error"]) == (None, None)
    Step.objects.update(reasoning="I must pay.", error="decision_validation")
    [step] = client.get(f"/runs/{run}/trace").data["steps"]
    assert (step["reasoning"], step["error"]) == ("I must pay.", "decision_validation")


def test_the_trace_shows_malformed_arguments_only_when_nothing_in_them_can_be_secret(
    client_of: Any, propose: Callable[..., ToolExecution], make_run: Any, refund: Any, sam: User
) -> None:
    execution = propose(make_run(sam))
    ToolExecution.objects.filter(pk=execution.pk).update(arguments_text='{"account": "DE89')
    client = client_of(sam, "runs:read")
    [step] = client.get(f"/runs/{execution.run_id}/trace").data["steps"]
    assert step["calls"][0]["args"] == "••••••"
    type(refund).objects.update(secret_fields=[])
    [step] = client.get(f"/runs/{execution.run_id}/trace").data["steps"]
    assert step["calls"][0]["args"] == "••••••"  # an argument that was secret when proposed stays masked
    ToolExecution.objects.filter(pk=execution.pk).update(secret_fields=[])
    [step] = client.get(f"/runs/{execution.run_id}/trace").data["steps"]
    assert step["calls"][0]["args"] == '{"account": "DE89'


def test_a_result_that_json_cannot_say_is_shown_as_text(
    client_of: Any, propose: Callable[..., ToolExecution], make_run: Any, sam: User
) -> None:
    execution = propose(make_run(sam))
    ToolExecution.objects.filter(pk=execution.pk).update(result_text='{"ratio": NaN}')
    [step] = client_of(sam, "runs:read").get(f"/runs/{execution.run_id}/trace").data["steps"]
    assert step["calls"][0]["result"] == {"ratio": "NaN"}


def test_a_waiting_run_is_cancelled_with_its_calls_and_approvals(
    starting: Any, ask: Callable[..., Approval], sam: User
) -> None:
    approval = ask(sam)
    cancelled = starting.post(f"/runs/{approval.run_id}/cancel")
    assert (cancelled.status, cancelled.data["state"], cancelled.data["stop_reason"]) == (
        200, "cancelled", "user_requested"
    )  # fmt: skip
    approval.refresh_from_db()
    assert approval.state == Approval.State.WITHDRAWN
    assert ToolExecution.objects.get(pk=approval.execution_id).state == "cancelled"
    assert ledger.verify(ledger.run_chain(approval.run_id))[1] is None


def test_cancelling_twice_changes_nothing_more(
    starting: Any, make_run: Callable[..., Run], sam: User, everything: Any
) -> None:
    run = make_run(sam)
    first = starting.post(f"/runs/{run.pk}/cancel")
    before = everything()
    assert starting.post(f"/runs/{run.pk}/cancel").data == first.data
    assert everything() == before


def test_who_sees_a_run_but_may_not_cancel_it_is_told_so(
    client_of: Any, make_run: Callable[..., Run], sam: User, dana: User, everything: Any
) -> None:
    run = make_run(sam)
    client, before = client_of(dana, "runs:create"), everything()
    refused = client.post(f"/runs/{run.pk}/cancel")
    assert (refused.status, refused.code) == (403, "forbidden")
    assert everything() == before


@pytest.mark.parametrize("path", ["/runs/{}", "/runs/{}/trace"])
def test_a_foreign_run_a_missing_one_and_a_bad_id_look_the_same(
    client_of: Any, make_run: Callable[..., Run], sam: User, otto: User, path: str
) -> None:
    client = client_of(otto, "runs:read")
    answers = [client.get(path.format(id)) for id in (make_run(sam).pk, uuid.uuid4(), "not-an-id", "%00")]
    assert {answer.status for answer in answers} == {404}
    assert len({str(answer.data) for answer in answers}) == 1


def test_a_foreign_run_cannot_be_cancelled(
    client_of: Any, make_run: Callable[..., Run], sam: User, otto: User, everything: Any
) -> None:
    run = make_run(sam)
    client, before = client_of(otto, "runs:create"), everything()
    assert client.post(f"/runs/{run.pk}/cancel").status == 404
    assert everything() == before


def test_a_run_that_has_ended_is_tried_again_for_the_tokens_person(
    starting: Any, make_run: Callable[..., Run], sam: User
) -> None:
    run = make_run(sam)
    refused = starting.post(f"/runs/{run.pk}/retry", {})
    assert (refused.status, refused.code) == (409, "not_ended")
    starting.post(f"/runs/{run.pk}/cancel")
    begun = starting.post(f"/runs/{run.pk}/retry", {"first": 1})
    assert (begun.status, begun.data["retry_of"], begun.data["steps_kept"]) == (201, str(run.pk), 0)
    assert begun.data["starter"]["username"] == sam.username
    refused = starting.post(f"/runs/{run.pk}/retry", {"first": 7})
    assert (refused.status, refused.code, refused.data["field"]) == (422, "invalid", "first")
