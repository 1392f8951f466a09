import re
from collections.abc import Callable
from html import unescape

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, executions, runs
from agentapp.console import queue
from agentapp.messages import ToolResult
from agentapp.models import ToolExecution
from approvals import ledger
from approvals.models import Approval

from .conftest import make_unknown, posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]
MAX_QUERIES = 12


def test_requests_are_grouped_by_when_they_are_due(page: Client, waiting: Waiting) -> None:
    waiting(title="Much later", expires_seconds=3 * 86400)
    waiting(title="Soon", expires_seconds=300)
    waiting(title="Within the hour", expires_seconds=1800)

    groups = page.get("/inbox/").context["queue"].groups

    assert [(group.title, [row.title for row in group.rows]) for group in groups] == [
        ("Due within 15 minutes", ["Soon"]),
        ("Due within an hour", ["Within the hour"]),
        ("Later", ["Much later"]),
    ]


def test_a_row_says_what_to_beware_of(page: Client, waiting: Waiting) -> None:
    waiting(risk_factors=[{"name": "effect_class", "points": 25, "words": "cannot be taken back"}])
    assert "q-mark" not in page.get("/inbox/").text
    waiting(risk_factors=[{"name": name, "points": 35, "words": "x"} for name in ("outside", "disguised")])
    html = page.get("/inbox/").text
    assert html.count("q-mark") == 2
    assert "Holds values from outside</span>" in html
    assert "Holds hidden characters or look-alike letters</span>" in html


def test_the_preview_shows_enough_to_decide(page: Client, waiting: Waiting) -> None:
    approval = waiting()

    html = page.get("/inbox/").content.decode()

    for text in (
        "<b>$214.50</b>",
        "Hard to take back",
        "Refunds over $100.00 need one person.",
        "Damaged in transit",
        "The kettle arrived with the glass cracked",
        "From outside",
        "A claim, not a fact",
        "Approve $214.50",
        f'value="{approval.action_digest}"',
    ):
        assert text in html


def test_the_inbox_asks_the_database_the_same_few_things_for_one_and_for_many(page: Client, waiting: Waiting) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert page.get("/inbox/").status_code == 200
        return len(captured)

    group = Group.objects.get(name="approver")
    waiting(groups=(group.pk,))
    # The first time also records that they have been shown the request.
    queries()
    one = queries()
    for _ in range(6):
        waiting(groups=(group.pk,))
    make_unknown(User.objects.get(username="sam"))

    assert queries() == one <= MAX_QUERIES


def test_the_fragment_is_the_piece_in_the_page(page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)

    # Both show the time left to the second, so stop the clock.
    moment = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: moment)
    whole = page.get("/inbox/").content.decode()
    shown = [str(first.pk), str(second.pk)]
    fragment = page.get("/inbox/rows/", {"shown": shown, "first": "1", "id": str(first.pk)}).content.decode()

    assert fragment.strip() in whole


def test_a_decided_row_keeps_its_place_and_says_who_decided(page: Client, waiting: Waiting, marco: User) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)
    other = Client()
    other.force_login(marco)
    other.post(f"/approvals/{first.pk}/decide/", posted(first))

    fragment = page.get("/inbox/rows/", {"shown": [str(first.pk), str(second.pk)]}).content.decode()

    assert fragment.index(f"apr-{first.pk}") < fragment.index(f"apr-{second.pk}")
    assert "Approved by Marco" in fragment
    assert "is-gone" in fragment


def test_new_requests_wait_behind_a_count(page: Client, waiting: Waiting) -> None:
    first = waiting(expires_seconds=600)
    waiting(expires_seconds=60, title="Newer")

    fragment = page.get("/inbox/rows/", {"shown": [str(first.pk)]}).content.decode()

    assert "1 new request" in fragment
    assert "Newer" not in fragment


