"""Starting a run of an agent that takes a form instead of a message."""

import json
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp.models import Agent, Run
from tests.agentapp.run_builder import make_agent

pytestmark = pytest.mark.django_db
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "integer", "title": "Order", "minimum": 1},
        "reason": {"type": "string", "title": "Reason", "enum": ["damaged", "late"], "default": "late"},
        "gift": {"type": "boolean", "title": "A gift"},
        "note": {"type": "string", "title": "Note", "format": "multiline"},
        "lines": {
            "type": "array",
            "title": "Lines",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]},
        },
    },
    "required": ["order", "reason"],
    "additionalProperties": False,
}


@pytest.fixture
def returns(db: None) -> Agent:
    return make_agent("returns", input_schema=SCHEMA)


@pytest.fixture
def sams(client: Client, sam: User, returns: Agent) -> Client:
    client.force_login(sam)
    return client


def form(**values: Any) -> dict[str, Any]:
    shown = [f"arg.{name}" for name in SCHEMA["properties"]]
    given = {"arg.order": "1042", "arg.reason": '"damaged"', "arg.gift": "true", "arg.note": ""}
    given |= {f"arg.{name}": value for name, value in values.pop("given", {}).items()}
    return {"agent": "returns", "request_key": str(uuid.uuid4()), "shown": shown, "input": "", **given, **values}


def test_what_is_given_becomes_the_input_with_its_types_and_the_title_in_words(sams: Client) -> None:
    assert sams.post("/runs/new/", form()).status_code == 302
    run = Run.objects.get()
    assert run.input == '{"gift":true,"order":1042,"reason":"damaged"}'
    assert run.title == "Order 1042, Reason Damaged, A gift Yes"


def test_a_value_cannot_be_read_as_another_field(sams: Client) -> None:
    sams.post("/runs/new/", form(given={"note": 'Hi\n"gift": false'}))
    assert json.loads(Run.objects.get().input)["note"] == 'Hi\n"gift": false'


def test_the_page_shows_the_form_with_what_is_given_by_default_in_place_of_the_message(sams: Client) -> None:
    page = sams.get("/runs/new/").content.decode()
    assert 'name="arg.order"' in page
    assert 'value="&quot;late&quot;" checked' in page
    assert '<textarea class="textarea tall"' not in page
    assert "Agent proposed" not in page


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"order": ""}, "This is missing."),
        ({"order": "0"}, "less than the minimum"),
        ({"order": "twelve"}, "number"),
        ({"reason": '"stolen"'}, "Choose one of the values."),
    ],
)
def test_what_does_not_fit_is_told_at_its_field_and_nothing_is_lost(
    sams: Client, given: dict[str, str], words: str
) -> None:
    response = sams.post("/runs/new/", form(given={"note": "Kept <b>.", **given}, customer="Ana"))
    page = response.content.decode()
    [name] = given
    assert response.status_code == 422
    assert words in page.split(f'id="box-f-{name}"')[1].split('id="box-f-')[0]
    assert "Kept &lt;b&gt;." in page
    assert 'value="Ana"' in page
    assert not Run.objects.exists()


def test_without_script_an_agent_is_chosen_first(sams: Client) -> None:
    make_agent()
    values = {"agent": "returns", "input": "Typed before.", "choose": "1", "request_key": str(uuid.uuid4())}
    response = sams.post("/runs/new/", values)
    page = response.content.decode()
    assert response.status_code == 200
    assert 'name="arg.order"' in page
    assert 'name="input" value="Typed before."' in page
    assert "aria-invalid" not in page
    assert not Run.objects.exists()


def test_a_row_more_or_less_changes_the_form_and_starts_nothing(sams: Client) -> None:
    response = sams.post("/runs/new/", form(add="arg.lines", given={"note": "Kept."}))
    page = response.content.decode()
    assert response.status_code == 200
    assert 'name="arg.lines.0.sku"' in page
    assert "Kept." in page
    part = sams.post("/runs/new/", form(add="arg.lines"), headers={"HX-Request-Type": "partial"}).content.decode()
    assert part.strip().startswith('<div id="request"')
    assert not Run.objects.exists()


def test_a_message_in_place_of_the_form_is_asked_for_as_the_form(sams: Client) -> None:
    values = {"agent": "returns", "input": "Just do it.", "request_key": str(uuid.uuid4())}
    response = sams.post("/runs/new/", values)
    assert response.status_code == 422
    assert 'name="arg.order"' in response.content.decode()
    assert not Run.objects.exists()


