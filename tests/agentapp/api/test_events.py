"""Reading the ledger."""

import hashlib
import json
import uuid
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import append_only, ledger
from approvals.models import Event


def test_a_runs_chain_can_be_checked_by_whoever_reads_it(client_of: Any, ask: Any, sam: User) -> None:
    approval = ask(sam)
    page = client_of(sam, "events:read").get("/events", run=approval.run_id).data
    assert page["chain"] == f"run:{approval.run_id}"
    assert page["items"][0]["type"] == "run.queued"
    assert page["items"][-1]["type"] == "run.waiting"
    previous = "0" * 64
    for seq, event in enumerate(page["items"], start=1):
        body = json.loads(event["body"])
        assert hashlib.sha256(event["body"].encode()).hexdigest() == event["hash"]
        assert (event["seq"], event["previous_hash"], body["previous"]) == (seq, previous, previous)
        assert (body["type"], body["data"]) == (event["type"], event["data"])
        previous = event["hash"]


def test_a_body_that_is_masked_says_so_and_one_that_was_changed_does_not(client_of: Any, mia: User) -> None:
    with ledger.transaction():
        for name in ("ana@example.com", "ana"):
            ledger.record(ledger.CONFIGURATION, "signout", {"user": name})
    changed = Event.objects.get(body__contains='"user":"ana"')
    append_only.remove(connection)
    try:
        Event.objects.filter(pk=changed.pk).update(body=changed.body.replace('"user":"ana"', '"user":"eve"'))
    finally:
        append_only.install(connection)

    def read(reader: Any) -> list[list[tuple[bool, bool]]]:
        """From both lists: whether each event is masked, and whether its hash is that of its body. Oldest first."""
        listed = reader.get("/events", after=changed.seq - 2, limit=2).data["items"]
        found = reader.get("/events/search", q="did:signed-out").data["items"][::-1]
        return [
            [(one["masked"], hashlib.sha256(one["body"].encode()).hexdigest() == one["hash"]) for one in events]
            for events in (listed, found)
        ]

    assert read(client_of(mia, "events:read")) == [[(True, False), (False, False)]] * 2
    mia.user_permissions.add(Permission.objects.get(codename="reveal_pii"))
    assert read(client_of(User.objects.get(pk=mia.pk), "events:read")) == [[(False, True), (False, False)]] * 2


def test_after_gives_what_came_since(client_of: Any, ask: Any, sam: User) -> None:
    approval = ask(sam)
    client = client_of(sam, "events:read")
    whole = client.get("/events", run=approval.run_id).data
    assert whole["next"] is None
    seen, after = [], 0
    while after is not None:
        page = client.get("/events", run=approval.run_id, after=after, limit=2).data
        seen, after = seen + page["items"], page["next"]
    assert seen == whole["items"]
    last = whole["items"][-1]["seq"]
    assert client.get("/events", run=approval.run_id, after=last).data["items"] == []


def test_the_configurations_chain_is_for_those_who_may_view_events(client_of: Any, mia: User, dana: User) -> None:
    refused = client_of(dana, "events:read").get("/events")
    assert (refused.status, refused.code) == (403, "forbidden")
    page = client_of(mia, "events:read").get("/events").data
    assert page["chain"] == "configuration"
    assert [event["type"] for event in page["items"]] == ["token.issued", "token.issued"]


def test_a_foreign_runs_chain_and_a_missing_one_look_the_same(
    client_of: Any, make_run: Any, sam: User, otto: User
) -> None:
    client = client_of(otto, "events:read")
    answers = [client.get("/events", run=id) for id in (make_run(sam).pk, uuid.uuid4())]
    assert {found.status for found in answers} == {404}
    assert len({str(found.data) for found in answers}) == 1


def test_parameters_that_make_no_sense_are_refused(client_of: Any, mia: User) -> None:
    client = client_of(mia, "events:read")
    for query in ({"run": "x"}, {"after": -1}, {"after": 2**31}, {"limit": 101}, {"cursor": "x"}):
        refused = client.get("/events", **query)
        assert (refused.status, refused.data["field"]) == (422, next(iter(query)))


def test_a_longer_chain_costs_no_more_statements(
    client_of: Any, ask: Any, sam: User, django_assert_max_num_queries: Any
) -> None:
    approval, client = ask(sam), client_of(sam, "events:read")
    client.get("/events", run=approval.run_id)
    with django_assert_max_num_queries(5) as few:
        client.get("/events", run=approval.run_id, limit=1)
    with ledger.transaction():
        for number in range(20):
            ledger.record(ledger.run_chain(approval.run_id), "run.noted", {"number": number})
    with CaptureQueriesContext(few.connection) as many:
        assert len(client.get("/events", run=approval.run_id).data["items"]) > 20
    assert len(many) == len(few)


def test_the_ledger_is_searched_by_the_line_of_the_audit_trail(client_of: Any, ask: Any, sam: User, mia: User) -> None:
    approval = ask(sam)
    client = client_of(mia, "events:read")

    [event] = client.get("/events/search", q=f"did:stopped approval:{approval.pk}").data["items"]
    assert (event["type"], event["chain"]) == ("approval.requested", f"run:{approval.run_id}")
    assert hashlib.sha256(event["body"].encode()).hexdigest() == event["hash"]


def test_a_search_goes_on_where_its_page_ended(client_of: Any, mia: User) -> None:
    client = client_of(mia, "events:read")
    with ledger.transaction():
        for number in range(120):
            ledger.record(ledger.CONFIGURATION, "signout", {"n": number}, ledger.actor_of(mia))
    numbers, cursor, pages = [], "", 0
    while cursor is not None:
        page = client.get("/events/search", q="did:signed-out", **({"cursor": cursor} if cursor else {})).data
        numbers, cursor, pages = numbers + [event["data"]["n"] for event in page["items"]], page["next"], pages + 1
    assert pages == 3
    assert numbers == list(range(119, -1, -1))


def test_a_search_for_what_no_database_stores_finds_nothing(client_of: Any, mia: User) -> None:
    assert client_of(mia, "events:read").get("/events/search", q="a\0b").data == {"items": [], "next": None}


def test_a_search_that_cannot_be_meant_says_why(client_of: Any, mia: User, dana: User) -> None:
    client = client_of(mia, "events:read")
    refused = client.get("/events/search", q="tol:pay")
    assert (refused.status, refused.code) == (422, "invalid")
    assert "Did you mean `tool`?" in str(refused.data)
    assert client.get("/events/search", cursor="x").status == 422
    assert client_of(dana, "events:read").get("/events/search").status == 403


def test_a_search_has_nothing_of_runs_that_its_person_may_not_see(
    client_of: Any, ask: Any, sam: User, otto: User
) -> None:
    ask(sam)
    otto.user_permissions.add(Permission.objects.get(codename="view_event"))
    for q in ("", "since:1d", "did:stopped"):
        items = client_of(User.objects.get(pk=otto.pk), "events:read").get("/events/search", q=q).data["items"]
        assert [event for event in items if event["chain"].startswith("run:")] == []


def test_the_ledger_alone_opens_no_chain_of_a_run_that_its_person_may_not_see(
    client_of: Any, ask: Any, sam: User, otto: User
) -> None:
    approval = ask(sam)
    otto.user_permissions.add(Permission.objects.get(codename="view_event"))
    client = client_of(User.objects.get(pk=otto.pk), "events:read")
    assert client.get("/events", run=approval.run_id).status == 404
    otto.user_permissions.add(Permission.objects.get(codename="view_run"))
    client = client_of(User.objects.get(pk=otto.pk), "events:read")
    assert client.get("/events", run=approval.run_id).status == 200
