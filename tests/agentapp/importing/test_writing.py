"""What was picked becomes tools through the configuration chain, and nothing is less careful than before."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp.importing import planning, writing
from agentapp.importing.planning import Choice, Given
from agentapp.models import Tool, ToolExecution, ToolSource
from agentapp.refused import Refused
from approvals.models import Approval, Event
from tests.admin_pages import configuration_events
from tests.agentapp.importing.test_planning import imported, plan, shop
from tests.agentapp.run_builder import RunBuilder, make_agent, make_tool, proposal

pytestmark = pytest.mark.django_db


def take(text: str, picked: dict[str, Choice], **more: Any) -> writing.Imported:
    return writing.write(plan(text), picked, "test", **more)


def test_what_is_picked_becomes_tools_that_ask() -> None:
    done = take(
        shop(a="get", b="post", c="put"), {"GET /a": Choice("a", "read"), "POST /b": Choice("pay", "irreversible")}
    )
    rows = {tool.name: tool for tool in Tool.objects.all()}
    assert set(rows) == {"a", "pay"}
    assert {tool.trust for tool in rows.values()} == {"untrusted_content"}
    assert (rows["a"].effect_class, rows["pay"].effect_class) == ("read", "irreversible")
    assert (rows["pay"].approval_mode, rows["pay"].idempotency) == ("rules", "none")
    assert rows["pay"].wire["server"] == "https://shop.example/v1"
    assert [event.type for event in configuration_events()] == ["configuration.created"] * 3
    assert len(done.changes) == 3


def test_an_import_that_changes_nothing_writes_nothing() -> None:
    imported(shop(a="get", b="post"))
    before = Event.objects.count()
    imported(shop(a="get", b="post"))
    assert Event.objects.count() == before


def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    done = take(shop(a="get"), {"GET /a": Choice("a", "read")}, dry_run=True)
    assert len(done.changes) == 2
    assert (Tool.objects.count(), ToolSource.objects.count(), Event.objects.count()) == (0, 0, 0)


@pytest.mark.parametrize(
    ("picked", "code"),
    [
        ({"GET /gone": Choice("a", "read")}, "unknown_operation"),
        ({"POST /b": Choice("b", "read")}, "weaker_effect"),
        ({"POST /b": Choice("b", "harmless")}, "invalid_effect"),
        ({"POST /b": Choice("not a name", "irreversible")}, "invalid_name"),
        ({"POST /b": Choice("", "irreversible")}, "invalid_name"),
        ({"POST /b": Choice("x" * 65, "irreversible")}, "invalid_name"),
        ({"POST /b": Choice("taken", "irreversible")}, "name_taken"),
        ({"GET /a": Choice("same", "read"), "POST /b": Choice("same", "irreversible")}, "name_taken"),
    ],
)
def test_what_cannot_be_taken_changes_nothing(picked: dict[str, Choice], code: str) -> None:
    make_tool("taken")
    with pytest.raises(Refused) as refused:
        take(shop(a="get", b="post"), picked)
    assert refused.value.code == code
    assert (Tool.objects.count(), Event.objects.count()) == (1, 0)


def test_another_document_takes_no_tool_over() -> None:
    imported(shop(a="get"))
    with pytest.raises(Refused, match="a tool of the-shop"):
        writing.write(plan(shop(a="get"), name="other"), {"GET /a": Choice("a", "read")}, "test")


def test_of_two_who_import_a_document_at_once_one_is_told_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    planned, check = plan(shop(a="get")), writing._check_names

    def check_and_be_overtaken(*given: Any) -> None:
        check(*given)
        monkeypatch.undo()
        imported(shop(a="get"))

    monkeypatch.setattr(writing, "_check_names", check_and_be_overtaken)
    with pytest.raises(Refused, match="has just imported"):
        writing.write(planned, {"GET /a": Choice("a", "read")}, "test")
    assert Tool.objects.get().source.name == "the-shop"


def test_a_new_operation_takes_no_settings_of_one_that_is_gone() -> None:
    imported(shop(pay="post"))
    Tool.objects.update(effect_class="read")
    planned = plan(shop(wipe="delete"))
    with pytest.raises(Refused, match="pay is a tool of the-shop"):
        writing.write(planned, {"DELETE /wipe": Choice("pay", "irreversible")}, "test")
    tool = Tool.objects.get()
    assert (tool.wire["path"], tool.effect_class) == ("/pay", "read")


def test_what_an_admin_sets_of_a_source_while_an_import_is_planned_stays() -> None:
    imported(shop(a="get"))
    planned = planning.plan(
        Given(shop(a="get", b="post"), location="https://new.example", origin="https://doc.example")
    )
    set_by_people = {"enabled": False, "hosts": ["other.example"], "name": "store", "credentials": {"bearer": "SHOP"}}
    ToolSource.objects.update(**set_by_people)
    done = writing.write(planned, {one.key: one.choice for one in planned.proposed}, "test")
    source = ToolSource.objects.get()
    assert {name: getattr(source, name) for name in set_by_people} == set_by_people
    assert (source.location, source.origin) == ("https://new.example", "https://doc.example")
    assert set(done.changes[0].after or {}) == {"location", "origin"}
    assert done.source == Tool.objects.get(name="b").source == source


def test_a_source_that_is_deleted_meanwhile_is_not_made_again() -> None:
    take(shop(a="get"), {})
    planned = plan(shop(a="get"))
    ToolSource.objects.all().delete()
    with pytest.raises(Refused, match="just deleted the source the-shop"):
        writing.write(planned, {"GET /a": Choice("a", "read")}, "test")
    assert (ToolSource.objects.count(), Tool.objects.count()) == (0, 0)


def test_the_name_of_a_tool_that_is_there_stays() -> None:
    imported(shop(a="get"))
    with pytest.raises(Refused, match="rules and agents name"):
        take(shop(a="get"), {"GET /a": Choice("b", "read")})


def test_an_effect_class_can_be_made_stronger_and_an_admins_word_stands() -> None:
    take(shop(a="get", b="put"), {"GET /a": Choice("a", "irreversible"), "PUT /b": Choice("b", "compensable")})
    assert Tool.objects.get(name="a").effect_class == "irreversible"
    Tool.objects.filter(name="b").update(effect_class="read")
    imported(shop(a="get", b="put"))
    assert {tool.name: tool.effect_class for tool in Tool.objects.all()} == {"a": "irreversible", "b": "read"}
    take(shop(a="get", b="put"), {"PUT /b": Choice("b", "reversible")})
    assert Tool.objects.get(name="b").effect_class == "reversible"
    imported(shop(b=("delete", {"path": "/b"})))
    assert Tool.objects.get(name="b").effect_class == "irreversible"


def test_what_is_gone_or_not_picked_any_more_is_offered_to_nobody() -> None:
    imported(shop(a="get", b="get", c="get"))
    take(shop(a="get", b="get"), {"GET /a": Choice("a", "read")})
    assert {tool.name: tool.missing_since is None for tool in Tool.objects.all()} == {"a": True, "b": False, "c": False}
    imported(shop(a="get", b="get", c="get"))
    assert not Tool.objects.exclude(missing_since=None).exists()


@pytest.mark.parametrize("later", [shop(pay=("post", {"description": "Pays twice."})), shop(pay="post")])
def test_a_changed_contract_voids_what_waits(sam: User, later: str) -> None:
    planned = imported(shop(pay="post"))
    tool = Tool.objects.get(name="pay")
    builder = RunBuilder(sam, agent=make_agent(tools=[tool]))
    (call,) = builder.step("", proposal(tool, {}))
    (approval,) = builder.ask(call)
    Approval.objects.update(tool_version=tool.version)
    location = "https://elsewhere.example" if later == shop(pay="post") else ""
    anew = planning.plan(Given(later, location=location))
    done = writing.write(anew, {one.key: one.choice for one in anew.proposed}, "test")
    approval.refresh_from_db()
    assert (done.voided, approval.state) == (1, "superseded")
    assert ToolExecution.objects.get(pk=call.pk).state == "proposed"
    assert Tool.objects.get(name="pay").version != planned.by_key["POST /pay"].tool.version


def test_a_credential_is_a_name_and_only_of_a_scheme_there_is() -> None:
    picked = {"GET /a": Choice("a", "read")}
    take(shop(a="get"), picked, named={"bearer": "SHOP"})
    assert ToolSource.objects.get().credentials == {"bearer": "SHOP"}
    take(shop(a="get"), picked)
    assert ToolSource.objects.get().credentials == {"bearer": "SHOP"}
    for named, code in (({"bearer": "s3cret-value"}, "invalid_credential"), ({"digest": "SHOP"}, "unknown_scheme")):
        with pytest.raises(Refused) as refused:
            take(shop(a="get"), picked, named=named)
        assert refused.value.code == code
    assert "s3cret" not in "".join(event.body for event in Event.objects.all())
