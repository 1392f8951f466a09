"""Reading approvals."""

import uuid
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import Group, User
from django.test.utils import CaptureQueriesContext

from agentapp import executions
from agentapp.executions import Outcome
from agentapp.messages import ToolResult
from agentapp.models import ToolExecution
from approvals import decisions, ledger
from approvals.escalation import Step
from approvals.models import Approval
from tests.conftest import make_user
from tests.rows import a_moment_ago

Ask = Callable[..., Approval]


def path_of(approval: Approval) -> str:
    return f"/approvals/{approval.pk}/decisions"


def test_an_approval_shows_everything_on_its_card(deciding: Any, ask: Ask, sam: User, roles: dict[str, Group]) -> None:
    approval = ask(sam, groups=(roles["approver"],))
    shown = deciding.get(f"/approvals/{approval.pk}").data
    assert shown["title"] == "Refund $214.50 for order 1042"
    assert shown["sentence"] == "Pay back $214.50"
    assert shown["effects"] == [{"title": "$214.50 leaves", "detail": "It cannot be taken back."}]
    assert shown["args"] == {"order": "1042", "amount": 214.5, "account": "••••••"}
    assert shown["evidence"] == [{"tool": "get_order", "ref": "get_order:1"}]
    assert (shown["rule"], shown["reason"], shown["risk"]) == ("refunds", "Money leaves.", "medium")
    assert shown["explanation"] == "The customer is right."
    assert shown["allowed_decisions"] == ["approve", "edit", "reject", "respond"]
    assert (shown["approvals_needed"], shown["version"], shown["state"]) == (1, 1, "pending")
    assert shown["action_digest"] == approval.action_digest
    assert (shown["groups"], shown["you_may_decide"]) == (["approver"], True)
    assert (shown["decisions"], shown["final_args"]) == ([], None)
    assert shown["execution"]["state"] == "waiting"


def test_an_approval_says_where_values_came_from_and_what_speaks_for_its_risk(
    deciding: Any, ask: Ask, sam: User
) -> None:
    approval = ask(sam)
    row = {"path": "amount", "origin": "outside", "source": "read_ticket", "step": 1, "call": "c", "quote": "214.50"}
    factor = {"name": "outside", "points": 35, "words": "values from outside: Amount"}
    Approval.objects.filter(pk=approval.pk).update(provenance=[row], risk_factors=[factor])
    shown = deciding.get(f"/approvals/{approval.pk}").data
    assert shown["provenance"] == [{"ref": None, "part": None, **row}]
    assert shown["risk_factors"] == [factor]


def test_the_words_are_those_of_the_call_that_waits(
    deciding: Any, client_of: Any, ask: Ask, answer: Any, edited: Any, sam: User, marco: User
) -> None:
    approval = ask(sam, approvals_needed=2)
    deciding.post(path_of(approval), answer(approval, "edit", args=edited(approval, amount=120.0)))
    shown = client_of(marco, "approvals:read").get(f"/approvals/{approval.pk}").data
    assert (shown["state"], shown["final_args"]["amount"]) == ("pending", 120)
    assert "$120.00" in shown["title"]
    assert "214.50" not in f"{shown['title']} {shown['sentence']} {shown['effects']} {shown['button']}"


def test_what_a_call_gave_back_names_no_secret(deciding: Any, ask: Ask, sam: User) -> None:
    approval = ask(sam)
    execution = ToolExecution.objects.get(pk=approval.execution_id)
    with ledger.transaction():
        executions.begin(execution, approval.arguments_text, "key-1")
        executions.finish([Outcome(execution, ToolResult("ok", {"account": "DE89 3704 0044", "paid": True}))])
    result = deciding.get(f"/approvals/{approval.pk}").data["execution"]["result"]
    assert result == {"account": "••••••", "paid": True}


def test_a_secret_argument_is_in_no_answer(
    deciding: Any, client_of: Any, ask: Ask, answer: Any, edited: Any, sam: User
) -> None:
    approval = ask(sam)
    reading = client_of(sam, "runs:read", "approvals:read", "events:read")
    body = answer(approval, "edit", args=edited(approval, amount=1.0))
    answers = [
        deciding.post(path_of(approval), body),
        deciding.post(path_of(approval), answer(approval)),
        deciding.get(f"/approvals/{approval.pk}"),
        deciding.get("/approvals"),
        reading.get(f"/runs/{approval.run_id}/trace"),
        reading.get("/events", run=approval.run_id),
    ]
    assert [found.status for found in answers] == [201, 409, 200, 200, 200, 200]
    assert not any("DE89" in str(found.data) for found in answers)


