"""The address of a list in the admin can ask what the list's filters ask, and nothing else about any column."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import CharField, JSONField, TextField
from django.test import Client
from django.urls import reverse

from agentapp import tool_sync
from agentapp.models import Agent, ApiToken, Conversation, Run, Step, Tool, ToolExecution, ToolSource
from approvals import lens
from approvals.models import Approval, Delegation
from tests.admin_pages import address
from tests.conftest import Clerk, call, calls, says

pytestmark = pytest.mark.django_db
MODELS = list(admin.site._registry)
# Columns that the row's pages mask or leave out, and columns that repeat them.
MASKED = {
    Run: {"script", "mocks", "opening", "request_digest", "lease_token"},
    Step: {"provider_parts", "text", "reasoning"},
    ToolExecution: {"arguments_text", "executed_text", "result_text", "raw_result_text", "metadata"},
    Approval: {"arguments_text", "final_arguments_text", "salt", "card", "title", "final_title"},
}


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    ada.is_superuser = True
    ada.save()
    client.force_login(ada)
    return client


@pytest.fixture
def asked_by(rf: Any, ada: User) -> Any:
    request = rf.get("/")
    request.user = ada
    return request


@pytest.mark.parametrize("model", MODELS)
def test_no_text_can_be_guessed_at_piece_by_piece(staff: Client, asked_by: Any, model: Any) -> None:
    texts = [f.name for f in model._meta.concrete_fields if isinstance(f, (CharField, TextField, JSONField))]
    pieces = (
        "contains",
        "icontains",
        "startswith",
        "istartswith",
        "endswith",
        "iendswith",
        "regex",
        "iregex",
        "iexact",
    )
    allowed = admin.site._registry[model].lookup_allowed
    assert [
        asked for column in texts for piece in pieces if allowed(asked := f"{column}__{piece}", "a", asked_by)
    ] == []
    for piece in ("contains", "regex"):
        answer = staff.get(address(model, "changelist"), {f"{texts[0]}__{piece}": "a"})
        assert answer.status_code == 400, piece


@pytest.mark.parametrize("model", MODELS)
def test_no_column_without_a_filter_is_asked_in_any_way(asked_by: Any, model: Any) -> None:
    pages = admin.site._registry[model]
    filters = {each if isinstance(each, str) else each[0] for each in pages.list_filter if not isinstance(each, type)}
    own = {each.parameter_name for each in pages.list_filter if isinstance(each, type)}
    for field in model._meta.concrete_fields:
        if field.name in filters or field.primary_key:
            continue
        for lookup in ("", "__exact", "__in", "__gt", "__gte", "__lt", "__lte", "__isnull", "__year", "__length__gt"):
            asked = f"{field.name}{lookup}"
            assert asked in own or not pages.lookup_allowed(asked, "a", asked_by), asked


@pytest.mark.parametrize("model", MODELS)
def test_nothing_behind_a_relation_is_asked_but_which_row_it_is(asked_by: Any, model: Any) -> None:
    for relation in [each for each in model._meta.get_fields() if each.is_relation and each.related_model]:
        for field in relation.related_model._meta.concrete_fields:
            for lookup in ("__contains", "__regex", "__startswith"):
                asked = f"{relation.name}__{field.name}{lookup}"
                assert not admin.site._registry[model].lookup_allowed(asked, "a", asked_by), asked
            if not field.primary_key:
                asked = f"{relation.name}__{field.name}"
                assert not admin.site._registry[model].lookup_allowed(asked, "a", asked_by), asked


def test_a_password_is_asked_for_in_no_way(staff: Client) -> None:
    for asked in ("password", "password__exact", "password__startswith", "password__gt"):
        assert staff.get(address(User, "changelist"), {asked: "a"}).status_code == 400
    assert staff.get(address(ApiToken, "changelist"), {"user__password__startswith": "a"}).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_every_filter_beside_a_list_still_leads_somewhere(client: Client, clerk: Clerk, ada: User) -> None:
    tool_sync.sync("test")
    clerk.run(calls(call("1", "look_up", what="1"), call("2", "label", text="1")), says("Done."))
    ada.is_superuser = True
    ada.save()
    ada.groups.add(Group.objects.create(name="night"))
    client.force_login(ada)
    followed = 0
    for model in (model for model in MODELS if admin.site._registry[model].list_filter):
        url = address(model, "changelist")
        shown = client.get(url)
        for spec in shown.context["cl"].filter_specs:
            for choice in spec.choices(shown.context["cl"]):
                link = choice["query_string"]
                assert client.get(url + link).status_code == 200, url + link
                followed += link != "?"
    assert followed > 50


def test_what_pages_of_ours_lead_to_is_found(staff: Client) -> None:
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    Tool.objects.create(name="pay", source=source, version="1")
    page = staff.get(address(ToolSource, "change", source.pk)).content.decode()
    link = f"{address(Tool, 'changelist')}?source__id__exact={source.pk}"
    assert link in page
    assert "pay" in staff.get(link).content.decode()
    assert (
        staff.get(reverse("admin:agentapp_webhookdelivery_changelist"), {"endpoint__id__exact": 1}).status_code == 200
    )
    assert staff.get(address(Delegation, "changelist"), {"ended_at__isempty": "1"}).status_code == 200
    assert staff.get(address(User, "changelist"), {"id__exact": 1, "_popup": "1", "_to_field": "id"}).status_code == 200


def test_dates_are_asked_by_whoever_offers_them(asked_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = admin.site._registry[Run]
    monkeypatch.setattr(pages, "date_hierarchy", "created_at")
    assert all(
        pages.lookup_allowed(f"created_at__{part}", "1", asked_by) for part in ("year", "month", "day", "gte", "lt")
    )
    assert not pages.lookup_allowed("created_at__regex", "1", asked_by)
    assert not pages.lookup_allowed("finished_at__year", "1", asked_by)


def test_rows_that_another_table_lets_choose_can_be_asked_for(asked_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = admin.site._registry[Conversation]
    monkeypatch.setattr(Conversation._meta, "related_fkey_lookups", [{"key": "a"}])
    assert pages.lookup_allowed("key", "a", asked_by)
    assert not pages.lookup_allowed("key", "b", asked_by)


@pytest.mark.parametrize("model", MASKED)
def test_no_search_looks_through_what_is_masked(model: Any) -> None:
    searched = {name.lstrip("^=@").split("__")[0] for name in admin.site._registry[model].search_fields}
    assert not searched & MASKED[model]


def test_no_field_completes_what_somebody_types_by_searching(staff: Client) -> None:
    """Django's address for that searches `search_fields`; its answers are names, which the lists show too."""
    asked = {"app_label": "agentapp", "model_name": "step", "field_name": "run", "term": "hunter2"}
    assert staff.get(reverse("admin:autocomplete"), asked).json()["results"] == []
    assert Agent.objects.count() == 0


