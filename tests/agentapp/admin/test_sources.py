"""A person who may change tools and their sources reads a document, picks page by page, and adds what was picked."""

import ipaddress
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentapp.importing import pending
from agentapp.models import PendingImport, Tool, ToolSource
from approvals.models import Event
from tests.admin_pages import address, errors_of, save, submit
from tests.agentapp.importing.test_planning import imported, shop
from tests.service import Service, document

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


def read(staff: Client, text: str, **more: str) -> str:
    """Submit a document; returns the address of the page to pick from."""
    response = staff.post(reverse("admin:toolsource_import"), {"text": text, **more})
    assert response.status_code == 302, response.context["form"].errors
    return str(response.headers["Location"])


def pick(staff: Client, url: str, do: str, *numbers: int, **more: str) -> Any:
    """Post the page as a browser would, with these operations ticked."""
    page = staff.get(url)
    rows = page.context["picking"].rows
    data: dict[str, Any] = {"do": do, "shown": [row.number for row in rows], "page": page.context["picking"].page}
    for row in rows:
        data |= {f"name-{row.number}": row.name, f"effect-{row.number}": row.effect}
        if row.number in numbers or (row.choice and not numbers):
            data[f"take-{row.number}"] = "on"
    return staff.post(url, {**data, **more})


def test_a_document_is_read_picked_from_and_taken(staff: Client) -> None:
    url = read(staff, shop(a="get", b="post", c="put"))
    assert not Tool.objects.exists()
    page = staff.get(url).content.decode()
    assert "POST /b" in page
    assert "Import picked operations" in page
    answer = pick(
        staff, url, "import", 0, 1, **{"name-1": "pay", "effect-0": "reversible", "credential-bearer": "SHOP"}
    )
    source = ToolSource.objects.get()
    assert answer.headers["Location"] == address(ToolSource, "change", source.pk)
    effects = dict(Tool.objects.values_list("name", "effect_class"))
    assert effects == {"a": "reversible", "pay": "irreversible"}
    assert (source.credentials, PendingImport.objects.count()) == ({"bearer": "SHOP"}, 0)
    assert {event.actor for event in Event.objects.all()} == {f"user:{answer.wsgi_request.user.pk}:ada (admin)"}
    assert "2 operations are tools of the-shop" in staff.get(answer.headers["Location"]).content.decode()


def test_a_file_and_an_address_do_as_well(staff: Client, settings: Any) -> None:
    file = SimpleUploadedFile("shop.yaml", shop(a="get").encode())
    assert staff.post(reverse("admin:toolsource_import"), {"file": file}).status_code == 302
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.0/24")]
    service = Service(json.loads(shop(a="get")))
    try:
        service.answers = [(200, {}, shop(a="get").encode())]
        assert staff.post(reverse("admin:toolsource_import"), {"url": f"{service.url}/a"}).status_code == 302
        assert PendingImport.objects.latest("created_at").origin == f"{service.url}/a"
    finally:
        service.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "in one way"),
        ({"text": "{}", "url": "https://shop.example/a"}, "in one way"),
        ({"text": "{"}, "neither JSON nor YAML"),
        ({"text": '{"swagger": "2.0"}'}, "Swagger 2.0"),
        ({"url": "http://127.0.0.1:1/a"}, "not a public address"),
        ({"url": "ftp://shop.example/a"}, "not a way to reach a server"),
        ({"text": shop(a="get"), "location": "gopher://shop"}, "starting with https"),
        ({"text": shop(a="get"), "beginning": "a b"}, "valid value"),
    ],
)
def test_what_cannot_be_read_says_why_and_keeps_what_was_typed(
    staff: Client, given: dict[str, str], message: str
) -> None:
    response = staff.post(reverse("admin:toolsource_import"), {"name": "mine", **given})
    assert response.status_code == 200
    assert message in str(response.context["form"].errors)
    assert 'value="mine"' in response.content.decode()
    assert not PendingImport.objects.exists()


def test_more_operations_than_fit_a_page_are_picked_over_several(staff: Client) -> None:
    url = read(staff, json.dumps(document("github")), name="github")
    PendingImport.objects.update(listing=[*PendingImport.objects.get().listing, *map(_again, range(1200))])
    page = pick(staff, url, "page-2", 0, 1)
    assert page.headers["Location"].endswith("page=2")
    assert pick(staff, page.headers["Location"], "keep", 100).headers["Location"].endswith("page=2")
    assert len(PendingImport.objects.get().choices) == 3
    response = staff.get(url)
    assert (response.context["picking"].pages, len(response.context["picking"].rows)) == (13, 100)


