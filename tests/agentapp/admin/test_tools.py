"""A tool's contract is read-only; its safety can be set, with a warning if it gets weaker."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from agentapp import contracts, doubts, tool_sync
from agentapp.models import Tool, ToolSource
from approvals import ledger
from tests.admin_pages import address, configuration_events, errors_of, save, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    client.force_login(ada)
    return client


@pytest.fixture
def url(staff: Client) -> str:
    return address(Tool, "change", Tool.objects.get(name="pay_out").pk)


def told(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_safety_settings_are_changed_and_recorded(staff: Client, url: str) -> None:
    seen = ledger.height()
    save(staff, url, timeout_seconds="5", secret_fields=["pin", "account"], locked_fields=[])
    tool = Tool.objects.get(name="pay_out")
    assert (tool.timeout_seconds, tool.secret_fields, tool.locked_fields) == (5, ["pin", "account"], [])
    [event] = configuration_events(after=seen)
    assert event.data["before"] == {"timeout_seconds": 12, "locked_fields": ["account"], "secret_fields": ["pin"]}
    assert event.data["after"] == {
        "timeout_seconds": 5,
        "locked_fields": [],
        "secret_fields": ["pin", "account"],
    }


def test_it_can_be_kept_to_the_runs_of_some_people(staff: Client, url: str) -> None:
    payers, seen = Group.objects.create(name="Payers"), ledger.height()
    save(staff, url, starters=[payers.pk])
    assert list(Tool.objects.get(name="pay_out").starters.all()) == [payers]
    [event] = configuration_events(after=seen)
    assert (event.data["before"], event.data["after"]) == ({"starters": []}, {"starters": ["Payers"]})


def test_the_contract_cannot_be_changed_by_any_request(staff: Client, url: str) -> None:
    before = contracts.contract_columns(tool_sync.python_source.get("pay_out"))  # type: ignore[arg-type]
    save(staff, url, description="harmless", version="1", input_schema="{}", declared_effect_class="read", name="x")
    tool = Tool.objects.get(name="pay_out")
    assert {name: getattr(tool, name) for name in before} == before


def test_a_weaker_effect_class_is_set_with_a_warning(staff: Client, url: str) -> None:
    weaker = told(save(staff, url, effect_class="read"))
    assert any("was irreversible and is now read" in message for message in weaker)
    assert any("declares it irreversible" in message for message in weaker)
    again = told(save(staff, url, owner="Ada"))
    assert not any("was irreversible" in message for message in again)


def test_a_tool_that_leaves_doubts_is_saved_with_a_warning(staff: Client) -> None:
    read = Tool.objects.get(name="look_up_order")
    messages = told(save(staff, address(Tool, "change", read.pk), owner=""))
    assert f"Worth a second look: look_up_order. {doubts.UNOWNED}" in messages


def test_a_stricter_effect_class_needs_no_warning(staff: Client) -> None:
    read = address(Tool, "change", Tool.objects.get(name="look_up_order").pk)
    messages = told(save(staff, read, effect_class="irreversible", owner="Ada"))
    assert len(messages) == 1
    assert "was changed successfully" in messages[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"locked_fields": ["amout"]}, "amout is not one of the available choices"),
        ({"effect_class": "harmless"}, "harmless is not one of the available choices"),
        ({"timeout_seconds": "1000000000000"}, "At most one day, which is 86400 seconds."),
        ({"timeout_seconds": "0"}, "A tool needs a deadline of at least one second."),
        ({"max_attempts": "0"}, "A tool must be tried at least once."),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    staff: Client, url: str, fields: dict[str, Any], message: str
) -> None:
    assert message in errors_of(submit(staff, url, **fields))


@pytest.mark.parametrize(
    "questions", ["5", '"Why?"', "true", "{}", '{"Why?": 1}', "[5]", '["Why?", null]', '["", "Why?"]', '[" "]']
)
def test_a_tool_whose_questions_are_no_list_of_texts_is_refused(staff: Client, url: str, questions: str) -> None:
    assert "Give a list of questions" in errors_of(submit(staff, url, questions=questions))
    assert Tool.objects.get(name="pay_out").questions == []


def test_the_questions_of_a_tool_are_kept_and_can_be_taken_away(staff: Client, url: str) -> None:
    for typed, kept in (('["Which policy allows this?"]', ["Which policy allows this?"]), ("[]", []), ("", [])):
        save(staff, url, questions=typed)
        assert Tool.objects.get(name="pay_out").questions == kept


def test_tools_and_sources_are_made_by_code_alone(staff: Client, url: str) -> None:
    for model in (Tool, ToolSource):
        assert staff.post(address(model, "add"), {"name": "mine"}).status_code == 403


def test_a_tool_can_be_deleted_when_it_is_gone_from_code(staff: Client) -> None:
    tool = Tool.objects.get(name="send_letter")
    url = address(Tool, "delete", tool.pk)
    assert staff.post(url, {"post": "yes"}).status_code == 403
    Tool.objects.filter(pk=tool.pk).update(missing_since=timezone.now())
    staff.post(url, {"post": "yes"})
    assert not Tool.objects.filter(pk=tool.pk).exists()
    assert configuration_events()[-1].type == "configuration.deleted"


def test_a_source_can_be_renamed_and_nothing_else(staff: Client) -> None:
    source = ToolSource.objects.get()
    save(staff, address(ToolSource, "change", source.pk), name="payments", location="elsewhere")
    source.refresh_from_db()
    assert (source.name, source.location) == ("payments", "tests.tools_for_tests")
