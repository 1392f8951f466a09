"""What people see of guidelines: in the trace of a run and on the page of a request."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentapp.models import Run, Tool
from tests.conftest import Clerk
from tests.guided import Guide


@pytest.fixture
def guide(clerk: Clerk) -> Guide:
    guide = Guide(clerk)
    strong = guide.guideline("paying", "Pay what is due.", "pay", condition="money is due")
    guide.guideline("finding", "", "look_up")
    guide.relate(strong, "priority", guide.guideline("weak", "Be <b>brief</b>.", matcher="always"))
    return guide


def waiting(guide: Guide) -> Run:
    said = {"state": "needs_to_run", "calls": [{"account": "ana", "amount": 5.0}], "why": "<i>It is due.</i>"}
    return guide.run({"matched": {"paying": "They wait for it."}, "evaluations": {"pay": said}})


def page_of(client: Client, user: User, url: str, **query: Any) -> str:
    client.force_login(user)
    response = client.get(url, query)
    assert response.status_code == 200
    return response.content.decode()


def test_a_step_shows_the_guidelines_it_looked_at_and_what_became_of_their_tools(
    guide: Guide, client: Client, mia: User
) -> None:
    run = waiting(guide)
    page = page_of(client, mia, f"/runs/{run.pk}/", step="1")
    for shown in (
        "When money is due: Pay what is due.",
        "They wait for it.",
        "Gives way to paying",
        "Be &lt;b&gt;brief&lt;/b&gt;.",
        "1 that does not hold",
        "Needs to run",
        "Argument by argument",
        "&lt;i&gt;It is due.&lt;/i&gt;",
    ):
        assert shown in page, shown


def test_a_step_shows_what_is_missing_and_what_is_not_named_to_the_customer(
    guide: Guide, client: Client, mia: User
) -> None:
    Tool.objects.filter(name="pay").update(parameters={"account": {"hidden": True, "display_name": "the account"}})
    run = guide.run({"matched": ["paying"], "evaluations": {"pay": {"state": "cannot_run"}}, "says": "How much?"})
    page = page_of(client, mia, f"/runs/{run.pk}/", step="1")
    assert "Missing: the account." in page
    assert page.count("Not named to the customer.") == 1
    assert "Missing: amount." in page


def test_a_call_shows_which_guideline_asked_for_it(guide: Guide, client: Client, mia: User) -> None:
    page = page_of(client, mia, f"/runs/{waiting(guide).pk}/", step="1", call="0")
    assert "<dt>Asked for by</dt><dd><code>paying</code></dd>" in page
    assert "&lt;i&gt;It is due.&lt;/i&gt;" in page


def test_the_page_of_a_request_has_the_guideline_among_its_evidence_and_the_reason_as_a_claim(
    guide: Guide, client: Client, dana: User
) -> None:
    run = waiting(guide)
    (approval,) = guide.clerk.open(run)
    assert approval.evidence[-1] == {
        "n": 2,
        "kind": "guideline",
        "title": "paying",
        "body": "When money is due: Pay what is due.",
        "trust": "trusted_system",
        "version": 1,
    }
    assert approval.explanation == "<i>It is due.</i>"
    page = page_of(client, dana, f"/approvals/{approval.pk}/")
    assert "Guideline v1</span>" in page
    assert '<div class="ev-body pre guide">When money is due: Pay what is due.</div>' in page
    assert "The explanation has no evidence." in page


def test_the_page_of_a_run_costs_three_questions_more_where_guidelines_decide_and_no_more_with_many(
    guide: Guide, client: Client, mia: User
) -> None:
    client.force_login(mia)

    def cost(run: Run) -> int:
        client.get(f"/runs/{run.pk}/", {"step": "1"})
        with CaptureQueriesContext(connection) as captured:
            client.get(f"/runs/{run.pk}/", {"step": "1"})
        return len(captured)

    few = cost(guide.run({"matched": ["paying"], "says": "No."}))
    for number in range(10):
        guide.guideline(f"more-{number}", "", "look_up", "fail", matcher="always")
    many = cost(guide.run({"matched": ["paying"], "says": "No."}))
    assert many == few
