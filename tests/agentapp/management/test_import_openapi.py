"""The command imports as the admin's page does: what was picked, with the difference; a rehearsal writes nothing."""

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agentapp.models import Tool, ToolSource
from approvals.models import Event
from tests.agentapp.importing.test_planning import shop

pytestmark = pytest.mark.django_db

ORDERS = {"tags": ["orders"]}


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "shop.json"
    path.write_text(shop(orders_get=("get", dict(ORDERS)), orders_pay=("post", dict(ORDERS)), look="get"))
    return path


def run(document: Path | str, *more: str) -> str:
    out = io.StringIO()
    call_command("import_openapi", str(document), *more, stdout=out, stderr=out)
    return out.getvalue()


def names() -> set[str]:
    return set(Tool.objects.filter(missing_since=None).values_list("name", flat=True))


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        (["--all"], {"orders_get", "orders_pay", "look"}),
        (["--tag", "orders"], {"orders_get", "orders_pay"}),
        (["--operation", "*_get", "--operation", "look"], {"orders_get", "look"}),
        (["--operation", "POST *"], {"orders_pay"}),
    ],
)
def test_what_is_picked_is_taken(document: Path, more: list[str], taken: set[str]) -> None:
    said = run(document, *more)
    assert names() == taken
    assert f"{len(taken)} of 3 operations are tools of the-shop" in said
    assert {event.actor for event in Event.objects.all()} == {"system (import_openapi)"}


def test_what_was_picked_is_brought_up_to_date(document: Path) -> None:
    run(document, "--tag", "orders", "--credential", "bearer=SHOP", "--prefix", "s_")
    document.write_text(shop(orders_get=("get", {"description": "Longer."}), look="get"))
    said = run(document)
    assert names() == {"s_orders_get"}
    assert "Longer." in said
    assert ToolSource.objects.get().credentials == {"bearer": "SHOP"}


def test_a_rehearsal_says_what_would_change(document: Path) -> None:
    said = run(document, "--all", "--dry-run", "--name", "mine")
    assert "+ agentapp.Tool orders_pay" in said
    assert "4 rows would change" in said
    assert not Tool.objects.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "No operation was chosen"),
        (["--all", "--tag", "nosuch"], r"No operation has the tag 'nosuch'\. There are: orders\."),
        (["--all", "--credential", "SHOP"], "for example token=SHOP"),
        (["--all", "--credential", "bearer=secret"], "not the name of a credential"),
        (["--all", "--location", "ftp://shop.example"], "starting with https"),
    ],
)
def test_what_is_wrong_changes_nothing(document: Path, more: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(document, *more)
    assert not Event.objects.exists()


def test_where_no_operation_has_a_tag_that_is_said(document: Path) -> None:
    document.write_text(shop(look="get"))
    with pytest.raises(CommandError, match=r"No operation has the tag 'orders'\. None has any\."):
        run(document, "--tag", "orders")


@pytest.mark.parametrize("where", ["/no/such/file", "https://127.0.0.1/openapi.json", "ftp://shop.example/a"])
def test_a_document_that_is_not_there(where: str) -> None:
    with pytest.raises(CommandError):
        run(where, "--all")


def test_what_is_left_out_is_said(document: Path, tmp_path: Path) -> None:
    unsent: dict[str, Any] = {"requestBody": {"content": {"application/pdf": {}}}}
    document.write_text(shop(a="get", b=("post", unsent)))
    assert "Left out: POST /b. Its body is application/pdf" in run(document, "--all")
