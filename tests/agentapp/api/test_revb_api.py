"""Review: what the API shows of approvals."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.utils import timezone

from agentapp import executions, runs
from agentapp.executions import Outcome
from agentapp.messages import ToolResult
from agentapp.models import ToolExecution
from approvals import ledger
from approvals.models import Approval
from tests.conftest import make_user

pytestmark = pytest.mark.django_db


def test_the_sentence_is_that_of_the_call_that_waits(
    deciding: Any, client_of: Any, ask: Any, answer: Any, edited: Any, sam: User, marco: User
) -> None:
    approval = ask(sam, approvals_needed=2)
    taken = deciding.post(
        f"/approvals/{approval.pk}/decisions", answer(approval, "edit", args=edited(approval, amount=499999.0))
    )
    assert taken.status == 201, taken.data
    shown = client_of(marco, "approvals:read").get(f"/approvals/{approval.pk}").data
    assert shown["state"] == "pending"
    assert shown["final_args"]["amount"] == 499999
    assert "499,999" in shown["title"]
    assert "$214.50" not in shown["sentence"], shown["sentence"]
    assert "$214.50" not in json.dumps(shown["effects"]), shown["effects"]


def test_the_result_of_a_call_is_masked_with_its_request_as_elsewhere(
    deciding: Any, ask: Any, sam: User, client_of: Any, mia: User
) -> None:
    approval = ask(sam)
    execution = ToolExecution.objects.get(pk=approval.execution_id)
    with ledger.transaction():
        executions.begin(execution, approval.arguments_text, "key-1")
        executions.finish([Outcome(execution, ToolResult("ok", {"account": "DE89 3704 0044", "paid": True}))])
    elsewhere = client_of(sam, "runs:read").get(f"/tool-executions/{execution.pk}/result").data
    assert "DE89" not in json.dumps(elsewhere)
    shown = deciding.get(f"/approvals/{approval.pk}").data
    assert "DE89" not in json.dumps(shown), shown["execution"]


def test_asking_again_shows_no_run_that_one_may_not_see(
    client_of: Any, ask: Any, sam: User, expire_now: Any, roles: Any
) -> None:
    from approvals import decisions

    approval = ask(sam)
    expire_now(approval)
    with ledger.transaction():
        runs.lock(approval.run_id)
        assert decisions.expire([approval.pk]) if False else True
    Approval.objects.filter(pk=approval.pk).update(state="expired")
    ned = make_user("ned")
    ned.user_permissions.set(Permission.objects.filter(codename="decide_approval"))
    ned = User.objects.get(pk=ned.pk)
    client = client_of(ned, "runs:create")
    reader = client_of(ned, "runs:read")
    assert reader.get(f"/runs/{approval.run_id}").status == 404
    again = client.post(f"/approvals/{approval.pk}/ask_again")
    assert "input" not in again.data, (again.status, again.data)


@pytest.mark.parametrize(
    "args",
    [
        '{"order":"1042","amount":1e400,"account":"x"}',
        '{"order":"1042","amount":NaN,"account":"x"}',
        '{"order":"1042","amount":1,"account":"\\ud800"}',
        '{"order":"1042","amount":1,"account":"a\\u0000"}',
        '{"order":"1042","amount":99999999999999999999999,"account":"x"}',
        '{"order":"1042","amount":1,"account":"x","note":' + "[" * 3000 + "]" * 3000 + "}",
        '{"order":"1042","amount":1,"account":"x","\\ud800":1}',
        '{"order":"1042","amount":1e16,"account":"x"}',
        "[]",
        '"x"',
    ],
)
@pytest.mark.parametrize("type_", ["edit", "approve", "reject"])
def test_odd_edits_are_no_500(deciding: Any, ask: Any, answer: Any, sam: User, args: str, type_: str) -> None:
    approval = ask(sam)
    body = json.dumps(answer(approval, type_, message="x", args="ARGS")).replace('"ARGS"', args)
    taken = deciding.send("POST", f"/approvals/{approval.pk}/decisions", body.encode())
    assert taken.status in (400, 413, 422), taken.data


@pytest.mark.parametrize("text", ["\\ud800", "a\\u0000", "@" * 9000, " ", "@dana" * 300])
def test_odd_comments_are_no_500(client_of: Any, ask: Any, sam: User, dana: User, text: str) -> None:
    approval = ask(sam)
    client = client_of(dana, "approvals:comment")
    taken = client.send("POST", f"/approvals/{approval.pk}/comments", ('{"text":"%s"}' % text).encode())
    assert taken.status < 500
