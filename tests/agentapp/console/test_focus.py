"""Focus mode: one request at a time, claimed before it is shown."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentapp import actions
from approvals import claims
from approvals.models import Approval

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]


def holder(approval: Approval) -> str:
    claim = claims.of(approval.pk)
    return claim.user.username if claim is not None and claim.user is not None else ""


def address(approval: Approval) -> str:
    return f"/inbox/focus/{approval.pk}/"


def test_it_begins_with_what_is_due_first_and_claims_it(page: Client, waiting: Waiting) -> None:
    later, first = waiting(expires_seconds=700), waiting(expires_seconds=600)

    response = page.post("/inbox/focus/begin/")

    assert response["Location"] == address(first)
    assert (holder(first), holder(later)) == ("dana", "")
    html = page.get(address(first)).content.decode()
    assert "Approve $214.50" in html
    assert 'name="next" value="focus" form="decide"' in html


def test_what_another_holds_is_never_served(page: Client, waiting: Waiting, marco: User) -> None:
    his, free = waiting(expires_seconds=600), waiting(expires_seconds=700)
    actions.claim_request(his.pk, marco)

    assert page.post("/inbox/focus/begin/")["Location"] == address(free)
    assert page.get(address(his))["Location"] == "/inbox/focus/"
    page.post(f"/inbox/focus/{free.pk}/skip/")
    assert page.post("/inbox/focus/next/", {"wanted": str(his.pk)})["Location"] == "/inbox/focus/?done=1"
    assert holder(his) == "marco"


def test_what_was_handed_to_me_comes_before_what_is_free(
    page: Client, waiting: Waiting, dana: User, marco: User
) -> None:
    waiting(expires_seconds=600)
    handed = waiting(expires_seconds=700)
    actions.hand_over(handed.pk, dana, "", marco)

    assert page.post("/inbox/focus/begin/")["Location"] == address(handed)


def test_deciding_leads_on_and_says_what_was_decided(page: Client, waiting: Waiting) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)
    page.post("/inbox/focus/begin/")

    response = page.post(f"/approvals/{first.pk}/decide/", posted(first, next="focus"), follow=True)

    html = response.content.decode()
    assert "Show the next request" in html
    assert f"/approvals/{first.pk}/undo/" in html
    assert page.post("/inbox/focus/next/")["Location"] == address(second)
    assert holder(first) == ""


def test_skipping_leaves_it_to_others_and_does_not_serve_it_again(page: Client, waiting: Waiting) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)
    page.post("/inbox/focus/begin/")

    assert page.post(f"/inbox/focus/{first.pk}/skip/")["Location"] == address(second)
    assert (holder(first), holder(second)) == ("", "dana")
    assert page.post(f"/inbox/focus/{second.pk}/skip/")["Location"] == "/inbox/focus/?done=1"


def test_leaving_gives_back_and_sums_up(page: Client, waiting: Waiting) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)
    page.post("/inbox/focus/begin/")
    page.post(f"/approvals/{first.pk}/decide/", posted(first, next="focus"))
    page.post("/inbox/focus/next/")

    response = page.post(f"/inbox/focus/{second.pk}/leave/", follow=True)

    assert holder(second) == ""
    assert len(response.context["decided"]) == 1
    assert "<dt>Still waiting</dt><dd>1</dd>" in response.content.decode()


def test_leaving_keeps_what_was_handed_to_me(page: Client, waiting: Waiting, dana: User, marco: User) -> None:
    handed = waiting()
    actions.hand_over(handed.pk, dana, "", marco)
    page.post("/inbox/focus/begin/")

    page.post(f"/inbox/focus/{handed.pk}/leave/")

    assert holder(handed) == "dana"


def test_it_keeps_to_the_filters_it_began_with(page: Client, waiting: Waiting) -> None:
    waiting(risk="low", expires_seconds=600)
    high = waiting(risk="high", expires_seconds=700)

    assert page.post("/inbox/focus/begin/", {"risk": "high"})["Location"] == address(high)
    assert page.post(f"/inbox/focus/{high.pk}/skip/")["Location"] == "/inbox/focus/?done=1"


def test_what_comes_next_is_shown_ahead_and_claimed_by_nobody(page: Client, waiting: Waiting) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700, title="The one after")
    page.post("/inbox/focus/begin/")

    ahead = page.get(f"{address(first)}upcoming/")

    assert "The one after" in ahead.content.decode()
    assert "<html" not in ahead.content.decode()
    assert holder(second) == ""
    assert page.get(f"{address(second)}upcoming/").status_code == 200


def test_behind_the_last_comes_nothing(page: Client, waiting: Waiting) -> None:
    only = waiting()
    page.post("/inbox/focus/begin/")

    assert page.get(f"{address(only)}upcoming/").status_code == 204


def test_my_own_run_s_request_is_not_served_to_me(page: Client, waiting: Waiting, dana: User) -> None:
    waiting(starter_id=dana.pk)

    assert page.post("/inbox/focus/begin/")["Location"] == "/inbox/focus/?done=1"


def test_what_i_have_approved_as_the_first_of_two_is_not_served_again(page: Client, waiting: Waiting) -> None:
    approval = waiting(approvals_needed=2)
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))

    assert page.post("/inbox/focus/begin/")["Location"] == "/inbox/focus/?done=1"


def test_it_is_for_those_who_decide(client: Client, waiting: Waiting, mia: User) -> None:
    approval = waiting()
    client.force_login(mia)

    assert client.post("/inbox/focus/begin/").status_code == 403
    assert client.get(address(approval))["Location"] == "/inbox/focus/"
    assert holder(approval) == ""
    assert "Focus mode" not in client.get("/inbox/").content.decode()


def test_looking_claims_nothing(page: Client, waiting: Waiting) -> None:
    approval = waiting()

    page.get("/inbox/focus/")

    for path in ("begin/", "next/", f"{approval.pk}/skip/", f"{approval.pk}/leave/"):
        assert page.get(f"/inbox/focus/{path}").status_code == 405
    assert holder(approval) == ""


def test_a_page_asks_the_database_a_few_things_only(page: Client, waiting: Waiting) -> None:
    first = waiting()
    for _ in range(4):
        waiting()
    page.post("/inbox/focus/begin/")

    with CaptureQueriesContext(connection) as captured:
        page.get(address(first))

    assert len(captured) <= 18


def test_the_next_comes_as_a_piece_with_the_undo_of_the_last(page: Client, waiting: Waiting) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)
    page.post("/inbox/focus/begin/")
    page.post(f"/approvals/{first.pk}/decide/", posted(first, next="focus"))

    piece = page.post(
        "/inbox/focus/next/", {"decided": str(first.pk), "wanted": str(second.pk)}, HTTP_HX_REQUEST="true"
    )

    html = piece.content.decode()
    assert html.startswith('<div id="focus"')
    assert f"/approvals/{first.pk}/undo/" in html
    assert piece["HX-Replace-Url"] == address(second)


def test_taking_a_decision_back_shows_that_request_again_in_the_sitting(page: Client, waiting: Waiting) -> None:
    first, second = waiting(expires_seconds=600), waiting(expires_seconds=700)
    page.post("/inbox/focus/begin/")
    page.post(f"/approvals/{first.pk}/decide/", posted(first, next="focus"))
    assert 'name="next" value="focus"' in page.get(f"/inbox/focus/?decided={first.pk}").content.decode()
    page.post("/inbox/focus/next/")

    response = page.post(f"/approvals/{first.pk}/undo/", {"next": "focus"})

    assert response["Location"] == address(first)
    assert page.get(address(first)).status_code == 200
    assert holder(first) == holder(second) == "dana"


def test_asking_would_end_the_sitting_and_is_left_to_the_page_of_the_request(page: Client, waiting: Waiting) -> None:
    approval = waiting()
    page.post("/inbox/focus/begin/")

    assert "do=ask" not in page.get(address(approval)).content.decode()
    assert "do=ask" in page.get(f"/approvals/{approval.pk}/").content.decode()