def _again(number: int) -> dict[str, Any]:
    key = f"GET /more/{number}"
    return {
        "key": key, "method": "GET", "path": f"/more/{number}", "name": f"more_{number}", "effect": "read",
        "summary": "",
        "tags": ["more"], "deprecated": False, "arguments": 0, "needed": 0, "state": "new", "is_tool": False,
        "parts": [],
    }  # fmt: skip


def test_a_search_narrows_what_is_shown_and_what_all_and_none_mean(staff: Client) -> None:
    url = read(staff, json.dumps(document("github")), name="github")
    found = pick(staff, url, "search", q="gist star").headers["Location"]
    assert {row.said["path"] for row in staff.get(found).context["picking"].rows} >= {"/gists/{gist_id}/star"}
    search = {"q": "gist star", "tag": "gists"}
    pick(staff, url, "all", **search)
    stars = set(PendingImport.objects.get().choices)
    assert stars
    assert all("/gists" in key for key in stars)
    pick(staff, url, "all", q="", tag="markdown")
    assert len(PendingImport.objects.get().choices) == len(stars) + 2
    picked = staff.get(f"{url}?state=picked").context["picking"].fitting
    assert len(picked) == len(stars) + 2
    pick(staff, url, "none", **search)
    assert {key.partition(" ")[2] for key in PendingImport.objects.get().choices} == {"/markdown", "/markdown/raw"}


def test_a_document_read_anew_shows_the_difference(staff: Client) -> None:
    imported(shop(a="get", b="get", c="get"))
    source = ToolSource.objects.get()
    page = staff.get(address(ToolSource, "change", source.pk)).content.decode()
    anew = reverse("admin:toolsource_import_anew", args=[source.pk])
    assert anew in page
    text = shop(a="get", b=("get", {"description": "Longer."}), d="post")
    url = staff.post(anew, {"text": text}).headers["Location"]
    shown = staff.get(url).content.decode()
    assert "Longer." in shown
    assert '<h2 class="fieldset-heading">Gone</h2>' in shown
    pick(staff, url, "import")
    assert {tool.name: tool.missing_since is None for tool in Tool.objects.all()} == {"a": True, "b": True, "c": False}
    assert Tool.objects.get(name="b").description == "Longer."


def test_what_is_wrong_is_said_and_the_picks_stay(staff: Client) -> None:
    url = read(staff, shop(a="get", b="post"))
    for more, message in (
        ({"name-1": "a b"}, "not a name that every"),
        ({"effect-1": "read"}, "An import cannot weaken that"),
        ({"effect-1": "none"}, "not an effect class"),
        ({"credential-bearer": "secret!"}, "not the name of a credential"),
    ):
        answer = pick(staff, url, "import", 1, **more)
        assert answer.status_code == 422
        assert message in answer.content.decode()
    assert not Tool.objects.exists()
    assert "Pick at least one" in pick(staff, url, "import", 99).content.decode()


def test_a_document_is_its_readers_own_and_does_not_last(client: Client, staff: Client, roles: Any, ada: User) -> None:
    url = read(staff, shop(a="get"))
    eve = User.objects.create_superuser("eve")
    client.force_login(eve)
    assert client.get(url).headers["Location"] == reverse("admin:toolsource_import")
    client.force_login(ada)
    PendingImport.objects.update(created_at=timezone.now() - pending.LASTS - timedelta(seconds=1))
    assert client.get(url).status_code == 302
    pending.forget()
    assert not PendingImport.objects.exists()
    read(staff, shop(b="get"))
    pending.forget()
    assert PendingImport.objects.count() == 1


def test_a_page_that_was_tampered_with_is_answered(staff: Client) -> None:
    url = read(staff, shop(a="get"))
    many = "9" * 5000
    assert staff.get(url, {"page": many}).status_code == 200
    assert staff.post(url, {"do": f"page-{many}", "shown": [many, "-1", "0x", "7"]}).status_code == 302
    assert staff.post(url, {"do": "keep", "shown": "0", "take-0": "on", "name-0": "a\x00b"}).status_code == 302
    assert PendingImport.objects.get().choices["GET /a"]["name"] == "a␀b"
    answer = staff.post(url, {"do": "import", "shown": "0", "take-0": "on", "name-0": "x" * 300})
    assert (answer.status_code, Tool.objects.count()) == (422, 0)


