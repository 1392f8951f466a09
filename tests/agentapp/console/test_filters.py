"""The inbox's filters and orders, and that its pages join up in every order."""

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group, User
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from agentapp import actions, preferences
from agentapp.console import queue
from agentapp.console.filters import SORTS, Filters, read_query
from agentapp.models import Run
from approvals.models import Approval

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]


def titles(page: Client, query: str) -> list[str]:
    return [row.title for row in page.get(f"/inbox/{query}").context["queue"].rows]


class TestNarrowing:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("?risk=high", ["Kettle"]),
            ("?tool=issue_credit", ["Credit"]),
            ("?agent=billing", ["Credit"]),
            ("?rule=credits", ["Credit"]),
            ("?team=Payments", ["Credit"]),
            ("?age=1h", ["Old"]),
            ("?claimed=marco", ["Kettle"]),
            ("?claimed=nobody", ["Credit", "Old"]),
            ("?starter=sam", ["Kettle", "Credit", "Old"]),
            ("?starter=nobody-at-all", []),
            ("?q=kett&risk=high", ["Kettle"]),
            ("?q=kett&risk=low", []),
            ("?risk=nonsense&age=17y", ["Kettle", "Credit", "Old"]),
        ],
    )
    def test_each_part_lets_through_what_it_names(
        self, page: Client, waiting: Waiting, dana: User, marco: User, query: str, found: list[str]
    ) -> None:
        payments = Group.objects.create(name="Payments")
        dana.groups.add(payments)
        kettle = waiting(title="Kettle", risk="high", expires_seconds=600)
        waiting(title="Credit", tool="issue_credit", agent="billing", rule="credits", groups=(payments.pk,),
                expires_seconds=700)  # fmt: skip
        old = waiting(title="Old", expires_seconds=8000)
        Approval.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=2))
        actions.claim_request(kettle.pk, marco)

        assert titles(page, query) == found

    def test_a_reference_finds_its_request(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(title="This one")
        waiting(title="Another")

        assert titles(page, f"?q={approval.reference.lower()}") == ["This one"]

    def test_my_decisions_are_a_view_of_the_decided(self, page: Client, waiting: Waiting, marco: User) -> None:
        mine, his = waiting(title="Mine"), waiting(title="His")
        page.post(f"/approvals/{mine.pk}/decide/", posted(mine))
        other = Client()
        other.force_login(marco)
        other.post(f"/approvals/{his.pk}/decide/", posted(his))

        assert titles(page, "?view=decided&by=dana") == ["Mine"]

    def test_each_filter_is_a_chip_that_leads_to_its_absence(self) -> None:
        filters = read_query("?risk=high&tool=refund&age=1h&q=a&view=free")

        assert filters.chips == [
            ("Text", "a", "?view=free&risk=high&tool=refund&age=1h"),
            ("Risk", "High", "?view=free&q=a&tool=refund&age=1h"),
            ("Tool", "refund", "?view=free&q=a&risk=high&age=1h"),
            ("Waiting", "over an hour", "?view=free&q=a&risk=high&tool=refund"),
        ]
        assert filters.cleared == "?view=free"

    def test_an_address_read_and_written_is_itself(self) -> None:
        address = "?view=mine&q=x&risk=low&starter=sam&claimed=nobody&sort=cost"

        assert read_query(address).here == address
        assert Filters().here == "?"


class TestOrder:
    @pytest.mark.parametrize(
        ("sort", "order"),
        [
            ("due", ["Soon", "Risky", "Old", "Dear"]),
            ("risk", ["Risky", "Soon", "Dear", "Old"]),
            ("oldest", ["Old", "Soon", "Risky", "Dear"]),
            ("newest", ["Dear", "Risky", "Soon", "Old"]),
            ("cost", ["Dear", "Risky", "Soon", "Old"]),
        ],
    )
    def test_each_puts_first_what_it_says(self, page: Client, waiting: Waiting, sort: str, order: list[str]) -> None:
        waiting(title="Soon", risk="medium", expires_seconds=60)
        waiting(title="Risky", risk="critical", expires_seconds=600)
        dear = waiting(title="Dear", risk="medium", expires_seconds=9000)
        old = waiting(title="Old", risk="low", expires_seconds=700)
        Run.objects.filter(pk=dear.run_id).update(cost=Decimal("4.20"))
        Approval.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=2))

        assert titles(page, f"?sort={sort}") == order

    @pytest.mark.parametrize("sort", SORTS)
    def test_pages_follow_each_other_without_gap_or_repeat(
        self, page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch, sort: str
    ) -> None:
        monkeypatch.setattr(queue, "PAGE", 2)
        made = [waiting(risk=risk, expires_seconds=600).pk for risk in ("low", "high", "high", "medium", "low")]
        Approval.objects.filter(pk__in=made[:3]).update(
            created_at=timezone.now(), expires_at=timezone.now() + timedelta(1)
        )

        seen, after = [], ""
        for _ in range(3):
            listed = page.get("/inbox/", {"after": after, "sort": sort}).context["queue"]
            seen += [row.pk for row in listed.rows]
            after = listed.next_page

        assert after == ""
        assert sorted(seen) == sorted(made)

    @pytest.mark.parametrize("sort", SORTS)
    @pytest.mark.parametrize("place", ["~~", "x~1~y", "1e999~1~" + "0" * 32, "NaN~0~" + "0" * 32, "²~" + "0" * 32])
    def test_a_place_that_cannot_be_read_is_the_first_page(
        self, page: Client, waiting: Waiting, sort: str, place: str
    ) -> None:
        waiting()

        assert len(page.get("/inbox/", {"after": place, "sort": sort}).context["queue"].rows) == 1

    def test_what_is_new_is_counted_up_to_where_the_page_ends(
        self, page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue, "PAGE", 1)
        waiting(risk="high", title="High")
        waiting(risk="low", title="Low")
        listed = page.get("/inbox/?sort=risk").context["queue"]
        waiting(risk="critical", title="Before the end of the page")
        waiting(risk="low", title="Behind it")

        fragment = page.get(
            "/inbox/rows/", {"shown": [str(listed.rows[0].pk)], "last": listed.next_page, "sort": "risk"}
        ).content.decode()

        assert "1 new request" in fragment