def test_the_new_ones_come_in_beside_the_request_being_read(page: Client, waiting: Waiting) -> None:
    first, read = waiting(expires_seconds=600), waiting(expires_seconds=700)
    waiting(expires_seconds=60, title="Newer")
    asked = {"shown": [str(first.pk), str(read.pk)], "id": str(read.pk)}

    [address] = re.findall(r'id="news" href="([^"]+)"', page.get("/inbox/rows/", asked).content.decode())
    shown = page.get(unescape(address))

    assert shown.context["approval"] == read
    assert "Newer" in shown.content.decode()


def test_pages_follow_each_other_without_gap_or_repeat(
    page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PAGE", 2)
    made = [waiting(expires_seconds=600).pk for _ in range(5)]

    seen, after = [], ""
    for _ in range(3):
        listed = page.get("/inbox/", {"after": after}).context["queue"]
        seen += [row.pk for row in listed.rows]
        after = listed.next_page

    assert after == ""
    assert sorted(seen) == sorted(made)


@pytest.mark.parametrize("after", ["nonsense", "2026-11-20T10:00:00~x", "~", "2026-11-20T10:00:00Z~" + "0" * 31])
def test_a_place_that_cannot_be_read_is_the_first_page(page: Client, waiting: Waiting, after: str) -> None:
    waiting()

    assert len(page.get("/inbox/", {"after": after}).context["queue"].rows) == 1


def test_filters_narrow_and_say_so_when_nothing_is_left(page: Client, waiting: Waiting) -> None:
    waiting(title="Refund the kettle", risk="high")
    waiting(title="Close an account", risk="low")

    assert [row.title for row in page.get("/inbox/?q=kettle").context["queue"].rows] == ["Refund the kettle"]
    assert [row.title for row in page.get("/inbox/?risk=low").context["queue"].rows] == ["Close an account"]
    nothing = page.get("/inbox/?q=nothing").content.decode()
    assert "No request matches" in nothing
    assert "Clear filters" in nothing


def test_an_empty_inbox_says_what_will_appear(page: Client) -> None:
    assert "New requests appear here on their own." in page.get("/inbox/").content.decode()


def test_somebody_without_the_right_sees_an_explanation_and_no_request(
    client: Client, waiting: Waiting, otto: User
) -> None:
    approval = waiting()
    client.force_login(otto)

    html = client.get(f"/inbox/?id={approval.pk}").content.decode()

    assert "Requests are for approvers" in html
    assert approval.title not in html
    assert str(approval.pk) not in html
    assert client.get(f"/inbox/peek/{approval.pk}/").status_code == 404
    rows = client.get("/inbox/rows/", {"shown": [str(approval.pk)]}).content.decode()
    assert approval.title not in rows
    assert client.get("/counts/").json() == {"waiting": 0, "mine": 0, "due": 0}


def test_a_request_for_other_groups_is_not_in_the_queue(page: Client, waiting: Waiting) -> None:
    private = Group.objects.create(name="privacy")
    waiting(title="For privacy", groups=(private.pk,))

    assert page.get("/inbox/").context["queue"].rows == []


def test_decided_requests_have_a_list_of_their_own(page: Client, waiting: Waiting) -> None:
    approval = waiting(title="Refund the kettle")
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))

    html = page.get("/inbox/?view=decided").content.decode()

    assert "Refund the kettle" in html
    assert "Approved by Dana" in html


def test_of_a_decided_request_it_is_said_what_was_asked(page: Client, waiting: Waiting) -> None:
    approval = waiting()
    preview = f"/inbox/peek/{approval.pk}/"
    assert "What you are approving" in page.get(preview).content.decode()
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval, type="reject", message="No."))

    html = page.get(preview).content.decode()

    assert "What you are approving" not in html
    assert re.findall(r"</svg>(What was asked|Arguments)", html) == ["What was asked", "Arguments"]


