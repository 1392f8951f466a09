"""The palette: what a few letters find, and what they never show."""

import re
import uuid
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp.console import search
from agentapp.models import Run
from approvals.models import Approval

Waiting = Callable[..., Approval]


def found(client: Client, text: str) -> dict[str, list[str]]:
    """What the palette lists, by kind: the address of each."""
    answer = client.get("/search/", {"q": text}, headers={"HX-Request": "true", "HX-Request-Type": "partial"})
    html = answer.content.decode()
    assert "<html" not in html
    kinds = re.findall(r'aria-label="([^"]+)">(.*?)</div>(?=<div role="group"|\s*$)', html.strip(), re.S)
    return {name: re.findall(r'class="pal-i" href="([^"]+)"', rest) for name, rest in kinds}


def test_without_letters_it_lists_the_pages_one_may_open(page: Client) -> None:
    assert found(page, "") == {"Go to": ["/inbox/", "/runs/", "/tools/", "/settings/", "/runs/new/"]}


def test_a_request_is_found_by_its_title_and_by_its_reference(page: Client, waiting: Waiting) -> None:
    approval = waiting(title="Refund the kettle")
    waiting(title="Something else")

    assert found(page, "KETTLE")["Requests"] == [f"/approvals/{approval.pk}/"]
    assert found(page, approval.reference)["Requests"] == [f"/approvals/{approval.pk}/"]
    assert found(page, approval.reference.lower().removeprefix("apr-"))["Requests"] == [f"/approvals/{approval.pk}/"]


def test_a_run_is_found_by_its_title_and_by_its_reference(page: Client, waiting: Waiting) -> None:
    run = Run.objects.get(pk=waiting().run_id)

    assert found(page, "order 58213")["Runs"] == [f"/runs/{run.pk}/"]
    assert found(page, run.reference)["Runs"] == [f"/runs/{run.pk}/"]


def test_tools_are_for_everybody_who_may_look_at_them_and_the_admin_for_those_who_configure(
    client: Client, waiting: Waiting, dana: User, ada: User
) -> None:
    waiting()
    client.force_login(dana)
    assert found(client, "refund_payment") == {"Tools": ["/tools/refund_payment/"]}
    assert "Go to" not in found(client, "admin")
    assert found(client, "support")["Agents"] == ["/runs/?agent=support"]
    client.force_login(ada)
    assert found(client, "admin")["Go to"] == ["/admin/"]


def test_what_somebody_may_not_see_is_not_found(client: Client, waiting: Waiting, otto: User) -> None:
    approval = waiting(title="Refund the kettle")
    client.force_login(otto)

    for text in ("kettle", approval.reference, "order 58213", "support", "refund_payment"):
        assert found(client, text) == {}


def test_only_the_latest_are_looked_at_and_few_are_shown(
    page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    approvals = [waiting(title=f"Kettle {number}") for number in range(4)]
    monkeypatch.setattr(search, "LATEST", 3)
    monkeypatch.setattr(search, "SHOWN", 2)

    assert found(page, "kettle")["Requests"] == [f"/approvals/{one.pk}/" for one in (approvals[3], approvals[2])]
    assert "Requests" not in found(page, "kettle 0")


@pytest.mark.parametrize("text", ["%", "\x00\x00", "x" * 5000, "'; --", "\ud800a", "run_", "apr-zzzzzz", "<b>kettle"])
def test_any_text_is_answered(page: Client, waiting: Waiting, text: str) -> None:
    waiting()
    answer = page.get("/search/", {"q": text.encode("utf-8", "surrogatepass")})

    assert answer.status_code == 200
    assert "<b>kettle" not in answer.content.decode()


def test_it_asks_the_database_little(page: Client, waiting: Waiting, django_assert_max_num_queries) -> None:  # type: ignore[no-untyped-def]
    for _ in range(4):
        waiting()
    with django_assert_max_num_queries(10):
        page.get("/search/?q=refund", headers={"HX-Request": "true", "HX-Request-Type": "partial"})
    with django_assert_max_num_queries(12):
        page.get("/search/?q=refund")


def test_without_script_it_is_a_page_with_a_form_and_links(page: Client, waiting: Waiting) -> None:
    approval = waiting(title="Refund the kettle")
    html = page.get("/search/?q=kettle").content.decode()

    assert '<form class="flex" method="get" action="/search/"' in html
    assert 'value="kettle"' in html
    assert f'<a class="pal-i" href="/approvals/{approval.pk}/">' in html
    assert "may see is called" in page.get("/search/?q=nothing+at+all").content.decode()


def test_the_address_with_a_reference_leads_to_the_page_of_what_it_names(page: Client, waiting: Waiting) -> None:
    approval = waiting()
    run = Run.objects.get(pk=approval.run_id)

    for reference in (approval.reference, approval.reference.lower()):
        assert page.get(f"/approvals/{reference}/")["Location"] == f"/approvals/{approval.pk}/"
    assert page.get(f"/runs/{run.reference}/")["Location"] == f"/runs/{run.pk}/"


def test_a_reference_that_several_share_leads_to_all_of_them(page: Client, waiting: Waiting) -> None:
    # Two keys with the same ending, as happens once in some millions.
    one, other = waiting(), Run.objects.get(pk=waiting().run_id)
    twin = uuid.UUID(f"{uuid.uuid4().hex[:-6]}{one.run_id.hex[-6:]}")
    fields = {field.attname: getattr(other, field.attname) for field in Run._meta.concrete_fields}
    Run.objects.create(**{**fields, "id": twin, "request_key": ""})
    reference = Run.objects.get(pk=twin).reference

    assert page.get(f"/runs/{reference}/")["Location"] == f"/search/?q={reference}"
    assert set(found(page, reference)["Runs"]) == {f"/runs/{twin}/", f"/runs/{one.run_id}/"}


def test_the_reference_of_what_somebody_may_not_see_leads_nowhere(client: Client, waiting: Waiting, otto: User) -> None:
    approval = waiting()
    run = Run.objects.get(pk=approval.run_id)
    client.force_login(otto)

    for path in (f"/approvals/{approval.reference}/", f"/runs/{run.reference}/", "/runs/run_zzzzzz/"):
        assert client.get(path).status_code == 404


def test_a_reference_is_not_looked_up_for_somebody_unknown(client: Client, waiting: Waiting) -> None:
    answer = client.get(f"/approvals/{waiting().reference}/")

    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/login/")
