"""The trail as a file: who may have it, that it is complete, and that the export is recorded."""

import asyncio
import io
import json
import re
import zipfile
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import AsyncClient, Client

from agentapp import customers
from agentapp.audit import exporting
from approvals.models import Event
from tests.agentapp.customers_at_work import access_to
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")


@pytest.fixture
def past(clerk: Clerk, dana: User) -> None:
    run = clerk.run(PAY, says("Done."))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)


@pytest.fixture
def manager(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def taken(client: Client, q: str = "", kind: str = "jsonl") -> list[dict[str, Any]]:
    answer = client.post(f"/audit/export/{kind}/", {"q": q})
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith('attachment; filename="audit-')
    return [json.loads(line) for line in answer.getvalue().splitlines()]


def test_the_file_holds_every_event_that_was_found_and_no_other(manager, past) -> None:
    *events, manifest = taken(manager, "did:approved,ran")
    found = Event.objects.filter(type__in=["approval.approved", "tool_call.completed"])
    assert {event["id"] for event in events} == {str(key) for key in found.values_list("pk", flat=True)}
    assert (manifest["count"], manifest["filter"]["q"]) == (len(events), "did:approved,ran")


def test_the_archive_has_as_many_rows_as_the_lines(manager, past) -> None:
    *events, _ = taken(manager)
    answer = manager.post("/audit/export/csv/", {"q": ""})
    archive = zipfile.ZipFile(io.BytesIO(answer.getvalue()))
    # The second export contains the first one's event.
    assert archive.read("events.csv").count(b"\r\n") == len(events) + 2
    assert answer["Content-Type"] == "application/zip"


def test_that_it_was_taken_is_on_record_without_the_words_looked_for(manager, past, mia) -> None:
    taken(manager, 'risk:low,medium,high did:approved "Ana Pereira"')
    event = Event.objects.get(type="trail.exported")
    assert event.data == {"filter": "risk:low,medium,high did:approved", "words": 1, "format": "jsonl"}
    assert event.actor_key == f"user:{mia.pk}"


def test_whom_it_was_narrowed_to_is_on_record_by_keys_that_name_nobody(manager, past, clerk, mia, dana) -> None:
    access = access_to(clerk, customer="Ana Pereira")
    run = customers.write(access, "Hello.").run
    customers.ask_for_person(access)
    assert run.customer == "Ana Pereira"
    asked = taken(manager, 'who:"Dana Whitfield",me,system did:approved -who:"customer:Ana Pereira",customer')
    assert len(asked) > 1
    event = Event.objects.get(type="trail.exported")
    assert event.data["filter"] == f"who:user:{dana.pk},user:{mia.pk},system did:approved -who:customer"
    assert not {"Dana", "Ana"} & set(re.findall(r"\w+", event.body))
    assert len(taken(manager, event.data["filter"])) == len(asked)


def test_looking_is_not_enough_to_take(client, past, dana) -> None:
    client.force_login(dana)
    assert client.post("/audit/export/jsonl/", {"q": ""}).status_code == 403
    assert not Event.objects.filter(type="trail.exported").exists()


def test_a_link_takes_nothing(manager, past) -> None:
    assert manager.get("/audit/export/jsonl/").status_code == 405
    assert manager.post("/audit/export/xlsx/").status_code == 404


def test_what_cannot_be_asked_leads_back_to_where_that_is_said(manager, past) -> None:
    answer = manager.post("/audit/export/jsonl/", {"q": "tol:x"})
    assert answer.status_code == 302
    assert b"Nothing was searched for" in manager.get(answer["Location"]).content


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_events_of_runs_one_may_not_see_leave_a_mark_and_nothing_of_themselves(client, past, kind) -> None:
    reader = User.objects.create_user("rita", password="x")
    reader.user_permissions.add(Permission.objects.get(codename="view_event"))
    client.force_login(reader)
    answer = client.post(f"/audit/export/{kind}/", {"q": ""})
    content = answer.getvalue()
    if kind == "csv":
        content = zipfile.ZipFile(io.BytesIO(content)).read("events.csv")
    mark = b"An event you may not see" if kind == "csv" else b'{"kind":"hidden"}'
    assert content.count(mark) == Event.objects.filter(run_id__isnull=False).count() > 0
    assert b"approval.approved" not in content


def test_the_button_says_how_many(manager, past) -> None:
    page = manager.get("/audit/", {"q": "did:approved"}).content.decode()
    assert 'action="/audit/export/csv/"' in page
    assert 'value="did:approved"' in page
    assert 'Export<span id="export-count"> 1</span>' in page


@pytest.mark.django_db(transaction=True)
def test_under_asgi_it_is_sent_piece_by_piece(monkeypatch, mia, past) -> None:
    monkeypatch.setattr(exporting, "AT_ONCE", 4)
    client = AsyncClient()
    client.force_login(mia)

    async def pieces() -> list[bytes]:
        answer = await client.post("/audit/export/jsonl/", {"q": ""})
        return [piece async for piece in answer.streaming_content]

    sent = asyncio.run(pieces())
    assert len(sent) > 3
    assert json.loads(sent[-1])["kind"] == "manifest"
