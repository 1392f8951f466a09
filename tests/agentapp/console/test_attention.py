"""Claiming, releasing, handing over and snoozing, as pages do it, with and without JavaScript."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from agentapp import actions
from approvals import claims
from approvals.models import Absence, Approval, Snooze
from tests.conftest import make_user

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]
HTMX = {"HTTP_HX_REQUEST": "true"}


class TestTabs:
    def test_each_counts_and_shows_what_its_name_says(
        self, page: Client, waiting: Waiting, dana: User, marco: User
    ) -> None:
        mine, his, free = waiting(title="Mine"), waiting(title="His"), waiting(title="Free")
        asleep, handed, done = waiting(title="Asleep"), waiting(title="To my team"), waiting(title="Done")
        actions.claim_request(mine.pk, dana)
        actions.claim_request(his.pk, marco)
        actions.snooze_request(asleep.pk, "15m", dana)
        actions.hand_over(handed.pk, Group.objects.get(name="approver"), "", marco)
        page.post(f"/approvals/{done.pk}/decide/", posted(done))

        def shown(query: str) -> set[str]:
            return {row.title for row in page.get(f"/inbox/{query}").context["queue"].rows}

        assert shown("?view=mine") == {"Mine"}
        assert shown("") == {"Mine", "His", "Free", "To my team"}
        assert shown("?view=free") == {"Free", "To my team"}
        assert shown("?view=decided") == {"Done"}
        assert shown("?snoozed=1") == {"Asleep"}
        counts = page.get("/inbox/tabs/").context["counts"]
        assert (counts.mine, counts.needs, counts.free, counts.decided, counts.snoozed) == (1, 4, 2, 1, 1)
        assert page.get("/counts/").json() == {"waiting": 4, "mine": 1, "due": 0}
        assert free.title in page.get("/inbox/").content.decode()

    def test_what_is_due_within_five_minutes_is_counted(self, page: Client, waiting: Waiting) -> None:
        waiting(expires_seconds=200)
        waiting(expires_seconds=400)

        assert page.get("/counts/").json()["due"] == 1

    def test_the_tabs_are_a_piece_of_the_page(self, page: Client, waiting: Waiting) -> None:
        waiting()

        assert page.get("/inbox/tabs/?").content.decode().strip() in page.get("/inbox/").content.decode()


class TestClaims:
    def test_a_claim_is_on_the_row_and_on_the_request(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        response = page.post(f"/approvals/{approval.pk}/claim/", {"next": "inbox"}, follow=True)

        html = response.content.decode()
        assert "Claimed by you" in html
        assert "Claimed by Dana Whitfield" in html
        assert f"/approvals/{approval.pk}/release/" in html

    def test_the_page_of_a_request_keeps_a_claim_of_ones_own_while_it_is_read(
        self, page: Client, waiting: Waiting, dana: User, marco: User
    ) -> None:
        mine, his, handed = waiting(), waiting(), waiting()
        actions.claim_request(mine.pk, dana)
        actions.claim_request(his.pk, marco)
        actions.hand_over(handed.pk, dana, "", marco)

        kept = page.get(f"/approvals/{mine.pk}/").content.decode()

        assert kept.count(f'data-lease="/approvals/{mine.pk}/claim/renew/"') == 1
        assert "console/lease.js" in kept
        for approval in (his, handed):
            assert "data-lease" not in page.get(f"/approvals/{approval.pk}/").content.decode()

    def test_what_another_holds_asks_before_it_is_decided(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        actions.claim_request(approval.pk, marco)

        html = page.get(f"/inbox/peek/{approval.pk}/").content.decode()
        anyway = page.get(f"/inbox/peek/{approval.pk}/?anyway=1").content.decode()

        assert "Claimed by Marco Reyes" in html
        assert "Decide anyway" in html
        assert "Approve $214.50" not in html
        assert "Approve $214.50" in anyway
        assert "anyway=1" in anyway

    def test_deciding_anyway_counts(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        actions.claim_request(approval.pk, marco)

        page.post(f"/approvals/{approval.pk}/decide/", posted(approval, next="inbox"))

        approval.refresh_from_db()
        assert approval.state == Approval.State.APPROVED

    def test_who_comes_second_is_told_in_the_preview(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        actions.claim_request(approval.pk, marco)

        html = page.post(f"/approvals/{approval.pk}/claim/", {"next": "inbox"}, **HTMX).content.decode()

        assert "Marco Reyes has claimed this. You may still decide." in html

    def test_without_script_a_page_says_why_not(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        actions.claim_request(approval.pk, marco)

        response = page.post(f"/approvals/{approval.pk}/claim/", {"next": "inbox"})

        assert response.status_code == 409
        assert "Nothing was changed." in response.content.decode()

    def test_a_page_that_closes_gives_back(self, page: Client, waiting: Waiting, dana: User) -> None:
        approval = waiting()
        actions.claim_request(approval.pk, dana)

        page.post(f"/approvals/{approval.pk}/release/")

        assert claims.of(approval.pk) is None

    def test_a_page_at_work_keeps_its_claim_and_learns_when_it_is_lost(
        self, page: Client, waiting: Waiting, dana: User
    ) -> None:
        approval = waiting()
        actions.claim_request(approval.pk, dana)

        assert page.post(f"/approvals/{approval.pk}/claim/renew/").status_code == 204
        actions.release_claim(approval.pk, dana)
        assert page.post(f"/approvals/{approval.pk}/claim/renew/").status_code == 410

    @pytest.mark.parametrize("path", ["claim", "claim/renew", "release", "wake"])
    def test_looking_changes_nothing(self, page: Client, waiting: Waiting, path: str) -> None:
        approval = waiting()

        assert page.get(f"/approvals/{approval.pk}/{path}/").status_code == 405
        assert claims.of(approval.pk) is None

    @pytest.mark.parametrize("path", ["claim", "release", "hand-over", "snooze", "wake"])
    def test_an_outsider_finds_nothing(self, client: Client, waiting: Waiting, otto: User, path: str) -> None:
        approval = waiting()
        client.force_login(otto)

        response = client.post(f"/approvals/{approval.pk}/{path}/", {"to": f"user:{otto.pk}", "until": "15m"})

        assert response.status_code in (403, 404)
        assert claims.of(approval.pk) is None


class TestHandingOver:
    def test_the_form_offers_those_who_may_decide_and_nobody_else(
        self, page: Client, waiting: Waiting, marco: User, mia: User
    ) -> None:
        html = page.get(f"/approvals/{waiting().pk}/hand-over/?next=inbox", **HTMX).content.decode()

        assert "Marco Reyes" in html
        assert "Mia Manager" not in html
        assert "Sam Operator" not in html
        assert "Dana Whitfield" not in html
        assert "approver" in html
        assert "<html" not in html

    def test_the_dialog_says_who_gets_it_in_place_of_who_is_away(
        self, page: Client, waiting: Waiting, sam: User, marco: User
    ) -> None:
        priya, ben = make_user("Priya Nair", "approver"), make_user("Ben Third", "approver")
        eve = make_user("Eve Fifth", "approver")
        times = {"since": timezone.now() - timedelta(hours=1), "until": timezone.now() + timedelta(hours=1)}
        for user, deputy in ((marco, priya), (priya, ben), (eve, sam)):
            Absence.objects.create(user=user, deputy=deputy, **times)

        html = page.get(f"/approvals/{waiting().pk}/hand-over/").content.decode()

        assert "Marco Reyes, away: goes to Ben Third<" in html
        assert "Priya Nair, away: goes to Ben Third<" in html
        assert ">Eve Fifth<" in html, "Sam may not decide, so it stays with Eve"

    def test_posted_it_is_theirs_with_the_note(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval, other = waiting(expires_seconds=600), waiting(expires_seconds=700)
        form = {"to": f"user:{marco.pk}", "note": "You know <b>Ana</b>.", "next": "inbox", "following": str(other.pk)}

        response = page.post(f"/approvals/{approval.pk}/hand-over/", form)

        assert response["Location"] == f"/inbox/?id={other.pk}"
        his = Client()
        his.force_login(marco)
        html = his.get(f"/inbox/?view=mine&id={approval.pk}").content.decode()
        assert "Dana Whitfield handed this over:" in html
        assert "You know &lt;b&gt;Ana&lt;/b&gt;." in html

    def test_a_note_may_be_as_long_as_its_field_takes_with_every_line_break_as_one(
        self, page: Client, waiting: Waiting, marco: User
    ) -> None:
        approval = waiting()
        form = {"to": f"user:{marco.pk}", "note": "a\r\n" * 149 + "ab"}
        assert page.post(f"/approvals/{approval.pk}/hand-over/", form).status_code == 302
        assert approval.claim.note == "a\n" * 149 + "ab"

    def test_a_note_that_is_too_long_keeps_whom_it_was_for(self, page: Client, waiting: Waiting, marco: User) -> None:
        to = f"user:{marco.pk}"
        html = page.post(f"/approvals/{waiting().pk}/hand-over/", {"to": to, "note": "x" * 301}).content.decode()
        assert "A note has 300 characters at most." in html
        assert f'<option value="{to}" selected>' in html

    @pytest.mark.parametrize("to", ["", "user:", "user:x", "user:99999999999", "user:0", "group:0", "nobody:1"])
    def test_an_unknown_person_is_asked_for_again(self, page: Client, waiting: Waiting, to: str) -> None:
        approval = waiting()

        response = page.post(f"/approvals/{approval.pk}/hand-over/", {"to": to, "note": "Kept."})

        assert response.status_code == 422
        assert "Choose a person or a group." in response.content.decode()
        assert "Kept." in response.content.decode()

    def test_what_one_may_not_decide_can_be_handed_to_its_team(
        self, client: Client, waiting: Waiting, mia: User, marco: User
    ) -> None:
        payments = Group.objects.create(name="Payments")
        marco.groups.add(payments)
        approval = waiting(groups=(payments.pk,))
        client.force_login(mia)

        html = client.get("/inbox/").content.decode()
        client.post(f"/approvals/{approval.pk}/hand-over/", {"to": f"group:{payments.pk}", "next": "inbox"})

        assert "Hand to Payments" in html
        assert "You can view this, not decide it" in html
        claim = claims.of(approval.pk)
        assert claim is not None
        assert claim.group == payments


class TestSnoozing:
    def test_it_leaves_the_queue_of_one_and_stays_in_that_of_others(
        self, page: Client, waiting: Waiting, marco: User
    ) -> None:
        approval = waiting()

        page.post(f"/approvals/{approval.pk}/snooze/", {"until": "15m", "next": "inbox"})

        assert page.get("/inbox/").context["queue"].rows == []
        assert "1 snoozed" in page.get("/inbox/").content.decode()
        his = Client()
        his.force_login(marco)
        assert [row.pk for row in his.get("/inbox/").context["queue"].rows] == [approval.pk]

    def test_a_time_behind_its_end_is_not_offered_and_not_taken(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(expires_seconds=1800)

        html = page.get(f"/approvals/{approval.pk}/snooze/").content.decode()
        response = page.post(f"/approvals/{approval.pk}/snooze/", {"until": "1h"})

        assert html.count("It expires before that") == 2
        assert response.status_code == 422
        assert not Snooze.objects.exists()

    def test_woken_it_is_back(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        page.post(f"/approvals/{approval.pk}/snooze/", {"until": "15m"})

        assert "Wake" in page.get(f"/inbox/peek/{approval.pk}/?snoozed=1").content.decode()
        page.post(f"/approvals/{approval.pk}/wake/", {"next": "inbox"})

        assert len(page.get("/inbox/").context["queue"].rows) == 1
