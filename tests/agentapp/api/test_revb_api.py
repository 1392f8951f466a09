"""Review: what the API shows of approvals."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db


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
