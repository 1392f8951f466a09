"""Review: what pages show and how they take odd input."""

import uuid
from typing import Any

import pytest
from django.test import Client

from approvals.models import Approval

from .conftest import posted

pytestmark = pytest.mark.django_db


def credit(waiting: Any, **card: Any) -> Approval:
    return waiting(**{"risk": "low", "effect_class": "reversible", "hold_seconds": 0, **card})


NESTED = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "title": "Amount"},
        "payer": {"type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]},
        "payee": {"type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]},
    },
    "required": ["amount", "payer", "payee"],
}


@pytest.mark.parametrize(
    "value",
    [
        "1e999",
        "NaN",
        "9" * 400,
        "1e16",
        "-",
        "\x00",
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "٣",
        "1_000",
        "1e308",
        "0x10",
        "９",
    ],
)
@pytest.mark.parametrize("where", ["draft", "decide"])
def test_odd_amounts(page: Client, waiting: Any, value: str, where: str) -> None:
    approval = waiting()
    html = page.get(f"/approvals/{approval.pk}/").content.decode()
    body = posted(
        approval,
        **{
            "arg.order_id": "58213",
            "arg.amount": value,
            "shown": ["amount", "note"],
            "arg.note": "a\x00b",
            "version": value,
            "decision_id": value,
            "reason": value,
            "stop_run": value,
        },
    )
    body["version"] = approval.version
    body["decision_id"] = str(uuid.uuid4())
    response = page.post(f"/approvals/{approval.pk}/{where}/", body)
    assert response.status_code < 500


@pytest.mark.parametrize(
    "path",
    ["ask", "ask_again", "ask-again", "answer", "reveal", "presence", "comment", "comments", "undo", "decide", "draft"],
)
@pytest.mark.parametrize("value", ["\x00", "x" * 5000, "٣", "\u202e"])
def test_odd_posts(page: Client, waiting: Any, path: str, value: str) -> None:
    approval = waiting()
    body = dict.fromkeys(
        (
            "text",
            "offered",
            "question",
            "reveal",
            "doing",
            "next",
            "version",
            "decision_id",
            "action_digest",
            "type",
            "do",
            "view",
            "now",
            "confirm",
            "reason",
            "message",
            "query",
            "shown",
            "rows",
            "restore",
            "add",
            "remove",
        ),
        value,
    )
    assert page.post(f"/approvals/{approval.pk}/{path}/", body).status_code < 500


@pytest.mark.parametrize("query", ["version=%00", "version=%D9%A3", "do=%00", "view=%00", "now=%00&was=1&anyway=%00"])
@pytest.mark.parametrize("path", ["", "state/", "side/", "evidence/", "assured/", "presence/"])
def test_odd_gets(page: Client, waiting: Any, path: str, query: str) -> None:
    approval = waiting()
    assert page.get(f"/approvals/{approval.pk}/{path}?{query}").status_code < 500


@pytest.mark.parametrize(
    "body",
    [
        {"item": "a:b:c:d", "type": "approve"},
        {"item": f"{uuid.uuid4()}:-1:x:{uuid.uuid4()}", "type": "approve"},
        {"item": f"{uuid.uuid4()}:٣:\x00:{uuid.uuid4()}", "type": "approve"},
        {"item": "\x00" * 40, "type": "\x00", "reason": "\x00", "message": "\x00"},
    ],
)
def test_odd_batches(page: Client, waiting: Any, body: Any) -> None:
    assert page.post("/inbox/batch/", body).status_code < 500
    row = credit(waiting)
    body = {**body, "item": f"{row.pk}:999999999999:\x00:{uuid.uuid4()}"}
    assert page.post("/inbox/batch/", body).status_code < 500
    assert page.get("/inbox/batch/done/").status_code < 500
