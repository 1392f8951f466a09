"""The audit trail's page: who did what, in words, narrowed by one line; each event has its own address."""

import html
import json
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from agentapp.audit.standing import Standing
from agentapp.console import audit as pages
from agentapp.models import SavedView, Tool
from approvals import configuration, ledger, text_search
from approvals.models import Approval, Event
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")
HOSTILE = '<script>alert("x")</script>\u202egnp.exe'


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Approval:
    """A payment that Dana approved and that ran."""
    run = clerk.run(PAY, says("Done."))
    approval = clerk.open(run)[0]
    clerk.decide(approval, dana, message="The carrier has confirmed.")
    clerk.drive(run)
    return Approval.objects.get(pk=approval.pk)


@pytest.fixture
def manager(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def shown(client: Client, q: str = "", **more: str) -> str:
    response = client.get("/audit/", {"q": q, **more})
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def of(approval: Approval, type: str = "approval.approved") -> Event:
    return Event.objects.get(approval_id=approval.pk, type=type)


def rows(client: Client, q: str = "", **more: str) -> list[Any]:
    return list(client.get("/audit/", {"q": q, **more}).context["rows"])


class TestThePage:
    def test_it_says_who_did_what_on_what_evidence_and_at_what_cost(self, manager, paid) -> None:
        [row] = rows(manager, "did:approved")

        assert (row.who.name, row.said, row.what) == ("Dana Whitfield", "Approved", paid.shown_title)
        assert list(row.evidence) == [piece["n"] for piece in paid.evidence]
        assert row.took is not None
        assert row.cost is not None

    def test_every_event_of_a_run_is_there_and_in_words(self, manager, paid) -> None:
        said = [row.said for row in rows(manager)]

        assert {"Started run", "Stopped", "Approved", "Ran tool", "Run finished"} <= set(said)
        assert not [words for words in said if "_" in words]

    def test_an_agent_a_rule_and_the_system_are_told_apart(self, manager, paid) -> None:
        by = {row.said: row.who.name for row in rows(manager)}

        assert by["Stopped"] == "Policy"
        assert by["Took a step"] == "clerk"
        assert by["Ran tool"] == "clerk"
        assert by["Picked up by a worker"] == "System"

    def test_an_agents_name_leads_to_what_its_runs_did(self, manager, paid) -> None:
        assert "agent%3Aclerk" in shown(manager, "did:ran")
        assert [row.said for row in rows(manager, "did:ran agent:clerk")] == ["Ran tool"]

    def test_of_a_call_that_ran_it_says_what_it_did_and_who_let_it(self, manager, paid) -> None:
        event = Event.objects.get(type="tool_call.completed")
        page = html.unescape(manager.get(f"/audit/events/{event.pk}/").content.decode())

        assert f"<dt>Call</dt><dd>{paid.shown_title}</dd>" in page
        assert "<dt>Allowed by</dt><dd>Dana Whitfield</dd>" in page

    def test_of_a_call_that_nobody_decided_it_says_what_allowed_it(self, manager, clerk) -> None:
        clerk.run(calls(call("l", "look_up", what="kettle")), says("Done."))
        event = Event.objects.get(type="tool_call.completed")
        page = manager.get(f"/audit/events/{event.pk}/").content.decode()

        assert "<dt>Allowed by</dt><dd>Reads run freely</dd>" in page

    def test_a_name_and_a_deed_lead_to_the_same_question_narrowed_by_them(self, manager, paid) -> None:
        page = shown(manager, "risk:low,medium,high,critical")

        assert "q=risk%3Alow%2Cmedium%2Chigh%2Ccritical+who%3Adana" in page
        assert "did%3Aapproved" in page

    def test_nothing_found_says_so_and_keeps_what_was_typed(self, manager, paid) -> None:
        page = shown(manager, "did:signed-out who:dana")

        assert "No event matches" in page
        assert 'value="did:signed-out who:dana"' in page

    def test_how_text_is_looked_for_is_said_whenever_it_is(self, manager, paid) -> None:
        how = "as whole words." if text_search.by_words() else "anywhere in what was written."

        assert f"Text is matched {how}" in shown(manager, '"confirmed"')
        assert f"Text is matched {how}" in shown(manager, '"nobody wrote this"')
        assert "Text is matched" not in shown(manager, "did:approved")
        assert "Text is matched" not in shown(manager, "did:expired")

    def test_a_line_that_cannot_be_meant_is_answered_with_what_may_have_been(self, manager, paid) -> None:
        page = shown(manager, "tol:pay who:dana")

        assert "There is no word <code>tol</code>. Did you mean <code>tool</code>?" in page
        assert f"{reverse('audit')}?q=tool%3Apay+who%3Adana" in page
        assert 'value="tol:pay who:dana"' in page

    def test_an_unknown_name_is_answered_with_the_nearest(self, manager, paid) -> None:
        assert "There is no person <code>dnaa</code>. Did you mean <code>dana</code>?" in shown(manager, "who:dnaa")
        assert "There is no tool <code>pey</code>. Did you mean <code>pay</code>?" in shown(manager, "tool:pey")

    def test_who_may_not_read_the_ledger_is_told_who_can_help(self, client, dana, paid) -> None:
        client.force_login(dana)
        event = of(paid)
        for path in (
            "/audit/", "/audit/views/", "/audit/choices/who/", f"/audit/events/{event.pk}/",
            f"/audit/events/{event.pk}.json", f"/audit/events/{event.pk}/row/",
            f"/audit/approvals/{paid.pk}/as-seen/", f"/audit/news/?after={timezone.now().isoformat()}_{event.pk}",
        ):  # fmt: skip
            response = client.get(path)
            assert response.status_code == 403, path
            assert paid.title not in response.content.decode()
        assert "/audit/" not in client.get("/inbox/").content.decode()

    def test_it_stands_in_the_rail_for_those_who_may(self, manager) -> None:
        page = manager.get("/runs/").content.decode()

        assert 'href="/audit/" title="Audit trail" data-go="a"' in page

    def test_text_from_outside_is_inert(self, manager, clerk, dana) -> None:
        run = clerk.run(PAY, says("Done."), input=HOSTILE)
        clerk.decide(clerk.open(run)[0], dana, type="reject", message=HOSTILE)
        Approval.objects.update(title=HOSTILE)
        event = Event.objects.get(type="approval.rejected")
        asked = (f"q={HOSTILE}", f'q=who:"{HOSTILE}"', "q=did:rejected", 'q="<b>')
        for path in (
            *(f"/audit/?{query}" for query in asked), f"/audit/events/{event.pk}/", f"/audit/events/{event.pk}/row/",
            f"/audit/approvals/{event.approval_id}/as-seen/", f"/audit/views/?q={HOSTILE}",
        ):  # fmt: skip
            page = manager.get(path).content.decode()
            assert "<script>alert" not in page, path
            # A person's own line repeats what they typed as it is; nothing else does.
            assert "\u202e" not in page or "q=" in path, path

    @pytest.mark.parametrize(
        "place", ["x", "2026-01-01", f"2026-01-01T00:00:00_{uuid.UUID(int=1)}", "_", "9999-12-31T23:59:59-23:00_x"]
    )
    def test_a_place_that_no_page_has_written_is_refused(self, manager, place) -> None:
        assert manager.get("/audit/", {"from": place}).status_code == 400
        assert manager.get("/audit/news/", {"after": place}).status_code == 400

    def test_pages_neither_miss_nor_repeat(self, manager, mia) -> None:
        with ledger.transaction():
            for number in range(120):
                ledger.record(ledger.CONFIGURATION, "signout", {"user": f"n{number}"}, ledger.actor_of(mia))
        path, seen, back = "/audit/?q=did:signed-out", [], ""
        while path:
            context = manager.get(path).context
            seen.append([row.event.pk for row in context["rows"]])
            path, back = context["older_url"], context["newer_url"]

        assert [len(page) for page in seen] == [50, 50, 20]
        wanted = Event.objects.filter(type="signout").order_by("-at", "-id").values_list("pk", flat=True)
        assert [key for page in seen for key in page] == list(wanted)
        assert [row.event.pk for row in manager.get(back).context["rows"]] == seen[1]

    def test_the_count_ends_where_nobody_counts(self, manager, mia, monkeypatch) -> None:
        monkeypatch.setattr("agentapp.audit.finding.MOST_COUNTED", 60)
        with ledger.transaction():
            for _ in range(70):
                ledger.record(ledger.CONFIGURATION, "signout", {"user": "mia"}, ledger.actor_of(mia))

        page = shown(manager, "did:signed-out")
        assert "Many events match." in page  # until they are counted, outside the page
        counted = "More than 60 events match."
        assert counted in shown(manager, "did:signed-out", count="yes")
        url = f"{reverse('audit_count')}?q=did%3Asigned-out"
        assert f'hx-get="{url}"' in page
        assert counted in manager.get(url, headers={"HX-Request-Type": "partial"}).content.decode()
        assert counted in manager.get(url, follow=True).content.decode()
        with ledger.transaction():
            ledger.record(ledger.CONFIGURATION, "setup.first_admin", {"user": "mia"}, ledger.actor_of(mia))
        assert "1 event matches." in shown(manager, "did:set-up")

    def test_new_events_are_counted_and_not_shown(self, manager, paid, mia) -> None:
        url = manager.get("/audit/").context["news_url"]
        assert "new event" not in manager.get(url).content.decode()
        with ledger.transaction():
            ledger.record(ledger.CONFIGURATION, "signout", {"user": "mia"}, ledger.actor_of(mia))

        page = manager.get(url).content.decode()
        assert "1 new event" in page
        assert "Mia" not in page

    def test_it_refreshes_from_a_page_without_events(self, manager) -> None:
        url = manager.get("/audit/?q=did:set-up").context["news_url"]

        assert manager.get(url).status_code == 200

    @pytest.mark.parametrize("number", [1, 3])
    def test_its_queries_do_not_grow_with_its_rows(self, manager, clerk, dana, number, django_assert_max_num_queries):
        for _ in range(number):
            run = clerk.run(PAY, says("Done."))
            clerk.decide(clerk.open(run)[0], dana)
            clerk.drive(run)
        for query in ("", "did:decided", "did:ran"):
            with django_assert_max_num_queries(12):
                assert manager.get("/audit/", {"q": query}).status_code == 200


class TestWhatSomebodyMayNotSee:
    @pytest.fixture
    def auditor(self, client: Client, otto: User) -> Client:
        """May read the ledger, but sees only their own runs."""
        otto.user_permissions.add(Permission.objects.get(codename="view_event"))
        client.force_login(otto)
        return client

    def test_events_of_runs_they_may_not_see_are_counted_in_their_place(self, auditor, paid) -> None:
        [row] = rows(auditor)
        page = shown(auditor)

        assert row.folded == Event.objects.filter(run_id=paid.run_id).count()
        assert f"{row.folded} events you may not see" in page
        assert paid.title not in page
        assert "Dana" not in page

    def test_a_question_about_more_than_time_is_not_answered_about_them(self, auditor, paid) -> None:
        assert rows(auditor, "did:approved") == []
        assert rows(auditor, "since:1d")[0].folded
        assert "You see only events of runs you may see." in shown(auditor, "did:approved")

    def test_neither_the_event_nor_the_request_opens(self, auditor, paid) -> None:
        event = of(paid)
        for path in (f"/audit/events/{event.pk}/", f"/audit/events/{event.pk}.json", f"/audit/events/{event.pk}/row/",
                     f"/audit/approvals/{paid.pk}/as-seen/"):  # fmt: skip
            assert auditor.get(path).status_code == 404


class TestOneEvent:
    def test_it_has_a_page_with_the_decision_and_its_place_in_the_chain(self, manager, paid) -> None:
        event = of(paid)
        page = manager.get(f"/audit/events/{event.pk}/").content.decode()

        assert "Reason given: “The carrier has confirmed.”" in page
        assert event.hash in page
        assert event.previous_hash in page
        assert f"/approvals/{paid.pk}/" in page
        assert f"as-seen/?decision={paid.decisions.get().pk}" in page

    def test_it_opens_below_its_row(self, manager, paid) -> None:
        page = manager.get(f"/audit/events/{of(paid).pk}/row/").content.decode()

        assert page.strip().startswith('<tr class="detail"')
        assert "Permalink" in page

    def test_what_an_approver_changed_is_shown_line_by_line(self, manager, clerk, dana) -> None:
        approval = clerk.open(clerk.run(PAY, says("Done.")))[0]
        clerk.decide(approval, dana, type="edit", arguments_text='{"account": "ana", "amount": 3}')
        [row] = rows(manager, "did:changed")
        page = html.unescape(manager.get(f"/audit/events/{row.event.pk}/").content.decode())

        assert row.said == "Approved with 1 change"
        assert '"amount": 5' in page
        assert '"amount": 3' in page

    def test_what_was_configured_is_shown_as_it_was_and_is(self, manager, ada, clerk) -> None:
        tool = Tool.objects.get(name="pay")
        tool.description = "Pays out."
        configuration.save(tool, ledger.actor_of(ada))
        [row] = rows(manager, "did:config who:ada")
        page = html.unescape(manager.get(f"/audit/events/{row.event.pk}/").content.decode())

        assert (row.said, row.what) == ("Changed tool", "pay")
        assert "Description: Pays out." in page

    def test_its_text_is_there_for_programs(self, manager, paid) -> None:
        event = of(paid)
        found = manager.get(f"/audit/events/{event.pk}.json").json()

        assert found["body"] == event.body
        assert found["hash"] == event.hash
        assert json.loads(found["body"])["data"] == found["data"]

    def test_one_that_is_not_there_is_not_found(self, manager) -> None:
        assert manager.get(f"/audit/events/{uuid.uuid4()}/").status_code == 404

    def test_a_row_asks_the_database_a_fixed_number_of_times(self, manager, paid, django_assert_max_num_queries):
        event = of(paid)
        with django_assert_max_num_queries(12):
            manager.get(f"/audit/events/{event.pk}/")


class TestViews:
    def test_a_line_is_kept_under_a_name_and_stands_among_the_tabs(self, manager, mia) -> None:
        response = manager.post("/audit/views/", {"q": "risk:high did:approved", "name": "Risky"})
        assert response.url == "/audit/?q=risk%3Ahigh+did%3Aapproved"

        page = shown(manager, "risk:high did:approved")
        assert '<a href="/audit/?q=risk%3Ahigh+did%3Aapproved" aria-current="page">Risky</a>' in page

    def test_a_shared_one_is_seen_by_others_and_deleted_by_its_maker_alone(self, manager, client, ada) -> None:
        manager.post("/audit/views/", {"q": "risk:high", "name": "Ours", "shared": "on"})
        manager.post("/audit/views/", {"q": "risk:low", "name": "Mine"})
        ours = SavedView.objects.get(name="Ours")
        client.force_login(ada)
        page = shown(client)
        assert ">Ours</a>" in page
        assert ">Mine</a>" not in page

        client.post(f"/audit/views/{ours.pk}/delete/")
        assert SavedView.objects.filter(pk=ours.pk).exists()

    def test_deleting_one_keeps_the_search_that_was_to_be_saved(self, manager) -> None:
        manager.post("/audit/views/", {"q": "risk:high", "name": "Old"})
        old = SavedView.objects.get()
        page = manager.get("/audit/views/", {"q": "who:me"}).content.decode()
        assert '<input type="hidden" name="q" value="who:me"><button class="btn ghost sm"' in page
        assert manager.post(f"/audit/views/{old.pk}/delete/", {"q": "who:me"}).url == "/audit/views/?q=who%3Ame"
        assert not SavedView.objects.exists()

    @pytest.mark.parametrize(("q", "name"), [("tol:x", "X"), ("risk:high", ""), ("risk:high", "Taken & kept")])
    @pytest.mark.parametrize("shared", [True, False])
    def test_what_cannot_be_kept_is_said_and_nothing_is_lost(self, manager, q, name, shared) -> None:
        manager.post("/audit/views/", {"q": "risk:low", "name": "Taken & kept"})
        response = manager.post("/audit/views/", {"q": q, "name": name} | ({"shared": "on"} if shared else {}))

        page = response.content.decode()
        assert response.status_code == 422
        assert "Nothing was saved." in page
        assert q in page
        assert f'name="name" value="{html.escape(name)}"' in page
        assert ('name="shared" checked' in page) == shared

    def test_the_tab_one_is_in_is_the_longest_that_stands_in_the_line(self, manager) -> None:
        assert 'aria-current="page">Decisions<' in shown(manager, "who:me did:decided")
        assert 'aria-current="page">Everything<' in shown(manager, "who:me")


class TestChips:
    @pytest.mark.parametrize("word", ["since", "who", "did", "tool", "rule", "risk", "agent"])
    def test_each_offers_lines_that_can_be_asked(self, manager, clerk, paid, word) -> None:
        offered = manager.get(f"/audit/choices/{word}/", {"q": "risk:low"}).context["offered"]

        assert offered or word == "rule"
        for _, url, _ in offered:
            assert not manager.get(url).context["problems"], url

    def test_risks_and_agents_are_offered_by_their_names(self, manager, clerk, paid) -> None:
        risks, agents = (manager.get(f"/audit/choices/{word}/").context["offered"] for word in ("risk", "agent"))

        assert [label for label, _, _ in risks] == ["Low", "Medium", "High", "Critical"]
        assert ("clerk", "/audit/?q=agent%3Aclerk", False) in agents
        assert "Risk" in shown(manager, "")
        assert 'class="k">Agent</span>' in shown(manager, "agent:clerk")

    def test_a_chosen_value_can_be_taken_away(self, manager, clerk, paid) -> None:
        offered = manager.get("/audit/choices/tool/", {"q": "tool:pay risk:low"}).context["offered"]

        assert ("Any tool", "/audit/?q=risk%3Alow", False) in offered

    def test_there_is_nothing_else_to_choose(self, manager) -> None:
        assert manager.get("/audit/choices/cost/").status_code == 404


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        (Standing("intact", 48211, checked_at=timezone.now(), anchored_at=timezone.now(), anchor=f"77b0{'0' * 56}42cd"),
         ["Chain intact.", "48,211 events", "checked ", "77b0…42cd"]),
        (Standing("broken", 7, sentence="The ledger is broken at configuration, event 3: its text is not its own."),
         ["The chain is broken.", "event 3", "its text is not its own", 'role="alert"']),
        (Standing("verifying", 100, done=40), ["Checking the chain.", "40 of"]),
        (Standing("unchecked"), ["Not checked yet", "not anchored yet"]),
    ],
)  # fmt: skip
def test_the_strip_says_how_the_chain_stands(standing: Standing, words: list[str]) -> None:
    strip = render_to_string("console/_audit_chain.html", {"standing": standing}, RequestFactory().get("/audit/"))

    assert [word for word in words if word not in strip] == []


def test_every_tab_that_comes_with_the_product_can_be_asked() -> None:
    assert [str(pages.parse(line)) for _, line in pages.TABS] == [line for _, line in pages.TABS]
