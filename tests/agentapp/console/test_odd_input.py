"""Input that no browser sends: each gets an answer, and the server never fails."""

import uuid
from typing import Any

import pytest
from django.test import Client

from .conftest import posted

pytestmark = pytest.mark.django_db

NUMBERS = ("1e999", "NaN", "9" * 400, "1e16", "-", "\x00", "\ufffd", "٣", "1_000", "1e308", "0x10", "９")
POSTED = [
    "action_digest", "add", "anyway", "confirm", "decision_id", "do", "doing", "message", "next", "now", "offered",
    "query", "question", "reason", "remove", "restore", "reveal", "rows", "shown", "text", "type", "version", "view",
]  # fmt: skip
PATHS = ("answer", "ask", "ask-again", "comment", "decide", "draft", "presence", "reveal", "undo")


def test_an_amount_may_be_any_text(page: Client, waiting: Any) -> None:
    approval = waiting()
    for value in NUMBERS:
        fields = {"arg.amount": value, "shown": ["amount", "note"], "arg.note": "a\x00b", "stop_run": value}
        body = posted(approval, **fields) | {"version": approval.version, "decision_id": str(uuid.uuid4())}
        for where in ("draft", "decide"):
            assert page.post(f"/approvals/{approval.pk}/{where}/", body).status_code < 500, (where, value)


@pytest.mark.parametrize("value", ["\x00", "x" * 5000, "٣", "\u202e"])
def test_so_may_every_field_of_every_form(page: Client, waiting: Any, value: str) -> None:
    approval, body = waiting(), dict.fromkeys(POSTED, value)
    for path in PATHS:
        assert page.post(f"/approvals/{approval.pk}/{path}/", body).status_code < 500, path


@pytest.mark.parametrize("path", ["", "state/", "side/", "evidence/", "assured/", "presence/"])
def test_so_may_what_an_address_asks_for(page: Client, waiting: Any, path: str) -> None:
    approval = waiting()
    for query in ("version=%00", "version=%D9%A3", "do=%00", "view=%00", "now=%00&was=1&anyway=%00"):
        assert page.get(f"/approvals/{approval.pk}/{path}?{query}").status_code < 500, query


@pytest.mark.parametrize(
    "body",
    [
        {"item": "a:b:c:d", "type": "approve"},
        {"item": f"{uuid.uuid4()}:-1:x:{uuid.uuid4()}", "type": "approve"},
        {"item": f"{uuid.uuid4()}:٣:\x00:{uuid.uuid4()}", "type": "approve"},
        {"item": "\x00" * 40, "type": "\x00", "reason": "\x00", "message": "\x00"},
    ],
)
def test_so_may_every_item_of_a_batch(page: Client, waiting: Any, body: Any) -> None:
    assert page.post("/inbox/batch/", body).status_code < 500
    row = waiting(risk="low", effect_class="reversible", hold_seconds=0)
    body = {**body, "item": f"{row.pk}:999999999999:\x00:{uuid.uuid4()}"}
    assert page.post("/inbox/batch/", body).status_code < 500
    assert page.get("/inbox/batch/done/").status_code < 500
