"""Guidelines are edited in the admin: with relations, versions and how often each was cited."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp.models import Agent, Guideline, GuidelineRelation, Tool, ToolRelation
from tests.admin_pages import address, configuration_events, errors_of, save, submit
from tests.conftest import Clerk
from tests.guided import Guide


@pytest.fixture
def guide(clerk: Clerk, client: Client, ada: User) -> Guide:
    client.force_login(ada)
    return Guide(clerk)


def test_a_guideline_is_made_with_its_tools_and_on_record(guide: Guide, client: Client) -> None:
    tool = Tool.objects.get(name="look_up")
    fields = {"agent": guide.clerk.agent.pk, "name": "finding", "condition": "they look for something"}
    save(client, address(Guideline, "add"), **fields, tools=[tool.pk])
    made = Guideline.objects.get()
    assert (made.version, [each.name for each in made.tools.all()]) == (1, ["look_up"])
    assert configuration_events()[-1].data["after"]["tools"] == ["look_up"]


def test_a_change_is_a_new_version_that_shows_what_it_changed(guide: Guide, client: Client) -> None:
    made = guide.guideline("finding", "Look it up.")
    save(client, address(Guideline, "change", made.pk), action="Look it up twice.")
    made.refresh_from_db()
    assert made.version == 2
    page = client.get(address(Guideline, "change", made.pk)).content.decode()
    assert "Version 2" in page
    assert 'data-s="+">&quot;Look it up twice.&quot;' in page


def test_a_guideline_says_how_often_it_was_cited(guide: Guide, client: Client) -> None:
    guide.guideline("finding", "Say it.")
    guide.guideline("never", "Say nothing.")
    for _ in range(2):
        guide.run({"matched": ["finding"], "says": "Here."})
    page = client.get(address(Guideline, "changelist")).content.decode()
    assert "2 times" in page
    assert "0 times" in page


def test_a_relation_is_added_beside_its_guideline_and_only_within_the_agent(guide: Guide, client: Client) -> None:
    first, second = guide.guideline("first", "One."), guide.guideline("second", "Two.")
    elsewhere = Guideline.objects.create(agent=Agent.objects.create(name="other"), name="third", action="Three.")
    row = {"relations-TOTAL_FORMS": "1", "relations-0-kind": "entails", "relations-0-source": first.pk}
    url = address(Guideline, "change", first.pk)
    assert "Both guidelines must belong to one agent." in errors_of(
        submit(client, url, **row, **{"relations-0-target": elsewhere.pk})
    )
    save(client, url, **row, **{"relations-0-target": second.pk})
    assert GuidelineRelation.objects.get().target == second
    assert configuration_events()[-1].data["name"] == "clerk/first entails clerk/second"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"matcher": "python", "python": "no.such"}, "no.such cannot be imported"),
        ({"matcher": "python"}, "A guideline that code matches must name a function"),
        ({"condition": "", "action": ""}, "A model needs a condition, or an action"),
    ],
)
def test_what_cannot_work_is_refused(guide: Guide, client: Client, fields: Any, problem: str) -> None:
    made = guide.guideline("finding", "Look it up.")
    assert problem in errors_of(submit(client, address(Guideline, "change", made.pk), **fields))


def test_a_module_that_fails_to_load_is_told_as_what_is_wrong(
    guide: Guide, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_broken.py").write_text("raise RuntimeError('no settings')")
    monkeypatch.syspath_prepend(tmp_path)
    made = guide.guideline("finding", "Look it up.")
    fields = {"matcher": "python", "python": "shop_broken.is_open"}
    problem = errors_of(submit(client, address(Guideline, "change", made.pk), **fields))
    assert "shop_broken.is_open cannot be imported: no settings." in problem


def test_only_tools_of_the_agent_can_be_chosen_for_its_guideline(guide: Guide, client: Client) -> None:
    made = guide.guideline("finding", "Look it up.")
    guide.clerk.agent.tools.set(Tool.objects.filter(name="look_up"))
    pay = Tool.objects.get(name="pay")
    assert "Select a valid choice" in errors_of(submit(client, address(Guideline, "change", made.pk), tools=[pay.pk]))


def test_two_tools_are_set_to_overlap(guide: Guide, client: Client) -> None:
    first, second = Tool.objects.get(name="look_up"), Tool.objects.get(name="fail")
    save(client, address(ToolRelation, "add"), source=first.pk, target=second.pk)
    assert ToolRelation.objects.get().target == second
    again = submit(client, address(ToolRelation, "add"), source=first.pk, target=first.pk)
    assert "A tool cannot have a relation to itself." in errors_of(again)
