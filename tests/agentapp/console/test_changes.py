"""Pages of the configuration's history, and of past calls under today's rules."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from agentapp import hindsight
from agentapp.models import Agent, Tool, ToolExecution
from approvals import changes, configuration, ledger, rule_versions
from approvals.models import Event, Rule
from tests.agentapp.run_builder import make_agent, make_tool
from tests.conftest import Clerk, call, calls, says

HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def mias(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def text_of(response: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def change(row: Any, actor: str = "user:0:somebody", **values: Any) -> Event:
    for name, value in values.items():
        setattr(row, name, value)
    configuration.save(row, actor)
    return Event.objects.filter(chain=ledger.CONFIGURATION).latest("seq")


@pytest.fixture
def told(db: None, ada: User) -> dict[str, Event]:
    """A tool changed twice, by Ada and by a sync, and an agent that was created and deleted."""
    tool, ada_is = make_tool("pay", "irreversible"), ledger.actor_of(ada, "admin")
    agent = Agent(name="clerk", instructions="Be exact.")
    found = {
        "safety": change(tool, ada_is, timeout_seconds=90, owner="payments"),
        "contract": change(tool, "sync_tools", description="Pay <b>somebody</b>.\n" * 12),
        "made": change(agent, ada_is),
    }
    configuration.delete(agent, ada_is)
    ledger_of = Event.objects.filter(chain=ledger.CONFIGURATION)
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "signin.succeeded", {"user": "ada"}, ada_is)
    return found | {"deleted": ledger_of.filter(type="configuration.deleted").get()}


def names(client: Client, query: str = "") -> list[tuple[str, str]]:
    return [(row.did, row.made.name) for row in client.get(f"/changes/{query}").context["rows"]]


@pytest.mark.django_db
class TestList:
    def test_it_names_who_changed_what_the_latest_first_and_no_sign_in(self, mias, told):
        assert names(mias) == [("Deleted", "clerk"), ("Created", "clerk"), ("Changed", "pay"), ("Changed", "pay")]
        shown = text_of(mias.get("/changes/"))
        assert "Ada Admin (admin)" in shown
        assert "Owner, Timeout seconds" in shown

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("?kind=tool", 2),
            ("?kind=agent", 2),
            ("?kind=nothing", 4),
            ("?name=PA", 2),
            ("?who=ada", 3),
            ("?who=Admin&kind=tool", 1),
            ("?who=sync_tools", 1),
            ("?who=nobody", 0),
            ("?since=24h", 4),
            ("?name=timeout_seconds", 0),
        ],
    )
    def test_it_is_narrowed_by_kind_name_person_and_time(self, mias, told, query, found):
        assert len(names(mias, query)) == found

    def test_one_row_can_be_followed_by_its_key(self, mias, told):
        key = Tool.objects.get(name="pay").pk
        assert names(mias, f"?key={key}") == [("Changed", "pay")] * 2

    def test_what_only_quotes_a_name_is_not_found_by_it(self, mias, told):
        change(make_tool("other"), description='"table":"agentapp.Agent","name":"clerk"')
        assert len(names(mias, "?kind=agent")) == 2

    def test_its_pages_hold_every_change_once(self, mias, told, monkeypatch):
        monkeypatch.setattr("agentapp.console.changes.PAGE", 3)
        tool = make_tool("pay")
        for number in range(8):
            change(tool, timeout_seconds=100 + number)
        seen, start = [], ""
        while True:
            context = mias.get("/changes/", {"from": start}).context
            seen += [row.made.id for row in context["rows"]]
            start = context["older"]
            if not start:
                break
        every = Event.objects.filter(type__in=changes.TYPES).order_by("-at", "-id")
        assert seen == [event.pk for event in every]

    def test_where_not_all_was_looked_through_it_says_so_and_goes_on(self, mias, told, monkeypatch):
        monkeypatch.setattr(changes, "_AT_A_TIME", 2)
        monkeypatch.setattr(changes, "MAX_LOOKED_AT", 2)
        page = mias.get("/changes/?name=pay")
        assert (list(page.context["rows"]), page.context["is_cut"]) == ([], True)
        assert "None of the latest changes matches; there are older ones." in text_of(page)
        assert len(mias.get("/changes/", {"name": "pay", "from": page.context["older"]}).context["rows"]) == 2

    def test_it_takes_as_many_questions_for_fifty_changes_as_for_four(self, mias, told, django_assert_max_num_queries):
        tool = make_tool("pay")
        for number in range(60):
            change(tool, timeout_seconds=100 + number)
        with django_assert_max_num_queries(9):
            assert len(mias.get("/changes/").context["rows"]) == 50

    @pytest.mark.parametrize("place", ["x", "2026-01-01T00:00:00_x", "2026-01-01T00:00:00+00:00_x"])
    def test_a_place_that_no_list_has_written_is_refused(self, mias, place):
        answer = mias.get("/changes/", {"from": place})
        assert answer.status_code == 400
        assert "“from” in the address names no place in this list." in answer.content.decode()
        assert 'href="/inbox/"' in answer.content.decode()

    def test_without_any_change_it_says_what_will_stand_there(self, mias):
        assert "Nothing has been changed yet" in text_of(mias.get("/changes/"))

    @pytest.mark.parametrize("who", ["sam", "dana", "otto"])
    def test_it_is_for_those_who_may_read_the_ledger(self, client, told, request, who):
        client.force_login(request.getfixturevalue(who))
        for path in ("/changes/", f"/changes/{told['made'].pk}/", "/changes/what-if/", "/changes/what-if/?since=7d"):
            assert client.get(path).status_code == 403, path


@pytest.mark.django_db
class TestChange:
    def test_it_shows_before_and_after_of_each_field(self, mias, told):
        shown = text_of(mias.get(f"/changes/{told['safety'].pk}/"))
        assert "Timeout seconds 30 → 90" in shown
        assert "Owner empty → payments" in shown
        long = mias.get(f"/changes/{told['contract'].pk}/")
        assert "&lt;b&gt;somebody&lt;/b&gt;" in long.content.decode()
        assert 'class="ln add"' in long.content.decode()

    def test_what_was_made_and_what_was_deleted_is_shown_whole(self, mias, told):
        for name in ("made", "deleted"):
            assert "Be exact." in text_of(mias.get(f"/changes/{told[name].pk}/"))

    def test_it_comes_into_the_list_as_a_part(self, mias, told):
        part = mias.get(f"/changes/{told['safety'].pk}/", headers={"HX-Request-Type": "partial"})
        assert "<html" not in part.content.decode()

    def test_an_event_that_is_no_change_is_not_found(self, mias, told):
        other = Event.objects.get(type="signin.succeeded")
        assert mias.get(f"/changes/{other.pk}/").status_code == 404

    def test_it_leads_to_the_tool_as_it_is_now(self, mias, told):
        assert 'href="/tools/pay/"' in mias.get(f"/changes/{told['safety'].pk}/").content.decode()

    def test_text_from_outside_is_inert(self, mias, told):
        event = change(make_tool("pay"), description=HOSTILE, owner=HOSTILE, wire={HOSTILE: HOSTILE})
        for path in ("/changes/", f"/changes/{event.pk}/"):
            body = mias.get(path).content.decode()
            assert "<script>alert" not in body
            assert "\u202e" not in body


class TestWhatIf:
    @pytest.fixture
    def ran(self, clerk: Clerk) -> None:
        """Three calls that a rule let run; today it would ask about one of them."""
        rule = Rule.objects.create(name="pays", tool="pay", verdict="allow")
        for amount in (1, 2, 500):
            clerk.run(calls(call("p", "pay", account="ana", amount=amount)), says("done"))
        rule.condition = "args.amount < 100.0"
        rule.save()

    def test_it_looks_at_the_last_week_at_once(self, mias, ran):
        ToolExecution.objects.filter(pk=ToolExecution.objects.earliest("pk").pk).update(
            proposed_at=timezone.now() - timedelta(days=8)
        )
        assert mias.get("/changes/what-if/").context["found"].looked_at == 2

    def test_it_lists_the_calls_that_would_be_stopped_by_rule(self, mias, ran):
        page = mias.get("/changes/what-if/?since=7d")
        assert (page.context["found"].looked_at, page.context["found"].stopped_count) == (3, 1)
        shown = text_of(page)
        assert "Looked at 3 calls" in shown
        assert "Allow by pays Ask because no rule allows it 1" in shown

    def test_it_is_narrowed_by_tool_and_time(self, mias, ran):
        assert mias.get("/changes/what-if/?since=7d&tool=send").context["found"].looked_at == 0

        ToolExecution.objects.update(proposed_at=timezone.now() - timedelta(days=2))
        assert mias.get("/changes/what-if/?since=24h").context["found"].looked_at == 0
        assert mias.get("/changes/what-if/?since=7d").context["found"].looked_at == 3

    def test_it_is_narrowed_to_calls_that_would_have_needed_two_people(self, mias, ran):
        Rule.objects.create(name="two", tool="pay", verdict="ask", condition="args.amount > 1.0", approvals_needed=2)
        page = mias.get("/changes/what-if/?since=7d&people=2")
        assert (page.context["found"].looked_at, page.context["found"].stopped_count) == (3, 2)
        shown = text_of(page)
        assert "2 would have needed two people or more, and had fewer" in shown
        assert "Allow by pays Ask 2 people by two 2" in shown
        assert '<option value="2" selected>' in page.content.decode()
        Rule.objects.filter(name="two").update(approvals_needed=1)
        assert "needed more people than it had" in text_of(mias.get("/changes/what-if/?since=7d&people=2"))

    def test_it_goes_further_back_slice_by_slice(self, mias, ran, monkeypatch, django_assert_max_num_queries):
        monkeypatch.setattr(hindsight, "SLICE", 2)
        with django_assert_max_num_queries(11):
            page = mias.get("/changes/what-if/?since=7d")
        assert "Look further back" in text_of(page)
        further = mias.get("/changes/what-if/", {"since": "7d", "before": page.context["found"].further})
        assert further.context["found"].looked_at == 1
        assert "That is everything from that time." in text_of(further)

    def test_a_place_that_is_none_is_refused(self, mias):
        assert mias.get("/changes/what-if/?since=7d&before=x").status_code == 400


@pytest.mark.django_db
def test_an_agents_change_leads_to_its_page_for_those_who_may_open_it(client, ada, mia):
    event = change(make_agent("desk"), description="Answers letters.")
    for user, leads in ((ada, True), (mia, False)):
        client.force_login(user)
        assert ("/admin/agentapp/agent/" in client.get(f"/changes/{event.pk}/").content.decode()) is leads


@pytest.mark.django_db
def test_a_rule_and_the_version_that_came_of_it_are_one_line(mias):
    with ledger.transaction():
        rule_versions.load(Rule(name="asks", verdict="ask"), "load_config", {"groups": []}, "From the file.")
    [row] = mias.get("/changes/?name=asks").context["rows"]
    assert (row.kind, row.made.name, row.version.name) == ("Rule", "asks", "asks, version 1")
    page = text_of(mias.get("/changes/?name=asks"))
    assert "The version it made: asks, version 1" in page
    assert [row.kind for row in mias.get("/changes/?name=asks&kind=draft").context["rows"]] == ["Rule version"]


def test_moments_in_fields_are_read_by_people():
    assert changes.Field("at", None, "2026-11-23 02:02:50.546433+00:00").now == "2026-11-23 02:02:50 UTC"
    assert changes.Field("note", "at 2026-11-23 02:02:50.546433+00:00", "").was.endswith("+00:00")
