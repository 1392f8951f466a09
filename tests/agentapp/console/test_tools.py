"""The list of tools and the page of one: what they say of each, who may read it, how many queries they make."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import caches
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import catalogue
from agentapp.models import Breaker, KillSwitch, SourceHealth, Tool, ToolExecution, ToolSource
from approvals import configuration
from approvals.models import Rule
from tests.conftest import Clerk, call, calls, says

HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def page(clerk: Clerk, client: Client, dana: User) -> Client:
    client.force_login(dana)
    return client


def text_of(client: Client, path: str, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def row_of(client: Client, name: str) -> Any:
    return next(row for row in client.get("/tools/").context["rows"] if row.tool.name == name)


class TestList:
    def test_it_says_of_each_tool_where_it_is_from_what_it_does_and_how_often(self, page, clerk):
        clerk.run(calls(call("a", "look_up", what="x"), call("b", "fail", how="never")), says("done"))
        Rule.objects.create(name="all-writes", verdict="ask")
        Rule.objects.create(name="pays", tool="pay", verdict="deny")
        Rule.objects.create(name="was", tool="pay", verdict="deny", active=False)
        assert (row_of(page, "look_up").calls.calls, row_of(page, "look_up").calls.errors) == (1, 0)
        assert (row_of(page, "fail").calls.calls, row_of(page, "fail").calls.errors) == (1, 1)
        pay = row_of(page, "pay")
        assert (pay.source, pay.effect, pay.risk, pay.rules) == ("Python", "Irreversible", "high", 2)

    def test_calls_of_more_than_two_weeks_ago_do_not_count(self, page, clerk):
        clerk.run(calls(call("a", "look_up", what="x")), says("done"))
        ToolExecution.objects.update(proposed_at=timezone.now() - timedelta(days=15))
        assert row_of(page, "look_up").calls.calls == 0

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("?q=pay_once", {"pay_once"}),
            ("?q=READ WHAT somebody", {"read_mail"}),
            ("?q=pay&source=mcp", set()),
            ("?q=nothing like it", set()),
            ("?source=elsewhere&q=pay_once", {"pay_once"}),
        ],
    )
    def test_it_is_narrowed_by_words_and_kind(self, page, query, found):
        assert {row.tool.name for row in page.get(f"/tools/{query}").context["rows"]} == found

    def test_it_has_pages_that_hold_every_tool_once(self, page, monkeypatch):
        monkeypatch.setattr("agentapp.console.tools.PAGE", 5)
        seen, after = [], ""
        while True:
            context = page.get("/tools/", {"after": after}).context
            seen += [row.tool.name for row in context["rows"]]
            after = context["next"]
            if not after:
                break
        assert seen == sorted(Tool.objects.values_list("name", flat=True))

    def test_it_takes_as_many_questions_for_two_hundred_tools_as_for_ten(self, page):
        def asked() -> int:
            caches["process"].clear()
            with CaptureQueriesContext(
                connection,
            ) as captured:
                assert page.get("/tools/").status_code == 200
            return len(captured)

        asked()
        few, source = asked(), ToolSource.objects.get()
        Tool.objects.bulk_create(Tool(source=source, name=f"made_{n:03}", version="v1") for n in range(200))
        assert asked() == few <= 9

    def test_who_may_not_look_at_tools_is_told_which_right_it_takes(self, clerk, client, otto):
        client.force_login(otto)
        for path in ("/tools/", "/tools/pay/", "/tools/pay/through/", "/tools/pay/try/"):
            refused = client.get(path)
            assert refused.status_code == 403
            assert "view tool" in refused.content.decode().lower()
        assert 'href="/tools/"' not in client.get("/runs/").content.decode()

    @pytest.mark.parametrize("who", ["sam", "dana", "mia", "ada"])
    def test_everybody_with_a_role_may_look_at_tools(self, clerk, client, request, who):
        client.force_login(request.getfixturevalue(who))
        assert 'href="/tools/"' in client.get("/runs/").content.decode()
        assert client.get("/tools/").status_code == 200

    def test_without_any_tool_it_says_where_they_come_from(self, client, ada, dana):
        client.force_login(ada)
        assert "Set up a source" in text_of(client, "/tools/")
        client.force_login(dana)
        assert "An administrator sets up where they come from." in text_of(client, "/tools/")

    def test_text_from_outside_is_inert(self, page):
        Tool.objects.filter(name="pay").update(description=HOSTILE, owner=HOSTILE)
        body = page.get("/tools/").content.decode()
        assert "<script>alert" not in body
        assert "\u202e" not in body


class TestStates:
    @pytest.mark.parametrize(
        ("change", "word"),
        [
            ({"enabled": False}, "Off"),
            ({"missing_since": timezone.now()}, "Gone"),
            ({"waiting_contract": {"description": "x"}}, "Changed"),
            ({"input_schema": {"type": "nonsense"}}, "Schema invalid"),
            ({"claims": {"deprecated": True}}, "Deprecated"),
        ],
    )
    def test_what_keeps_a_tool_from_being_called_stands_in_list_and_page(self, page, change, word):
        Tool.objects.filter(name="pay").update(**change)
        assert [state.word for state in row_of(page, "pay").states] == [word]
        assert f"{word}." in text_of(page, "/tools/pay/")

    def test_a_server_that_does_not_answer_says_when_it_was_last_seen(self, page):
        seen = timezone.now() - timedelta(hours=3)
        source = ToolSource.objects.get()
        SourceHealth.objects.create(
            source=source, ok=False, checked_at=timezone.now(), problem="It hung up.", failures=3, seen_at=seen
        )
        assert "Unreachable. tests-clerk_tools does not answer: It hung up. Last seen 3 h" in text_of(
            page, "/tools/pay/"
        )

    def test_a_source_that_is_off_and_a_switch_and_a_breaker_are_said(self, page, ada):
        ToolSource.objects.update(enabled=False)
        KillSwitch.objects.create(
            scope="tool", key="pay", reason="It pays twice.", engaged_by=ada, engaged_at=timezone.now()
        )
        Breaker.objects.create(
            scope="tool", key="pay", state="open", opened_at=timezone.now(), failures=3, last_error="no"
        )
        assert [s.word for s in row_of(page, "pay").states] == ["Source off", "Stopped", "Breaker open"]
        assert [s.word for s in row_of(page, "send").states] == ["Source off"]


class TestPage:
    def test_it_shows_what_people_read_with_the_arguments_of_the_latest_call(self, page, clerk):
        assert "The agent will pay" in text_of(page, "/tools/pay/")
        clerk.run(calls(call("p", "pay", account="northwind", amount=12.5)))
        shown = text_of(page, "/tools/pay/")
        assert "The agent will pay $12.50 to [holder] ( northwind )." in shown
        assert "With the arguments of its latest call" in shown

    def test_no_page_asks_more_than_twelve_times_however_many_calls_there_are(
        self, page, clerk, django_assert_max_num_queries
    ):
        for n in range(3):
            clerk.run(calls(call("p", "pay", account="ana", amount=n + 1)))
        for path in ("", "?part=rules", "?part=calls", "?part=versions", "through/", "try/"):
            with django_assert_max_num_queries(12, info=path):
                assert page.get(f"/tools/pay/{path}").status_code == 200

    def test_its_rules_stand_in_order_in_words(self, page):
        Rule.objects.create(name="second", tool="pay", verdict="allow", order=20, condition="args.amount < 5.0")
        Rule.objects.create(name="first", tool="pay", verdict="deny", order=10)
        Rule.objects.create(name="other", tool="send", verdict="deny", order=1)
        found = page.get("/tools/pay/?part=rules")
        assert [rule.name for rule, _ in found.context["rules"]] == ["first", "second"]
        shown = text_of(page, "/tools/pay/?part=rules")
        assert "A call of pay where args.amount &lt; 5.0 runs without a person." in shown
        assert "one that forbids wins over one that asks" in shown

    def test_its_latest_calls_go_through_the_rules_of_today_when_asked(self, page, clerk):
        for amount in (1, 50):
            clerk.run(calls(call("p", "pay", account="ana", amount=amount)))
        Rule.objects.create(name="small", tool="pay", verdict="allow", condition="args.amount < 5.0")
        found = page.get("/tools/pay/through/", headers={"HX-Request-Type": "partial"})
        by_rule = {(name, verdict, n) for _, name, verdict, n in found.context["by_rule"]}
        assert by_rule == {("small", "allow", 1), ("", "ask", 1)}
        assert found.context["changed"] == [(("ask", "allow"), 1)]
        assert "<html" not in found.content.decode()

    def test_calls_are_shown_to_those_who_may_see_runs_alone(self, clerk, client, dana, otto):

        clerk.run(calls(call("p", "pay", account="northwind", amount=1)), input="Pay the bakery.")
        otto.user_permissions.add(Permission.objects.get(codename="view_tool"))
        client.force_login(otto)
        assert "Pay the bakery." not in text_of(client, "/tools/pay/?part=calls")
        assert "northwind" not in text_of(client, "/tools/pay/")
        client.force_login(dana)
        assert "Pay the bakery." in text_of(client, "/tools/pay/?part=calls")

    def test_its_versions_say_what_each_changed(self, page):
        tool = Tool.objects.get(name="pay")
        tool.version, tool.sentence_template = "2" * 64, "Pays {amount:money} to {account}."
        configuration.save(tool, "user:1:ada")
        shown = text_of(page, "/tools/pay/?part=versions")
        assert "222222222222" in shown
        assert "Pays {amount:money} to {account}." in shown

    def test_secret_arguments_of_the_latest_call_are_masked(self, page, clerk):
        Tool.objects.filter(name="pay").update(secret_fields=["account"])
        clerk.run(calls(call("p", "pay", account="493812", amount=1)))
        assert "493812" not in page.get("/tools/pay/").content.decode()

    def test_a_tool_that_is_not_there_is_not_found(self, page):
        assert "There is no tool of that name." in text_of(page, "/tools/nothing/", 404)

    def test_text_from_outside_is_inert(self, page, clerk):
        Tool.objects.filter(name="pay").update(
            description=HOSTILE, owner=HOSTILE, sentence_template=HOSTILE,
            input_schema={"type": "object", "properties": {HOSTILE: {"type": "string", "description": HOSTILE}}},
        )  # fmt: skip
        clerk.run(calls(call("p", "pay", account=HOSTILE, amount=1)), input=HOSTILE)
        Rule.objects.create(name="says", tool="pay", verdict="deny", description=HOSTILE)
        for path in ("", "?part=rules", "?part=calls", "?part=versions", "try/"):
            body = page.get(f"/tools/pay/{path}").content.decode()
            assert "<script>alert" not in body, path

    def test_it_is_found_by_the_palette(self, page):
        assert 'href="/tools/pay_once/"' in page.get("/search/?q=pay_once").content.decode()


@pytest.mark.postgresql
def test_counting_calls_reads_the_index_and_no_row(clerk: Clerk) -> None:
    clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    tools = list(Tool.objects.all())
    with connection.cursor() as cursor, CaptureQueriesContext(connection) as captured:
        catalogue.call_counts(tools)
        sql = captured[0]["sql"]
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SET enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {sql}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Index Only Scan using execution_of_tool" in plan


def test_what_was_counted_is_not_counted_again_for_a_while(clerk: Clerk, django_assert_num_queries: Any) -> None:
    tools = list(Tool.objects.all())
    assert catalogue.call_counts(tools) == {}
    clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    with django_assert_num_queries(0):
        assert catalogue.call_counts(tools) == {}
    caches["process"].clear()
    assert [found.calls for found in catalogue.call_counts(tools).values()] == [1]