def test_deciding_in_the_inbox_leads_to_the_next_request_with_an_undo(page: Client, waiting: Waiting) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)

    response = page.post(
        f"/approvals/{first.pk}/decide/", posted(first, next="inbox", following=str(second.pk)), follow=True
    )

    assert response.context["approval"].pk == second.pk
    html = response.content.decode()
    assert f"/approvals/{first.pk}/undo/" in html
    assert "runs in" in html


def test_what_is_said_after_deciding_is_true_of_what_is_stopped_and_of_what_was_rejected(
    page: Client, waiting: Waiting, mia: User
) -> None:
    rejected, approved, last = (waiting(expires_seconds=seconds) for seconds in (600, 700, 800))

    def told(approval: Approval, following: Approval, **verdict: str) -> str:
        fields = posted(approval, next="inbox", following=str(following.pk), **verdict)
        html = page.post(f"/approvals/{approval.pk}/decide/", fields, follow=True).content.decode()
        return " ".join(html[html.index("data-toast") :][:1000].split())

    assert "the agent is told in" in told(rejected, approved, type="reject", message="No.")
    actions.engage_switch("tool", "refund_payment", "It pays twice.", mia)
    assert "stopped, can be undone for" in told(approved, last)


def test_what_is_critical_is_approved_on_its_page_where_the_word_is_typed(page: Client, waiting: Waiting) -> None:
    approval = waiting(risk="critical", approvals_needed=2)

    html = page.get("/inbox/").content.decode()

    assert f'href="/approvals/{approval.pk}/?do=approve" data-act="approve"' in html
    assert 'value="approve"' not in html
    opened = page.get(f"/approvals/{approval.pk}/?do=approve").content.decode()
    assert re.search(r'<dialog[^>]*id="approve-dialog"[^>]* open[ >]', opened)


def test_the_bar_beside_the_queue_asks_and_takes_over(page: Client, waiting: Waiting) -> None:
    approval = waiting()

    html = page.get("/inbox/").content.decode()

    assert f'href="/approvals/{approval.pk}/?do=ask" data-act="ask"' in html
    assert f'action="/runs/{approval.run_id}/take-over/"' in html


def test_an_undo_leads_back_to_the_place_it_was_pressed_in(page: Client, waiting: Waiting) -> None:
    approval = waiting(risk="low")
    decided = page.post(
        f"/approvals/{approval.pk}/decide/", posted(approval, next="inbox", risk="low"), follow=True
    ).content.decode()
    [form] = re.findall(rf'<form[^>]*action="/approvals/{approval.pk}/undo/">(.*?)</form>', decided)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))

    response = page.post(f"/approvals/{approval.pk}/undo/", fields)

    assert response["Location"] == f"/inbox/?risk=low&id={approval.pk}"


@pytest.mark.parametrize("place", ["", "https://elsewhere.example/", "//elsewhere.example", "approval"])
def test_an_undo_leads_nowhere_else_than_to_pages_of_ours(page: Client, waiting: Waiting, place: str) -> None:
    approval = waiting()
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))

    response = page.post(f"/approvals/{approval.pk}/undo/", {"next": place})

    assert response["Location"] == f"/approvals/{approval.pk}/"


