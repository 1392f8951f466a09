"""The pages of grants: made from a request, listed, viewed and revoked."""

import html
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agentapp import actions
from agentapp.models import Tool
from agentapp.tools.base import tool
from approvals.models import Approval, Grant, Rule
from tests.conftest import call, calls, says
from tests.grants import a_grant, grant_from, let_grant

SEND = call("s", "send", to="ann")
TERMS = {"rule:to": "is", "rule:how": "is", "days": "7", "reason": "They are harmless."}


@pytest.fixture
def request_of(clerk) -> Approval:
    return clerk.open(clerk.run(calls(SEND), says("done")))[0]


@pytest.fixture
def page(request_of, client: Client, dana) -> Client:
    client.force_login(let_grant(dana))
    return client


class TestMaking:
    def test_the_menu_of_a_request_leads_there_for_those_who_may(self, request_of, client, dana):
        path = f"/approvals/{request_of.pk}/grant/"
        client.force_login(dana)
        assert path not in client.get(f"/approvals/{request_of.pk}/").content.decode()
        client.force_login(let_grant(dana))
        assert path in client.get(f"/approvals/{request_of.pk}/").content.decode()

    def test_the_form_begins_with_this_very_call(self, page, request_of):
        shown = page.get(f"/approvals/{request_of.pk}/grant/").content.decode()
        assert "Here it was <b>ann</b>" in shown
        assert "<code>to</code> is exactly ann" in shown
        assert "Of this agent’s latest 1 call of the tool in 30 days, in runs you may see, 1 would have been" in shown

    def test_bounds_are_offered_for_amounts_and_not_for_the_numbers_of_things(self, clerk, client, dana, offer):
        @tool("pay_out", effect="compensable")
        def pay_out(customer_id: int, account: str, amount: float, fee: str) -> str:
            """Pay out."""
            return "paid"

        offer(pay_out)
        paying = call("p", "pay_out", customer_id=40117, account="1001", amount=20, fee="1.50")
        (approval,) = clerk.open(clerk.run(calls(paying), says("done")))
        client.force_login(let_grant(dana))
        shown = client.get(f"/approvals/{approval.pk}/grant/").content.decode()
        offered = {name: f'name="most:{name}"' in shown for name in ("customer_id", "account", "amount", "fee")}
        assert offered == {"customer_id": False, "account": False, "amount": True, "fee": True}

    def test_it_says_what_other_bounds_would_have_covered_and_makes_nothing(self, clerk, page, request_of):
        clerk.run(calls(call("b", "send", to="bob")), says("done"))
        posted = {**TERMS, "look": "1"}
        narrow = page.post(f"/approvals/{request_of.pk}/grant/", posted).content.decode()
        assert "latest 2 calls of the tool in 30 days, in runs you may see, 1 would have" in narrow
        wide = page.post(f"/approvals/{request_of.pk}/grant/", {**posted, "rule:to": "any"}).content.decode()
        assert "latest 2 calls of the tool in 30 days, in runs you may see, 2 would have" in wide
        assert "<code>to</code> may be anything" in wide
        assert not Grant.objects.exists()

    def test_a_fragment_is_what_it_means_and_no_more(self, page, request_of):
        answer = page.post(f"/approvals/{request_of.pk}/grant/", TERMS, headers={"HX-Request": "true"})
        assert answer.content.decode().startswith('<section class="card card-body sec" id="meaning"')

    def test_it_is_made_and_the_request_waits_on(self, page, clerk, dana, request_of):
        posted = {**TERMS, "max_hits": "3", "make": "1"}
        answer = page.post(f"/approvals/{request_of.pk}/grant/", posted)
        grant = Grant.objects.get()
        assert (answer.status_code, answer["Location"]) == (302, f"/grants/{grant.pk}/")
        assert (grant.made_by, grant.max_hits, grant.approval) == (dana, 3, request_of)
        assert grant.constraints == [
            {"name": "how", "rule": "is", "value": "well"},
            {"name": "to", "rule": "is", "value": "ann"},
        ]
        request_of.refresh_from_db()
        assert request_of.state == "pending"
        assert clerk.run(calls(SEND), says("done")).state == "succeeded"

    @pytest.mark.parametrize(
        ("typed", "says_"),
        [
            ({"reason": " "}, "Say why"), ({"days": "400"}, "from 1 to 30"), ({"max_hits": "none"}, "whole number"),
            ({"rule:to": "any", "rule:how": "any"}, "at least one argument"),
        ],
    )  # fmt: skip
    def test_what_is_refused_keeps_what_was_typed(self, page, request_of, typed, says_):
        posted = {**TERMS, "reason": "Because <b>.", "make": "1", **typed}
        answer = page.post(f"/approvals/{request_of.pk}/grant/", posted)
        shown = answer.content.decode()
        assert (answer.status_code, Grant.objects.exists()) == (422, False)
        assert says_ in shown
        assert "reason" in typed or "Because &lt;b&gt;." in shown

    def test_a_look_makes_nothing(self, page, request_of):
        assert page.get(f"/approvals/{request_of.pk}/grant/", {**TERMS, "make": "1"}).status_code == 200
        assert not Grant.objects.exists()

    def test_it_needs_the_right(self, request_of, client, marco, otto):
        client.force_login(marco)
        assert client.get(f"/approvals/{request_of.pk}/grant/").status_code == 403
        posted = {**TERMS, "make": "1"}
        assert client.post(f"/approvals/{request_of.pk}/grant/", posted).status_code == 403
        client.force_login(let_grant(otto))
        assert client.get(f"/approvals/{request_of.pk}/grant/").status_code == 404
        assert not Grant.objects.exists()

    def test_who_started_the_run_is_told_why_not(self, request_of, client, sam):
        client.force_login(let_grant(sam))
        answer = client.post(f"/approvals/{request_of.pk}/grant/", {**TERMS, "make": "1"})
        assert (answer.status_code, Grant.objects.exists()) == (403, False)
        assert "You started this run" in answer.content.decode()

    def test_a_rule_that_wants_a_person_each_time_is_named(self, page, request_of):
        Rule.objects.create(name="each", tool="send", verdict="ask", description="Letters are read by a person.")
        answer = page.get(f"/approvals/{request_of.pk}/grant/")
        assert answer.status_code == 422
        assert "Letters are read by a person." in answer.content.decode()

    def test_a_secret_is_shown_nowhere_and_can_only_be_anything(self, clerk, client, dana):
        Tool.objects.filter(name="send").update(secret_fields=["to"])
        [asked] = clerk.open(clerk.run(calls(call("s", "send", to="hunter2")), says("done")))
        client.force_login(let_grant(dana))
        shown = client.get(f"/approvals/{asked.pk}/grant/").content.decode()
        assert "hunter2" not in shown
        assert 'name="rule:to" value="any" checked' in shown
        assert 'name="rule:to" value="is"' not in shown
        refused = client.post(f"/approvals/{asked.pk}/grant/", {**TERMS, "make": "1"})
        assert (refused.status_code, Grant.objects.exists()) == (422, False)
        assert "hunter2" not in refused.content.decode()
        made = client.post(f"/approvals/{asked.pk}/grant/", {**TERMS, "rule:to": "any", "make": "1"}, follow=True)
        assert "hunter2" not in made.content.decode()


