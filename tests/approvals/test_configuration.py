"""Every change of configuration is one event that says what was there before and after."""

import threading
from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection, models
from django.db.models import ProtectedError
from django.test.utils import CaptureQueriesContext

from agentapp.models import Agent, ApiToken, Route, Tool, ToolSource
from approvals import configuration, ledger
from approvals.models import Approval, Event, Rule
from tests import races
from tests.rows import a_request

pytestmark = pytest.mark.django_db


def events() -> list[Event]:
    return list(Event.objects.filter(chain=ledger.CONFIGURATION).order_by("seq"))


def rule(**fields: object) -> Rule:
    return Rule(**{"name": "over-limit", "verdict": "ask", **fields})


def test_a_new_row_is_one_event_with_everything_in_it() -> None:
    group = Group.objects.create(name="managers")
    change = configuration.save(rule(), "user:1:ada", {"groups": [group]})
    [event] = events()
    assert event.type == "configuration.created"
    assert event.actor == "user:1:ada"
    assert event.data["table"] == "approvals.Rule"
    assert event.data["before"] is None
    assert event.data["after"]["groups"] == ["managers"]
    assert change is not None
    assert change.after == event.data["after"]


def test_a_change_names_only_the_fields_that_differ_links_included() -> None:
    stored, group = rule(), Group.objects.create(name="managers")
    configuration.save(stored, "ada")
    stored.risk = "high"
    configuration.save(stored, "ada", {"groups": [group]})
    event = events()[-1]
    assert event.type == "configuration.changed"
    assert event.data["before"] == {"risk": "medium", "groups": [], "version": 1}
    assert event.data["after"] == {"risk": "high", "groups": ["managers"], "version": 2}


def test_saving_what_is_there_already_records_nothing() -> None:
    agent = Agent(name="support", max_cost=Decimal("1.5"))
    configuration.save(agent, "ada")
    again = Agent.objects.get()
    again.max_cost = Decimal("1.500000")
    assert configuration.save(again, "ada") is None
    agent.max_cost = Decimal("1.5")
    assert configuration.save(agent, "ada") is None
    assert len(events()) == 1


def test_a_rule_keeps_its_version_until_it_changes() -> None:
    stored = rule()
    configuration.save(stored, "ada")
    configuration.save(stored, "ada")
    assert Rule.objects.get().version == 1
    stored.order = 5
    configuration.save(stored, "ada")
    assert Rule.objects.get().version == stored.version == 2


def test_a_deletion_records_what_was_there_and_all_that_went_with_it() -> None:
    agent = Agent.objects.create(name="support")
    Route.objects.create(agent=agent, name="refunds")
    configuration.delete(agent, "ada")
    assert [(event.type, event.data["name"]) for event in events()] == [
        ("configuration.deleted", "support"),
        ("configuration.deleted", "support/refunds"),
    ]
    assert events()[0].data["before"]["name"] == "support"
    assert not Route.objects.exists()


def test_what_must_stay_stops_a_deletion_and_its_event() -> None:
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    Tool.objects.create(name="pay", source=source, version="1")
    with pytest.raises(ProtectedError):
        configuration.delete(source, "ada")
    assert events() == []


def test_a_change_that_fails_leaves_neither_row_nor_event() -> None:
    def two_of_one_name() -> None:
        with ledger.transaction():
            configuration.save(rule(), "ada")
            configuration.save(rule(), "ada")

    with pytest.raises(IntegrityError):
        two_of_one_name()
    assert events() == []
    assert not Rule.objects.exists()


def test_secrets_stand_in_no_event() -> None:
    user = User(username="zoe")
    user.set_password("correct horse battery")
    configuration.save(user, "ada")
    token = ApiToken(name="CI", user=user, prefix="cs_abc", digest="d1g3st")
    configuration.save(token, "ada")
    bodies = " ".join(event.body for event in events())
    assert user.password not in bodies
    assert "d1g3st" not in bodies
    assert "zoe" in bodies


def test_related_rows_are_named_by_their_text() -> None:
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    tool = Tool.objects.create(name="pay", source=source, version="1")
    assert configuration.describe(tool)["source"] == "shop"


def test_describing_a_group_costs_the_same_for_any_number_of_permissions(roles: dict[str, Group]) -> None:
    with CaptureQueriesContext(
        connection,
    ) as few:
        configuration.describe(roles["operator"])
    with CaptureQueriesContext(connection) as many:
        configuration.describe(roles["admin"])
    assert len(few) == len(many)


def deleted_while(monkeypatch: pytest.MonkeyPatch, group: Group, write: Callable[[], object]) -> list[IntegrityError]:
    """Delete a group while another thread writes something that names it. Returns the database's errors."""
    naming, said = configuration.naming, list[IntegrityError]()

    def name_it() -> None:
        try:
            write()
        except IntegrityError as error:
            said.append(error)
        finally:
            connection.close()

    other = threading.Thread(target=name_it)

    def looked(group: Group) -> list[models.Model]:
        found = naming(group)
        other.start()
        races.met(other)
        return found

    monkeypatch.setattr(configuration, "naming", looked)
    configuration.delete(group, "user:bob")
    other.join(20)
    assert not other.is_alive()
    return said


@pytest.mark.postgresql  # SQLite lets one writer in at a time
@pytest.mark.django_db(transaction=True)
def test_a_rule_never_loses_a_group_that_it_comes_to_name_while_the_group_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    legal = Group.objects.create(name="Legal")
    stored = Rule.objects.create(name="pays", tool="pay", verdict="deny")
    read_before = Group.objects.get(name="Legal")

    def name_it() -> None:
        changed = Rule.objects.get(pk=stored.pk)
        changed.verdict = "ask"
        configuration.save(changed, "user:ada", {"groups": [read_before]})

    said = deleted_while(monkeypatch, legal, name_it)
    stored.refresh_from_db()
    assert (len(said), stored.verdict) == (1, "deny")  # not asking everybody


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_request_never_comes_to_be_for_a_group_that_is_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker names it by earlier rules, without looking: it waits, and then the group is gone."""
    legal, approval = Group.objects.create(name="Legal"), a_request()
    links = Approval.groups.through.objects

    said = deleted_while(monkeypatch, legal, lambda: links.create(approval=approval, group_id=legal.pk))
    assert len(said) == 1
    assert not approval.groups.exists()
