"""Deciding about approvals."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp.models import Run, Tool, ToolExecution
from approvals import ledger
from approvals.models import Approval, Decision, Event, Rule
from tests.conftest import make_user

Ask = Callable[..., Approval]


def path_of(approval: Approval) -> str:
    return f"/approvals/{approval.pk}/decisions"


def test_a_masked_argument_keeps_its_value_in_an_edit(deciding: Any, ask: Ask, answer: Any, sam: User) -> None:
    approval = ask(sam)
    shown = deciding.get(f"/approvals/{approval.pk}").data["args"]
    taken = deciding.post(path_of(approval), answer(approval, "edit", args={**shown, "amount": 120.0}))
    assert taken.status == 201
    approval.refresh_from_db()
    assert approval.final_arguments_text == '{"account":"DE89 3704 0044","amount":120,"order":"1042"}'


def test_an_approval_counts_and_wakes_the_run(deciding: Any, ask: Ask, answer: Any, sam: User, dana: User) -> None:
    approval = ask(sam)
    taken = deciding.post(path_of(approval), answer(approval, message="Checked."))
    assert (taken.status, taken.data["approval"]["state"], taken.data["decision"]["type"]) == (
        201, "approved", "approve"
    )  # fmt: skip
    assert taken.data["decision"]["user"] == {"username": "dana", "name": "Dana Whitfield"}
    assert Run.objects.get(pk=approval.run_id).wake_at is not None
    event = Event.objects.get(run_id=approval.run_id, type="approval.approved")
    assert event.actor.startswith(f"user:{dana.pk}:dana (api cs_")
    assert ledger.verify(event.chain)[1] is None


def test_an_edit_binds_the_approval_to_the_edited_call(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User
) -> None:
    approval = ask(sam)
    taken = deciding.post(path_of(approval), answer(approval, "edit", args=edited(approval, amount=120.0)))
    assert taken.status == 201
    shown = taken.data["approval"]
    assert shown["final_args"]["amount"] == 120
    assert shown["title"] == "Refund $120.00 for order 1042"
    assert shown["action_digest"] != approval.action_digest
    approval.refresh_from_db()
    assert shown["action_digest"] == approval.final_digest


def test_whoever_changes_a_call_at_high_risk_is_told_who_may_approve_it_or_that_nobody_may(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User
) -> None:
    approval = ask(sam, risk="high")
    assert deciding.get(f"/approvals/{approval.pk}").data["left_to_approve"] is None
    taken = deciding.post(path_of(approval), answer(approval, "edit", args=edited(approval, amount=120.0)))
    assert (taken.status, taken.data["approval"]["state"]) == (201, "pending")
    assert taken.data["approval"]["left_to_approve"].startswith("Nobody else may approve this. Unless ")
    make_user("Nora Lind", "approver")
    assert deciding.get(f"/approvals/{approval.pk}").data["left_to_approve"] == "Nora Lind may approve this."


def test_a_rejection_and_an_answer_carry_the_persons_words(deciding: Any, ask: Ask, answer: Any, sam: User) -> None:
    for type_, state in (("reject", "rejected"), ("respond", "responded")):
        approval = ask(sam)
        taken = deciding.post(path_of(approval), answer(approval, type_, message="It was paid by voucher."))
        assert (taken.status, taken.data["approval"]["state"]) == (201, state)
        assert Decision.objects.get(approval=approval).message == "It was paid by voucher."


def test_sending_a_decision_again_gives_the_first_answer(
    deciding: Any, ask: Ask, answer: Any, sam: User, everything: Any
) -> None:
    approval = ask(sam)
    body = answer(approval)
    first = deciding.post(path_of(approval), body)
    before = everything()
    again = deciding.post(path_of(approval), body)
    assert (first.status, again.status, again.headers["Idempotent-Replay"]) == (201, 200, "true")
    assert again.data == first.data
    assert everything() == before


def test_sending_an_edit_that_changed_nothing_again_gives_the_first_answer(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User
) -> None:
    approval = ask(sam)
    body = answer(approval, "edit", args=edited(approval))
    assert deciding.post(path_of(approval), body).data["decision"]["type"] == "approve"
    assert deciding.post(path_of(approval), body).status == 200


def test_a_decision_id_belongs_to_one_decision(
    deciding: Any, client_of: Any, ask: Ask, answer: Any, sam: User, marco: User, everything: Any
) -> None:
    first, second = ask(sam), ask(sam)
    body = answer(first)
    deciding.post(path_of(first), body)
    marcos = client_of(marco, "approvals:decide")
    before = everything()
    answers = [
        deciding.post(path_of(second), {**answer(second), "decision_id": body["decision_id"]}),
        deciding.post(path_of(first), {**body, "type": "reject", "message": "No."}),
        marcos.post(path_of(first), body),
    ]
    assert {(found.status, found.code) for found in answers} == {(422, "decision_id_reused")}
    assert everything() == before


def test_the_second_decider_is_told_who_was_first_and_what_they_decided(
    deciding: Any, client_of: Any, ask: Ask, answer: Any, sam: User, marco: User, everything: Any
) -> None:
    approval = ask(sam)
    late = answer(approval, "reject", message="No.")
    deciding.post(path_of(approval), answer(approval))
    marcos, before = client_of(marco, "approvals:decide"), everything()
    refused = marcos.post(path_of(approval), late)
    assert (refused.status, refused.code) == (409, "already_decided")
    assert "Dana Whitfield already approved it" in refused.data["detail"]
    assert refused.data["decided_by"] == {"username": "dana", "name": "Dana Whitfield"}
    assert refused.data["decision"]["type"] == "approve"
    assert refused.data["approval"]["state"] == "approved"
    assert everything() == before


def test_in_whose_right_the_first_decided_is_told_and_declared(
    deciding: Any, client_of: Any, ask: Ask, answer: Any, sam: User, marco: User
) -> None:
    approval = ask(sam)
    late = answer(approval, "reject", message="No.")
    deciding.post(path_of(approval), answer(approval))
    Decision.objects.filter(approval=approval).update(on_behalf_of=make_user("Nora Lind", "approver"))
    refused = client_of(marco, "approvals:decide").post(path_of(approval), late)
    lender = {"username": "nora", "name": "Nora Lind"}
    assert refused.data["decided_by"] == {"username": "dana", "name": "Dana Whitfield", "on_behalf_of": lender}
    components = json.loads(Client().get("/api/v1/openapi.json").content)["components"]
    for schema in components["schemas"].values():
        schema.setdefault("additionalProperties", False)
    whole = {"$ref": "#/components/schemas/Problem", "components": components}
    jsonschema_rs.Draft202012Validator(whole).validate(refused.data)


def test_who_decides_anew_is_told_that_they_have_decided_themself(
    deciding: Any, ask: Ask, answer: Any, sam: User, everything: Any
) -> None:
    approval = ask(sam)
    late = answer(approval, "reject", message="No.")
    deciding.post(path_of(approval), answer(approval))
    before = everything()
    refused = deciding.post(path_of(approval), late)
    assert (refused.status, refused.code) == (409, "decided_by_you")
    assert refused.data["detail"] == "You have already approved it. This decision was not recorded."
    assert everything() == before


def refusals() -> list[Any]:
    """For each: what is wrong, how the body is changed, and the answer: status, code, field."""
    return [
        pytest.param({"version": 2}, 409, "changed", None, id="another version"),
        pytest.param({"action_digest": "0" * 64}, 409, "action_changed", None, id="another call"),
        pytest.param({"type": "reject"}, 422, "message_required", "message", id="reject without words"),
        pytest.param({"type": "reject", "message": " \n"}, 422, "message_required", "message", id="reject with blanks"),
        pytest.param({"type": "respond"}, 422, "message_required", "message", id="respond without words"),
        pytest.param({"type": "undo"}, 422, "invalid", "type", id="unknown decision"),
        pytest.param({"type": "edit"}, 422, "invalid", "args", id="edit without arguments"),
        pytest.param({"args": {}}, 422, "invalid", "args", id="approve with arguments"),
        pytest.param({"type": "edit", "args": []}, 422, "invalid", "args", id="arguments that are a list"),
        pytest.param({"version": None}, 422, "invalid", "version", id="no version"),
        pytest.param({"version": "1"}, 422, "invalid", "version", id="version as text"),
        pytest.param({"version": True}, 422, "invalid", "version", id="version as truth"),
        pytest.param({"version": 1.5}, 422, "invalid", "version", id="half a version"),
        pytest.param({"action_digest": ""}, 422, "invalid", "action_digest", id="no digest"),
        pytest.param({"action_digest": None}, 422, "invalid", "action_digest", id="null digest"),
        pytest.param({"decision_id": "one"}, 422, "invalid", "decision_id", id="id that is no UUID"),
        pytest.param({"message": 5}, 422, "invalid", "message", id="message as number"),
        pytest.param({"message": "m" * 10_001}, 422, "invalid", "message", id="endless message"),
        pytest.param({"stop_run": "yes"}, 422, "invalid", "stop_run", id="stop as text"),
        pytest.param({"decided_by": "marco"}, 422, "invalid", "decided_by", id="another decider"),
        pytest.param({"user": 1}, 422, "invalid", "user", id="another user"),
        pytest.param({"state": "used"}, 422, "invalid", "state", id="a state"),
        pytest.param({"decided_at": "2020-01-01"}, 422, "invalid", "decided_at", id="a time"),
        pytest.param({"tool": "delete_everything"}, 422, "invalid", "tool", id="another tool"),
        pytest.param({"via": "console"}, 422, "invalid", "via", id="another way"),
    ]


@pytest.mark.parametrize(("changed", "status", "code", "field"), refusals())
def test_a_refused_decision_changes_nothing(
    deciding: Any, ask: Ask, answer: Any, sam: User, everything: Any,
    changed: dict[str, Any], status: int, code: str, field: str | None,
) -> None:  # fmt: skip
    approval = ask(sam)
    before = everything()
    refused = deciding.post(path_of(approval), {**answer(approval), **changed})
    assert (refused.status, refused.code, refused.data.get("field")) == (status, code, field)
    assert everything() == before


def test_an_edit_with_several_wrong_arguments_names_them_all(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User
) -> None:
    approval = ask(sam)
    args = {**edited(approval, amount=-1, note=5, colour="red", size=1)}
    del args["account"]
    refused = deciding.post(path_of(approval), answer(approval, "edit", args=args))
    assert (refused.code, refused.data["field"]) == ("invalid_arguments", "args/account")
    wrong = {"args/account", "args/amount", "args/note", "args/colour", "args/size"}
    assert {one["field"] for one in refused.data["errors"]} == wrong
    assert refused.data["errors"][0]["detail"] == "account is missing."


@pytest.mark.parametrize("missing", ["decision_id", "type", "version", "action_digest"])
def test_a_decision_that_leaves_something_out_is_refused(
    deciding: Any, ask: Ask, answer: Any, sam: User, everything: Any, missing: str
) -> None:
    approval = ask(sam)
    body, before = answer(approval), everything()
    del body[missing]
    refused = deciding.post(path_of(approval), body)
    assert (refused.status, refused.data["field"], refused.data["detail"]) == (
        422, missing, f"{missing}: It is required."
    )  # fmt: skip
    assert everything() == before


@pytest.mark.parametrize(
    ("changed", "code", "field"),
    [
        ({"amount": -1}, "invalid_arguments", "args/amount"),
        ({"amount": "all of it"}, "invalid_arguments", "args/amount"),
        ({"tool": "delete_everything"}, "invalid_arguments", "args/tool"),
        ({"order": "7"}, "locked_field", "args/order"),
    ],
)
def test_an_edit_that_breaks_the_tools_schema_or_a_lock_is_refused(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User, everything: Any,
    changed: dict[str, Any], code: str, field: str,
) -> None:  # fmt: skip
    approval = ask(sam)
    before = everything()
    refused = deciding.post(path_of(approval), answer(approval, "edit", args=edited(approval, **changed)))
    assert (refused.status, refused.code, refused.data["field"]) == (422, code, field)
    assert everything() == before


def test_an_edit_that_leaves_out_an_argument_is_refused(deciding: Any, ask: Ask, answer: Any, sam: User) -> None:
    approval = ask(sam)
    refused = deciding.post(path_of(approval), answer(approval, "edit", args={"order": "1042"}))
    assert (refused.code, refused.data["field"]) == ("invalid_arguments", "args/amount")


def test_an_edit_of_a_call_whose_tool_has_changed_is_refused(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User, everything: Any
) -> None:
    approval = ask(sam)
    Tool.objects.update(version="v2")
    before = everything()
    refused = deciding.post(path_of(approval), answer(approval, "edit", args=edited(approval, amount=1.0)))
    assert (refused.status, refused.code) == (409, "action_changed")
    assert everything() == before


def test_an_edit_that_a_rule_forbids_is_refused(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User, everything: Any
) -> None:
    Rule.objects.create(name="no-haste", tool="refund", condition='args.note == "now"', verdict="deny")
    approval = ask(sam)
    before = everything()
    refused = deciding.post(path_of(approval), answer(approval, "edit", args=edited(approval, note="now")))
    assert (refused.status, refused.code) == (422, "policy_denied")
    assert everything() == before


def test_a_decision_the_rule_does_not_allow_is_refused(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User, everything: Any
) -> None:
    approval = ask(sam, allowed_decisions=("approve", "reject"))
    before = everything()
    refused = deciding.post(path_of(approval), answer(approval, "edit", args=edited(approval, amount=1.0)))
    assert (refused.status, refused.code) == (422, "not_allowed")
    assert everything() == before


def test_a_decision_after_time_ran_out_is_refused(
    deciding: Any, ask: Ask, answer: Any, sam: User, expire_now: Any, everything: Any
) -> None:
    approval = ask(sam)
    expire_now(approval)
    before = everything()
    refused = deciding.post(path_of(approval), answer(approval))
    assert (refused.status, refused.code) == (409, "expired")
    assert refused.data["approval"]["state"] == "pending"
    assert everything() == before


def test_one_person_does_not_count_twice(deciding: Any, ask: Ask, answer: Any, sam: User, everything: Any) -> None:
    approval = ask(sam, approvals_needed=2)
    assert deciding.post(path_of(approval), answer(approval)).data["approval"]["state"] == "pending"
    before = everything()
    refused = deciding.post(path_of(approval), answer(approval))
    assert (refused.status, refused.code) == (409, "decided_by_you")
    assert everything() == before


def test_two_people_approve_what_needs_two(
    deciding: Any, client_of: Any, ask: Ask, answer: Any, sam: User, marco: User
) -> None:
    approval = ask(sam, approvals_needed=2)
    deciding.post(path_of(approval), answer(approval))
    second = client_of(marco, "approvals:decide").post(path_of(approval), answer(approval))
    assert second.data["approval"]["state"] == "approved"
    assert [taken["user"]["username"] for taken in second.data["approval"]["decisions"]] == ["dana", "marco"]


def test_the_one_who_started_a_run_cannot_approve_its_calls(
    client_of: Any, ask: Ask, answer: Any, dana: User, everything: Any
) -> None:
    approval = ask(dana)
    client, before = client_of(dana, "approvals:decide"), everything()
    refused = client.post(path_of(approval), answer(approval))
    assert (refused.status, refused.code) == (403, "starter")
    assert everything() == before


def test_a_token_that_starts_runs_can_never_decide(
    client_of: Any, ask: Ask, answer: Any, sam: User, dana: User, everything: Any
) -> None:
    approval = ask(sam)
    client, before = client_of(dana, "runs:create", "approvals:read"), everything()
    refused = client.post(path_of(approval), answer(approval))
    assert (refused.status, refused.code) == (403, "insufficient_scope")
    assert 'scope="approvals:decide"' in refused.headers["WWW-Authenticate"]
    assert everything() == before


def test_who_may_see_but_not_decide_is_told_so(
    client_of: Any, ask: Ask, answer: Any, sam: User, mia: User, everything: Any
) -> None:
    approval = ask(sam)
    client, before = client_of(mia, "approvals:decide"), everything()
    refused = client.post(path_of(approval), answer(approval))
    assert (refused.status, refused.code) == (403, "forbidden")
    assert "decided_by" not in refused.data
    assert everything() == before


def test_reading_decides_nothing(deciding: Any, ask: Ask, sam: User, everything: Any) -> None:
    approval = ask(sam)
    before = everything()
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"):
        assert deciding.http.generic(method, f"/api/v1{path_of(approval)}").status_code == 405
    assert everything() == before


def test_a_withdrawn_approval_says_so(deciding: Any, client_of: Any, ask: Ask, answer: Any, sam: User) -> None:
    approval = ask(sam)
    body = answer(approval)
    client_of(sam, "runs:create").post(f"/runs/{approval.run_id}/cancel")
    refused = deciding.post(path_of(approval), body)
    assert (refused.code, refused.data["approval"]["state"]) == ("already_decided", "withdrawn")
    assert ToolExecution.objects.get(pk=approval.execution_id).state == "cancelled"