class TestLooking:
    def test_the_list_has_what_stands_and_what_has_ended_in_words(self, clerk, client, dana, mia):
        first = a_grant(clerk, dana)
        second = grant_from(first.approval, dana, max_hits="5", reason="Why <b>.")
        actions.revoke_grant(first.pk, "Enough.", dana)
        clerk.run(calls(SEND), says("done"))
        client.force_login(mia)
        shown = client.get("/grants/").content.decode()
        in_force, _, ended = shown.partition('id="ended-t"')
        assert second.reference in in_force
        assert "1 of 5" in in_force
        assert "<code>to</code> is exactly ann" in in_force
        assert first.reference in ended
        assert "Revoked" in ended

    def test_those_in_force_and_those_that_have_ended_come_in_pages_of_their_own(
        self, clerk, client, dana, mia, monkeypatch
    ):
        monkeypatch.setattr("agentapp.console.grants.PAGE", 1)
        first = a_grant(clerk, dana)
        made = [first, *(grant_from(first.approval, dana) for _ in range(3))]
        for ended in made[:2]:
            actions.revoke_grant(ended.pk, "Enough.", dana)
        client.force_login(mia)

        def shown(query=""):
            page = client.get(f"/grants/{query}").content.decode()
            return [n for n, grant in enumerate(made) if grant.reference in page], re.findall(r'href="(\?[^"]*)"', page)

        assert shown() == ([1, 3], [f"?standing={made[2].pk}", f"?from={made[0].pk}"])
        rows, links = shown(f"?standing={made[2].pk}")
        assert (rows, links) == ([1, 2], [f"?from={made[0].pk}&amp;standing={made[2].pk}"])
        assert shown(html.unescape(links[0])) == ([0, 2], [])
        assert shown("?standing=nonsense")[0] == [1, 3]

    def test_a_tool_that_has_changed_makes_it_void(self, clerk, client, dana, mia):
        a_grant(clerk, dana)
        Tool.objects.filter(name="send").update(version="changed")
        client.force_login(mia)
        assert "Void: the tool has changed" in client.get("/grants/").content.decode()

    def test_a_grant_lists_the_calls_it_has_allowed(self, clerk, client, dana, mia):
        grant = a_grant(clerk, dana, reason="Why <b>.")
        run = clerk.run(calls(SEND), says("done"), input="Write to Ann <i>.")
        client.force_login(mia)
        shown = client.get(f"/grants/{grant.pk}/").content.decode()
        assert f"/runs/{run.pk}/?step=1&amp;call=0" in shown
        assert "Write to Ann &lt;i&gt;." in shown
        assert "Why &lt;b&gt;." in shown
        assert f"The grant {grant.reference}" in client.get(f"/runs/{run.pk}/?step=1&call=0").content.decode()

    def test_its_end_names_the_zone_it_is_told_in(self, clerk, client, dana, mia, settings):
        settings.TIME_ZONE = "Europe/Berlin"
        grant = a_grant(clerk, dana)
        Grant.objects.update(expires_at=datetime(2099, 12, 4, 23, 30, tzinfo=UTC))
        client.force_login(mia)
        assert "5 Dec 2099, 00:30 CET" in client.get(f"/grants/{grant.pk}/").content.decode()

    def test_calls_come_in_pages(self, clerk, client, dana, mia, monkeypatch):
        monkeypatch.setattr("agentapp.console.grants.PAGE", 1)
        grant = a_grant(clerk, dana)
        runs = [clerk.run(calls(SEND), says("done")) for _ in range(2)]
        client.force_login(mia)
        first = client.get(f"/grants/{grant.pk}/")
        older = client.get(f"/grants/{grant.pk}/", {"from": first.context["older"]}).content.decode()
        assert str(runs[1].pk) in first.content.decode()
        assert str(runs[0].pk) not in first.content.decode()
        assert str(runs[0].pk) in older
        assert str(runs[1].pk) not in older
        assert client.get(f"/grants/{grant.pk}/?from=nonsense").status_code == 200

    def test_the_pages_ask_the_database_little(self, clerk, client, dana, mia, django_assert_max_num_queries: Any):
        first = a_grant(clerk, dana)
        grants = [first, *(grant_from(first.approval, dana) for _ in range(4))]
        for _ in range(3):
            clerk.run(calls(SEND), says("done"))
        client.force_login(mia)
        for path in ("/grants/", f"/grants/{grants[0].pk}/"):
            with django_assert_max_num_queries(12):
                assert client.get(path).status_code == 200
        client.force_login(let_grant(dana))
        for path in ("/grants/", f"/grants/{grants[0].pk}/", f"/approvals/{grants[0].approval_id}/grant/"):
            with django_assert_max_num_queries(12):
                assert client.get(path).status_code == 200

    def test_who_may_not_sees_neither_the_pages_nor_the_way_to_them(self, clerk, client, dana, marco, mia):
        grant = a_grant(clerk, dana)
        client.force_login(marco)
        assert client.get("/grants/").status_code == 403
        assert client.get(f"/grants/{grant.pk}/").status_code == 404
        assert client.post(f"/grants/{grant.pk}/revoke/", {"reason": "x"}).status_code == 404
        assert 'href="/grants/"' not in client.get("/runs/").content.decode()
        client.force_login(mia)
        assert 'href="/grants/"' in client.get("/runs/").content.decode()
        grant.refresh_from_db()
        assert grant.revoked_at is None

    def test_who_may_add_some_sees_those_of_requests_they_see(self, clerk, client, dana, otto):
        grant = a_grant(clerk, dana)
        client.force_login(let_grant(otto))
        assert grant.reference not in client.get("/grants/").content.decode()
        assert client.get(f"/grants/{grant.pk}/").status_code == 404
        client.force_login(let_grant(dana))
        assert grant.reference in client.get("/grants/").content.decode()