def test_the_command_and_the_limits_follow_what_is_given(sams: Client) -> None:
    Agent.objects.update(max_cost="0.5", max_seconds=300, on_budget="ask")
    part = sams.post("/runs/new/parts/", form(customer="Ana")).content.decode()
    assert "order\\&quot;:1042" in part
    assert "$0.50 a run" in part
    assert "waits for a person" in part
    assert "5:00 of work" in part
    assert "Sam Operator, for Ana" in part
    assert "aria-invalid" not in part


def test_a_default_that_is_masked_comes_back_as_it_is_and_a_mask_is_never_given(
    sams: Client, sam: User, returns: Agent
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "copy_to": {"type": "string", "title": "Copy to", "default": "desk@shop.example"},
            "watchers": {"type": "array", "items": {"type": "string"}, "default": ["a@shop.example", "b@shop.example"]},
        },
    }
    Agent.objects.filter(pk=returns.pk).update(input_schema=schema)
    for group in sam.groups.all():
        group.permissions.remove(*group.permissions.filter(codename="reveal_pii"))
    page = sams.get("/runs/new/").text
    assert "shop.example" not in page
    mask = "\u2022" * 6
    assert page.count(f'value="{mask}"') == 3
    values = {
        "agent": "returns", "request_key": str(uuid.uuid4()), "shown": ["arg.copy_to", "arg.watchers"], "input": "",
        "arg.copy_to": mask, "arg.watchers": [mask, mask],
    }  # fmt: skip
    for changed in ({"arg.copy_to": f"{mask}, me"}, {"arg.watchers": [mask]}):
        refused = sams.post("/runs/new/", {**values, **changed})
        assert (refused.status_code, "still has a masked part" in refused.text) == (422, True)
    assert not Run.objects.exists()
    assert sams.post("/runs/new/", values).status_code == 302
    assert json.loads(Run.objects.get().input) == {name: each["default"] for name, each in schema["properties"].items()}


BROKEN: list[Any] = [
    ["order"],
    7,
    True,
    "order",
    {"properties": {"order": 5}},
    {"properties": ["order"]},
    {"type": "objct"},
    {"type": "objct", "properties": {"order": {"type": "string"}}},
    {"properties": {"order": "string"}},
    {"properties": {"order": {"enum": 5}}},
    {"properties": {"order": {"type": "array", "items": {"type": "object", "properties": {"sku": 3}}}}},
    {"properties": {"order": {}}, "required": 1},
    {"properties": {"order": {"$ref": "https://shop.example/order"}}},
]


@pytest.mark.parametrize("schema", BROKEN)
def test_an_agent_whose_stored_schema_is_none_takes_a_message(sams: Client, returns: Agent, schema: Any) -> None:
    Agent.objects.filter(pk=returns.pk).update(input_schema=schema)
    page = sams.get("/runs/new/")
    assert page.status_code == 200
    assert '<textarea class="textarea tall"' in page.text
    values = {"agent": "returns", "request_key": str(uuid.uuid4()), "shown": "arg.order", "arg.order": "1042"}
    assert sams.post("/runs/new/parts/", {**values, "input": "Take it back."}).status_code == 200
    assert sams.post("/runs/new/", {**values, "input": "Take it back."}).status_code == 302
    assert Run.objects.get().input == "Take it back."


@pytest.mark.parametrize("schema", BROKEN)
def test_a_chat_shows_what_was_given_whatever_schema_is_stored_now(sams: Client, returns: Agent, schema: Any) -> None:
    assert sams.post("/runs/new/", form(given={"note": "Take it back."})).status_code == 302
    Agent.objects.filter(pk=returns.pk).update(input_schema=schema)
    run = Run.objects.get()
    for address in (f"/runs/{run.pk}/", f"/runs/{run.pk}/chat/"):
        page = sams.get(address)
        assert page.status_code == 200
        assert "Take it back." in page.text


def test_a_field_that_can_only_be_null_has_a_place_in_the_form(sams: Client, returns: Agent) -> None:
    nothing = {"anyOf": [{"type": "null"}, {"type": "null"}]}
    Agent.objects.filter(pk=returns.pk).update(input_schema={"properties": {"order": nothing}})
    page = sams.get("/runs/new/")
    assert page.status_code == 200
    assert 'name="arg.order"' in page.text