class TestUnknownOutcomes:
    def test_they_stand_first_as_their_own_group(self, page: Client, sam: User, waiting: Waiting) -> None:
        waiting(expires_seconds=60)
        make_unknown(sam)

        html = page.get("/inbox/").content.decode()

        assert html.index("Outcome unknown") < html.index("Due within 15 minutes")

    def test_what_its_tool_said_when_it_failed_is_there_to_go_by(self, page: Client, sam: User) -> None:
        execution = make_unknown(sam)
        assert "worker or its answer was lost" in page.get(f"/outcomes/{execution.pk}/").text
        said = {
            "attempt": 1,
            "status": "fatal_error",
            "reason": "outcome_unknown",
            "message": "RuntimeError: <b>no ink",
        }
        ToolExecution.objects.filter(pk=execution.pk).update(failures=[said], attempts=1)

        html = page.get(f"/outcomes/{execution.pk}/").text

        assert "RuntimeError: &lt;b&gt;no ink" in html
        assert "was lost" not in html

    @pytest.mark.parametrize(
        ("outcome", "state"),
        [
            ("happened", ToolExecution.State.FINISHED),
            ("did_not_happen", ToolExecution.State.FINISHED),
            ("retry", ToolExecution.State.PROPOSED),
        ],
    )
    def test_a_person_says_what_happened(self, page: Client, sam: User, outcome: str, state: str) -> None:
        execution = make_unknown(sam)

        response = page.post(f"/outcomes/{execution.pk}/", {"outcome": outcome, "note": "Looked in Stripe."})

        assert response.status_code == 302
        execution.refresh_from_db()
        assert execution.state == state
        assert execution.outcome_note == "Looked in Stripe."

    def test_without_saying_how_one_knows_nothing_is_recorded(self, page: Client, sam: User) -> None:
        execution = make_unknown(sam)

        response = page.post(f"/outcomes/{execution.pk}/", {"outcome": "happened", "note": " "})

        assert response.status_code == 422
        execution.refresh_from_db()
        assert execution.state == ToolExecution.State.OUTCOME_UNKNOWN

    def test_the_second_answer_is_told_that_it_is_known(self, page: Client, sam: User) -> None:
        execution = make_unknown(sam)
        page.post(f"/outcomes/{execution.pk}/", {"outcome": "happened", "note": "Seen."})

        response = page.post(f"/outcomes/{execution.pk}/", {"outcome": "did_not_happen", "note": "Not seen."})

        assert response.status_code == 409
        execution.refresh_from_db()
        assert execution.outcome_note == "Seen."
        assert "Your note, not recorded" in response.text
        assert "readonly>Not seen.</textarea>" in response.text

    def test_its_preview_hears_that_somebody_else_has_answered(self, page: Client, sam: User) -> None:
        execution = make_unknown(sam)
        preview = f"/inbox/outcome/{execution.pk}/"
        hears = f'hx-get="{preview}" hx-trigger="choose, inbox-changed from:body"'
        for address in ("/inbox/", preview):
            assert hears in page.get(address).text
        page.post(f"/outcomes/{execution.pk}/", {"outcome": "happened", "note": "Seen."})

        shown = page.get(preview).text

        assert "Somebody has found out." in shown
        assert 'name="outcome"' not in shown

    def test_whoever_was_about_to_answer_reads_that_the_answer_came_late(self, page: Client, sam: User) -> None:
        execution = make_unknown(sam)
        with ledger.transaction():
            runs.lock(execution.run_id)
            assert executions.finish_late(executions.Outcome(execution, ToolResult(data="refunded")), 1)

        shown = page.get(f"/inbox/outcome/{execution.pk}/").text
        response = page.post(f"/outcomes/{execution.pk}/", {"outcome": "happened", "note": "Seen."})

        assert "Its answer came after all." in shown
        assert 'name="outcome"' not in shown
        assert response.status_code == 409
        assert "readonly>Seen.</textarea>" in response.text

    def test_a_call_that_was_never_lost_has_no_such_page(self, page: Client, waiting: Waiting) -> None:
        execution = waiting().execution

        assert page.get(f"/outcomes/{execution.pk}/").status_code == 404

    def test_who_started_the_run_cannot_resolve_it(self, client: Client, sam: User) -> None:
        execution = make_unknown(sam)
        client.force_login(sam)

        assert client.post(f"/outcomes/{execution.pk}/", {"outcome": "happened", "note": "x"}).status_code == 403

    def test_an_outsider_does_not_find_it(self, client: Client, sam: User, otto: User) -> None:
        execution = make_unknown(sam)
        client.force_login(otto)

        assert client.get(f"/outcomes/{execution.pk}/").status_code == 404
        assert client.get(f"/inbox/outcome/{execution.pk}/").status_code == 404