def test_a_starter_reads_that_they_may_not_decide(client_of: Any, ask: Ask, dana: User) -> None:
    shown = client_of(dana, "approvals:read").get(f"/approvals/{ask(dana).pk}").data
    assert shown["you_may_decide"] is False
    assert "someone else" in shown["you_may_not_because"]


def test_the_list_holds_what_the_person_may_see(
    client_of: Any, ask: Ask, sam: User, dana: User, mia: User, otto: User, roles: dict[str, Group]
) -> None:
    everyones, managers = ask(sam), ask(sam, groups=(roles["manager"],))

    def seen(user: User, **query: Any) -> set[str]:
        return {item["id"] for item in client_of(user, "approvals:read").get("/approvals", **query).data["items"]}

    both = {str(everyones.pk), str(managers.pk)}
    assert seen(dana) == {str(everyones.pk)}
    assert seen(mia) == seen(sam) == both
    assert seen(otto) == set()
    assert seen(mia, run=managers.run_id) == {str(managers.pk)}
    assert seen(mia, state="used") == set()
    assert seen(mia, state="pending") == both


def test_a_longer_list_costs_no_more_statements(
    deciding: Any, ask: Ask, sam: User, django_assert_max_num_queries: Any
) -> None:
    ask(sam)
    deciding.get("/approvals")
    with django_assert_max_num_queries(4) as few:
        deciding.get("/approvals")
    for _ in range(5):
        ask(sam)
    with CaptureQueriesContext(few.connection) as many:
        deciding.get("/approvals")
    assert len(many) == len(few)


def test_pages_hold_every_approval_once(deciding: Any, ask: Ask, sam: User) -> None:
    made = {str(ask(sam).pk) for _ in range(3)}
    first = deciding.get("/approvals", limit=2).data
    second = deciding.get("/approvals", limit=2, cursor=first["next"]).data
    seen = [item["id"] for item in first["items"] + second["items"]]
    assert (len(seen), set(seen), second["next"]) == (3, made, None)


def test_a_foreign_approval_a_missing_one_and_a_bad_id_look_the_same(
    client_of: Any, ask: Ask, answer: Any, sam: User, otto: User, everything: Any
) -> None:
    approval = ask(sam)
    client = client_of(otto, "approvals:read", "approvals:decide")
    before = everything()
    ids = (approval.pk, uuid.uuid4(), "not-an-id")
    answers = [client.get(f"/approvals/{id}") for id in ids]
    answers += [client.post(f"/approvals/{id}/decisions", answer(approval)) for id in ids]
    assert {found.status for found in answers} == {404}
    assert len({str(found.data) for found in answers}) == 1
    assert everything() == before


def test_an_approval_for_another_group_does_not_exist_for_me(
    deciding: Any, ask: Ask, answer: Any, sam: User, roles: dict[str, Group]
) -> None:
    approval = ask(sam, groups=(roles["manager"],))
    assert deciding.get(f"/approvals/{approval.pk}").status == 404
    assert deciding.post(path_of(approval), answer(approval)).status == 404


def test_the_result_of_the_call_stands_beside_its_approval(deciding: Any, lost: Any, sam: User) -> None:
    execution = lost(sam)
    shown = deciding.get(f"/approvals/{execution.approval_id}").data["execution"]
    assert (shown["id"], shown["state"]) == (str(execution.pk), "outcome_unknown")