def test_a_search_finds_no_personal_data_for_whom_it_is_hidden_from(client: Client, mia: User) -> None:
    agent = Agent.objects.create(name="support")
    Conversation.objects.create(agent=agent, key="ticket 7", customer="grace@shop.example")
    mia.is_staff = True
    mia.save()
    mia.user_permissions.add(Permission.objects.get(codename="view_conversation"))
    client.force_login(mia)
    found = [
        client.get(address(Conversation, "changelist"), {"q": q}).context["cl"].result_count for q in ("grace", "7")
    ]
    assert found == [0, 1]
    mia.user_permissions.add(Permission.objects.get(codename="reveal_pii"))
    assert client.get(address(Conversation, "changelist"), {"q": "grace"}).context["cl"].result_count == 1


@pytest.mark.parametrize(("model", "hidden"), [(Run, {"title", "customer"}), (Conversation, {"customer"})])
def test_no_list_is_sorted_by_what_is_masked_for_whoever_looks(asked_by: Any, model: Any, hidden: set[str]) -> None:
    page = admin.site._registry[model]
    with lens.put_up(lens.Lens()):
        assert not hidden & set(page.get_sortable_by(asked_by))
    with lens.put_up(lens.Lens(is_open=True)):
        assert set(page.get_sortable_by(asked_by)) == set(page.list_display)