class TestTakingBack:
    def test_calls_like_these_ask_again(self, clerk, client, dana, mia):
        grant = a_grant(clerk, dana)
        client.force_login(mia)
        answer = client.post(f"/grants/{grant.pk}/revoke/", {"reason": " It <b> went wrong. "}, follow=True)
        assert f"{grant.reference} is revoked." in answer.content.decode()
        assert "It &lt;b&gt; went wrong." in answer.content.decode()
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"
        again = client.post(f"/grants/{grant.pk}/revoke/", {"reason": "x"})
        assert again.status_code == 409

    def test_it_needs_a_reason_and_a_post(self, clerk, client, dana, mia):
        grant = a_grant(clerk, dana)
        client.force_login(mia)
        assert client.post(f"/grants/{grant.pk}/revoke/", {"reason": " "}).status_code == 422
        assert client.get(f"/grants/{grant.pk}/revoke/").status_code == 405
        grant.refresh_from_db()
        assert grant.revoked_at is None

    def test_what_is_not_there_is_not_found(self, clerk, client, mia):
        client.force_login(mia)
        assert client.post(f"/grants/{uuid.uuid4()}/revoke/", {"reason": "x"}).status_code == 404

    def test_a_form_without_a_token_changes_nothing(self, clerk, dana, mia):
        grant = a_grant(clerk, dana)
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(mia)
        assert strict.post(f"/grants/{grant.pk}/revoke/", {"reason": "x"}).status_code == 403
        grant.refresh_from_db()
        assert grant.revoked_at is None