def test_an_approval_says_by_when_and_what_happens_while_nobody_decides(
    deciding: Any, client_of: Any, ask: Ask, sam: User, roles: dict[str, Group]
) -> None:
    leads = Group.objects.create(name="leads")
    leads.permissions.set(roles["approver"].permissions.filter(codename="decide_approval"))
    reading = client_of(make_user("Lea Lead", "leads"), "approvals:read")
    approval = ask(sam, groups=(roles["approver"],), escalation=(Step(60, "leads"),), target_seconds=30)
    shown = deciding.get(f"/approvals/{approval.pk}").data
    assert shown["target_at"] < shown["escalation"][0]["at"] < shown["expires_at"]
    assert (shown["escalation"][0]["group"], shown["escalation"][0]["taken_at"]) == ("leads", None)
    assert (shown["breached_at"], shown["business_hours"]) == (None, False)
    assert reading.get(f"/approvals/{approval.pk}").status == 404
    assert reading.get("/approvals").data["items"] == []

    a_moment_ago(approval, "escalates_at", "target_at")
    with ledger.transaction():
        assert decisions.breach(approval.pk)
        assert decisions.escalate(approval.pk)

    shown = reading.get(f"/approvals/{approval.pk}").data
    assert shown["you_may_decide"] is True
    assert sorted(shown["groups"]) == ["approver", "leads"]
    assert shown["escalation"][0]["taken_at"] is not None
    assert reading.get("/approvals").data["items"][0]["breached_at"] is not None


def test_what_expired_takes_no_decision_and_the_answer_says_why(
    deciding: Any, ask: Ask, answer: Any, expire_now: Any, sam: User
) -> None:
    approval = ask(sam)
    body = answer(approval)
    expire_now(approval)
    found = deciding.post(path_of(approval), body)
    assert (found.status, found.data["code"]) == (409, "expired")
    with ledger.transaction():
        assert decisions.expire(approval.pk)
    found = deciding.post(path_of(approval), body)
    assert (found.status, found.data["code"], found.data["approval"]["state"]) == (409, "expired", "expired")


def test_what_must_be_approved_by_somebody_who_shows_who_they_are_is_not_approved_with_a_token(
    deciding: Any, ask: Ask, answer: Any, edited: Any, sam: User
) -> None:
    for needed in ("password", "totp", "passkey", "signed"):
        approval = ask(sam, assurance_needed=needed)
        assert deciding.get(f"/approvals/{approval.pk}").data["assurance_needed"] == needed
        for body in (answer(approval), answer(approval, "edit", args=edited(approval, amount=1.0))):
            refused = deciding.post(path_of(approval), body)
            assert (refused.status, refused.data["code"]) == (403, "needs_person")
        assert not approval.decisions.exists()
        rejected = deciding.post(path_of(approval), answer(approval, "reject", message="No."))
        assert rejected.status == 201
        assert rejected.data["decision"]["assurance"] is None
    assert deciding.get(f"/approvals/{ask(sam).pk}").data["assurance_needed"] is None


class TestYouMayDecide:
    def test_is_over_once_somebody_has_decided_and_another_is_needed(
        self, deciding: Any, client_of: Any, ask: Ask, answer: Any, sam: User, marco: User
    ) -> None:
        approval = ask(sam, approvals_needed=2)
        assert deciding.post(path_of(approval), answer(approval)).status == 201
        shown = deciding.get(f"/approvals/{approval.pk}").data
        assert shown["you_may_decide"] is False
        assert shown["you_may_not_because"] == "You have approved. This request needs another person too."
        assert client_of(marco, "approvals:read").get(f"/approvals/{approval.pk}").data["you_may_decide"] is True

    def test_is_over_once_the_request_is(self, deciding: Any, ask: Ask, answer: Any, sam: User) -> None:
        approval = ask(sam)
        assert deciding.post(path_of(approval), answer(approval, "reject", message="No.")).status == 201
        shown = deciding.get(f"/approvals/{approval.pk}").data
        assert shown["you_may_decide"] is False
        assert shown["you_may_not_because"] == "Nothing is left to decide: this request is rejected."

    def test_is_over_once_its_time_is(self, deciding: Any, ask: Ask, sam: User) -> None:
        approval = ask(sam)
        a_moment_ago(approval, "expires_at")
        shown = deciding.get(f"/approvals/{approval.pk}").data
        assert (shown["state"], shown["you_may_decide"]) == ("pending", False)

    def test_is_for_people_alone_at_critical_risk(self, deciding: Any, ask: Ask, sam: User) -> None:
        approval = ask(sam)
        Approval.objects.filter(pk=approval.pk).update(risk="critical", assurance_needed="password")
        shown = deciding.get(f"/approvals/{approval.pk}").data
        assert (shown["you_may_decide"], "not programs" in shown["you_may_not_because"]) == (False, True)