class TestViews:
    def test_each_kept_view_says_how_many_wait_in_it(self, page: Client, waiting: Waiting, dana: User) -> None:
        waiting(risk="high")
        waiting(risk="low")
        mine = waiting(risk="low")
        actions.claim_request(mine.pk, dana)
        for name, query in (("High", "?risk=high"), ("Low and mine", "?view=mine&risk=low"), ("Done", "?view=decided")):
            preferences.save_view(dana, "inbox", name, query)

        found = {view.name: n for view, _, n in queue.saved_views(dana)}

        assert found == {"High": 1, "Low and mine": 1, "Done": None}

    def test_they_are_counted_in_two_queries(
        self, waiting: Waiting, dana: User, django_assert_max_num_queries: Callable[..., object]
    ) -> None:
        waiting()
        user = User.objects.get(pk=dana.pk)
        user.has_perm("approvals.view_approval")
        for number in range(preferences.MAX_VIEWS):
            preferences.save_view(dana, "inbox", f"View {number}", "?risk=high")

        with django_assert_max_num_queries(2):  # type: ignore[attr-defined]
            queue.saved_views(user)

    def test_a_view_is_saved_shown_and_deleted_without_script(self, page: Client, waiting: Waiting) -> None:
        waiting(risk="high")

        saved = page.post("/inbox/views/", {"name": "High risk", "risk": "high"})
        html = page.get("/inbox/views/").content.decode()

        assert saved["Location"] == "/inbox/?risk=high"
        assert "1 waiting" in html
        [(view, _, _)] = page.get("/inbox/views/").context["views"]
        page.post(f"/inbox/views/{view.pk}/delete/")
        assert page.get("/inbox/views/").context["views"] == []

    def test_a_name_taken_is_said_and_nothing_lost(self, page: Client) -> None:
        page.post("/inbox/views/", {"name": "High risk", "risk": "high"})

        again = page.post("/inbox/views/", {"name": "High risk", "risk": "low"})

        assert again.status_code == 422
        assert "You already have a view named" in again.content.decode()
        assert 'name="name" value="High risk"' in again.content.decode()


@pytest.mark.parametrize(
    "query",
    [
        "?tool=gone&agent=gone&rule=gone&team=Gone&starter=gone&claimed=gone&risk=high&age=1h&late=1&sort=oldest",
        "?view=mine&q=kettle&snoozed=1&all=1",
        "?view=decided&by=dana&tool=gone",
    ],
)
def test_the_panel_leads_back_to_every_filter_that_is_in_force(page: Client, query: str) -> None:
    html = page.get(f"/inbox/filters/{query}").content.decode()

    panel = html.partition('<form class="filter-panel"')[2].partition("</form>")[0]
    sent = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]+)">', panel)
    for name, options in re.findall(r'<select [^>]*name="([^"]+)">(.*?)</select>', panel):
        sent += [(name, value) for value in re.findall(r'<option value="([^"]+)" selected>', options)]
    found = QueryDict(mutable=True)
    found.update(dict(sent))
    assert len(sent) == len(found)
    assert Filters.read(found) == read_query(query)


def test_among_decided_requests_the_panel_offers_what_was_decided(page: Client, waiting: Waiting) -> None:
    done = waiting(tool="issue_credit", agent="billing")
    waiting(tool="write_letter")
    page.post(f"/approvals/{done.pk}/decide/", posted(done))

    html = page.get("/inbox/filters/?view=decided").content.decode()

    assert "issue_credit" in html
    assert "write_letter" not in html


def test_the_panel_offers_what_waits_and_only_that(page: Client, waiting: Waiting) -> None:
    waiting(tool="issue_credit", agent="billing")
    private = Group.objects.create(name="privacy")
    waiting(tool="erase_customer", groups=(private.pk,))

    html = page.get("/inbox/filters/").content.decode()

    assert "issue_credit" in html
    assert "erase_customer" not in html
    assert "privacy" not in html