def test_a_batch_makes_no_grant(clerk, client, dana):
    requests = [clerk.open(clerk.run(calls(SEND), says("done")))[0] for _ in range(2)]
    client.force_login(let_grant(dana))
    picked = "&".join(f"id={one.pk}" for one in requests)
    assert "/grant/" not in client.get(f"/inbox/batch/?{picked}").content.decode()


def test_the_admin_lists_grants_and_changes_nothing(clerk, client, dana, ada):
    grant = a_grant(clerk, dana, reason="They are harmless.")
    client.force_login(ada)
    assert client.get("/admin/approvals/grant/").status_code == 200
    shown = client.get(f"/admin/approvals/grant/{grant.pk}/change/").content.decode()
    assert "They are harmless." in shown
    assert "to is exactly ann" in shown
    assert client.get("/admin/approvals/grant/add/").status_code == 403
    assert client.post(f"/admin/approvals/grant/{grant.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(f"/admin/approvals/grant/{grant.pk}/change/", {"reason": "x"}).status_code == 403


def test_what_a_grant_would_cover_says_nothing_of_the_secrets_of_other_calls(clerk, dana, offer, client):
    @tool(effect="compensable", secret=("pin",))
    def unlock(to: str, pin: str) -> str:
        """Unlock an account."""
        return to

    offer(unlock)
    run = clerk.run(calls(call("u", "unlock", to="ann", pin="4711")), says("done"))
    [request] = clerk.open(run)
    client.force_login(let_grant(dana))

    def found(most: str) -> str:
        posted = {"rule:to": "any", "rule:pin": "at_most", "most:pin": most, "days": "7", "look": "1"}
        page = client.post(reverse("grant_new", args=[request.pk]), posted).content.decode()
        return page[page.index("Of this agent’s latest") :][:140] if "Of this agent’s latest" in page else ""

    assert found("4710") == found("4711")