def test_a_secret_that_was_taken_for_a_name_stands_in_no_address(staff: Client) -> None:
    url = read(staff, shop(a="get"))
    sent = {"do": "search", "credential-bearer": "s3cret-token", "credential-basic": "SHOP"}
    assert staff.post(url, sent).headers["Location"] == f"{url}?credential-basic=SHOP"


def test_giving_up_throws_it_away(staff: Client) -> None:
    url = read(staff, shop(a="get"))
    assert pick(staff, url, "give-up").status_code == 302
    assert not PendingImport.objects.exists()


RIGHTS = {"change_tool", "add_toolsource", "change_toolsource"}


@pytest.mark.parametrize("missing", ["", *sorted(RIGHTS)])
def test_only_who_may_change_tools_and_their_sources_imports(client: Client, mia: User, missing: str) -> None:
    mia.is_staff = True
    mia.save()
    mia.user_permissions.set(Permission.objects.filter(codename__in=RIGHTS))
    client.force_login(mia)
    url = read(client, shop(a="get"))
    mia.user_permissions.set(Permission.objects.filter(codename__in=RIGHTS - {missing}))
    status = 403 if missing else 200
    for page in (reverse("admin:toolsource_import"), url):
        assert client.get(page).status_code == status
    if missing:
        assert client.post(reverse("admin:toolsource_import"), {"text": shop(a="get")}).status_code == 403
        assert client.post(url, {"do": "import", "shown": "0", "take-0": "on"}).status_code == 403
        assert not Tool.objects.exists()


def test_a_page_of_many_operations_asks_the_database_as_often_as_one_of_few(
    staff: Client, django_assert_num_queries: Any
) -> None:
    urls = [read(staff, shop(a="get")), read(staff, json.dumps(document("figma")))]
    staff.get(urls[0])
    for url in urls:
        with django_assert_num_queries(5):
            staff.get(url)


# --- The source's own page ----------------------------------------------------------------------


def test_credentials_are_named_and_hosts_are_listed(staff: Client) -> None:
    imported(shop(a="get"))
    url = address(ToolSource, "change", ToolSource.objects.get().pk)
    save(staff, url, credentials='{"bearer": "SHOP"}', hosts='["shop.example", "files.shop.example"]')
    source = ToolSource.objects.get()
    assert (source.credentials, source.hosts) == ({"bearer": "SHOP"}, ["shop.example", "files.shop.example"])
    for fields, message in (
        ({"credentials": '{"bearer": "s3cret-token"}'}, "does not belong here"),
        ({"credentials": "[]"}, "does not belong here"),
        ({"hosts": '["https://shop.example"]'}, "without scheme"),
        ({"hosts": '{"a": 1}'}, "without scheme"),
    ):
        assert message in errors_of(submit(staff, url, **fields))
    assert "s3cret" not in "".join(event.body for event in Event.objects.all())


def deleted(staff: Client, row: Tool | ToolSource) -> Any:
    return staff.post(address(type(row), "delete", row.pk), {"post": "yes"})


def test_a_source_stays_as_long_as_it_has_tools(staff: Client) -> None:
    imported(shop(a="get"))
    source, tool = ToolSource.objects.get(), Tool.objects.get()
    [kept] = deleted(staff, source).context["protected"]
    assert address(Tool, "change", tool.pk) in kept
    assert deleted(staff, tool).status_code == 403  # its source still lists it
    Tool.objects.update(missing_since=timezone.now())
    deleted(staff, source)
    assert (ToolSource.objects.get(), Tool.objects.get()) == (source, tool)


def test_a_deleted_source_is_found_on_none_of_its_pages(staff: Client) -> None:
    imported(shop(a="get"))
    source = ToolSource.objects.get()
    Tool.objects.update(missing_since=timezone.now())
    deleted(staff, Tool.objects.get())
    assert deleted(staff, source).status_code == 302
    assert not ToolSource.objects.exists()
    pages = [address(ToolSource, page, source.pk) for page in ("change", "history", "delete")]
    for url in (*pages, reverse("admin:toolsource_import_anew", args=[source.pk])):
        assert staff.get(url).status_code == 404
        assert staff.post(url, {"post": "yes"}).status_code == 404
    assert str(source.pk) not in staff.get(address(ToolSource, "changelist")).content.decode()
