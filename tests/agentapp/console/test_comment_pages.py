"""Comments where people read and write them: next to the request, and over the API."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agentapp import actions, auth
from agentapp.models import ApiToken
from approvals import comments
from approvals.models import Approval, Comment

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]


def say(client: Client, approval: Approval, text: str) -> str:
    response = client.post(f"/approvals/{approval.pk}/comments/", {"text": text}, follow=True)
    return str(response.content.decode())


def section(html: str) -> str:
    return html.split('id="comments"')[1].split("</section>")[0]


def test_a_comment_stands_beside_the_request_the_newest_last(page: Client, waiting: Waiting, marco: User) -> None:
    approval = waiting()
    actions.post_comment(approval.pk, "First <b>word</b>\nsecond line", marco)
    html = section(say(page, approval, "Then mine."))
    assert "First &lt;b&gt;word&lt;/b&gt;\nsecond line" in html
    assert html.index("Marco Reyes") < html.index("Dana Whitfield")
    assert html.index("First") < html.index("Then mine.")
    response = page.post(f"/approvals/{approval.pk}/comments/", {"text": "No script."})
    assert response["Location"] == f"/approvals/{approval.pk}/#comments"


def test_who_comments_in_focus_mode_stays_there(page: Client, waiting: Waiting, dana: User) -> None:
    approval = waiting()
    actions.claim_request(approval.pk, dana)
    focus = page.get(f"/inbox/focus/{approval.pk}/").content.decode()
    assert '<input type="hidden" name="next" value="focus" form="comment">' in focus
    assert f'id="comment" method="post" action="/approvals/{approval.pk}/comments/"' in section(focus)
    response = page.post(f"/approvals/{approval.pk}/comments/", {"text": "Later.", "next": "focus"})
    assert response["Location"] == f"/inbox/focus/{approval.pk}/#comments"


def test_the_column_that_is_fetched_again_has_it(page: Client, waiting: Waiting) -> None:
    approval = waiting()
    say(page, approval, "Look at the receipt.")
    assert "Look at the receipt." in page.get(f"/approvals/{approval.pk}/side/").content.decode()


def test_a_decided_request_takes_comments(page: Client, waiting: Waiting) -> None:
    approval = waiting()
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))
    assert "Went well." in section(say(page, approval, "Went well."))


def test_the_author_reads_whom_it_did_not_tell(page: Client, waiting: Waiting, marco: User, otto: User) -> None:
    approval = waiting()
    html = section(say(page, approval, "@marco @otto @ghost"))
    assert "Told Marco Reyes. Not told: otto and ghost, who may not see this request." in html
    assert "Told" not in section(page.get(f"/approvals/{approval.pk}/").content.decode())


def test_whom_it_told_stays_in_the_column_that_is_fetched_again(page: Client, waiting: Waiting, marco: User) -> None:
    approval, other = waiting(), waiting()
    say(page, approval, "@marco Look at the receipt.")
    part = {"HX-Request": "true"}
    for _ in range(2):
        assert "Told Marco Reyes." in section(
            page.get(f"/approvals/{approval.pk}/side/", headers=part).content.decode()
        )
    page.get(f"/approvals/{approval.pk}/", headers=part)
    assert "Told" not in section(page.get(f"/approvals/{other.pk}/side/", headers=part).content.decode())
    page.get(f"/approvals/{approval.pk}/")
    assert "Told" not in section(page.get(f"/approvals/{approval.pk}/side/", headers=part).content.decode())


def test_what_is_no_comment_comes_back_with_what_was_typed(page: Client, waiting: Waiting) -> None:
    approval = waiting()
    typed = "x" * (comments.MAX_CHARS + 1)
    response = page.post(f"/approvals/{approval.pk}/comments/", {"text": typed})
    assert response.status_code == 422
    assert f">{typed}</textarea>" in response.content.decode()
    assert page.get(f"/approvals/{approval.pk}/comments/").status_code == 405
    assert not Comment.objects.exists()


def test_one_comment_too_many_comes_back_with_what_was_typed(
    page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comments, "MAX_PER_MINUTE", 1)
    approval = waiting()
    say(page, approval, "First.")
    response = page.post(f"/approvals/{approval.pk}/comments/", {"text": "And another thing"})
    html = response.content.decode()
    assert response.status_code == 429
    assert ">And another thing</textarea>" in html
    assert "More than 1 comments in a minute. Wait a moment, then send it again." in html
    assert Comment.objects.count() == 1


def test_the_page_shows_the_latest_and_leads_to_those_before(
    page: Client, waiting: Waiting, marco: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comments, "SHOWN", 2)
    approval = waiting()
    for number in range(4):
        actions.post_comment(approval.pk, f"Number {number}", marco)
    here, link = f"/approvals/{approval.pk}/", f"/approvals/{approval.pk}/?comments=all#comments"
    for path in (here, f"{here}side/"):
        html = page.get(path).content.decode()
        assert f'2 earlier comments. <a class="txt" href="{link}">Show all</a>' in html
        assert ["Number 1" in html, "Number 2" in html, "Number 3" in html] == [False, True, True]
        everything = page.get(f"{path}?comments=all").content.decode()
        assert all(f"Number {number}" in everything for number in range(4))
        assert "earlier comments" not in everything
        # The part that is fetched again after a change also shows all.
        assert f'hx-get="{here}side/?comments=all"' in everything


def test_who_may_not_see_the_request_reads_and_writes_nothing(waiting: Waiting, marco: User, otto: User) -> None:
    approval = waiting(groups=(Group.objects.create(name="finance").pk,))
    for user in (marco, otto):
        client = Client()
        client.force_login(user)
        assert client.post(f"/approvals/{approval.pk}/comments/", {"text": "Hello."}).status_code == 404
    assert not Comment.objects.exists()


def test_comments_are_no_evidence(page: Client, waiting: Waiting) -> None:
    approval = waiting()
    say(page, approval, "ZEBRA says so")
    html = page.get(f"/approvals/{approval.pk}/").content.decode()
    assert html.count("ZEBRA") == 1
    assert "ZEBRA" not in page.get(f"/approvals/{approval.pk}/evidence/").content.decode()
    assert "ZEBRA" not in page.get(f"/runs/{approval.run_id}/").content.decode()
    assert "ZEBRA" not in page.get(f"/runs/{approval.run_id}/chat/").content.decode()


def test_a_thread_costs_one_query(
    page: Client, waiting: Waiting, marco: User, django_assert_max_num_queries: Any
) -> None:
    approval = waiting()
    for number in range(8):
        actions.post_comment(approval.pk, f"Number {number}", marco)
    page.get(f"/approvals/{approval.pk}/")
    with django_assert_max_num_queries(12):
        page.get(f"/approvals/{approval.pk}/")


class TestTheApi:
    def call(self, user: User, approval: Approval, text: Any = None, scopes: str = "approvals:comment") -> Any:
        _, secret = auth.issue_token(user, "test", scopes.split(), actor="system")
        headers = {"Authorization": f"Bearer {secret}"}
        path = f"/api/v1/approvals/{approval.pk}/comments"
        if text is None:
            return Client().get(path, headers=headers)
        return Client().post(path, json.dumps({"text": text}), "application/json", headers=headers)

    def test_it_adds_and_lists(self, waiting: Waiting, dana: User, marco: User, otto: User) -> None:
        approval = waiting()
        added = self.call(dana, approval, "@marco and @otto, look.")
        assert added.status_code == 201
        assert added.json()["not_told"] == ["otto"]
        listed = self.call(marco, approval, scopes="approvals:read")
        assert [(one["author"]["username"], one["text"]) for one in listed.json()["items"]] == [
            ("dana", "@marco and @otto, look.")
        ]

    def test_it_needs_its_scope_and_the_sight_of_the_request(self, waiting: Waiting, dana: User, otto: User) -> None:
        approval = waiting()
        assert self.call(dana, approval, "Hello.", "approvals:read").status_code == 403
        assert self.call(dana, approval, scopes="approvals:comment").status_code == 403
        assert self.call(otto, approval, "Hello.").status_code == 404
        assert self.call(otto, approval, scopes="approvals:read").status_code == 404
        assert not Comment.objects.exists()

    def test_one_too_many_is_for_later(self, waiting: Waiting, dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comments, "MAX_PER_MINUTE", 1)
        approval = waiting()
        assert self.call(dana, approval, "First.").status_code == 201
        refused = self.call(dana, approval, "Second.")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_comments")

    def test_a_token_that_another_has_made_says_nothing_in_somebody_s_name(
        self, waiting: Waiting, dana: User, ada: User
    ) -> None:
        approval = waiting()
        _, secret = auth.issue_token(dana, "test", ["approvals:comment"], "system", issued_by=dana)
        ApiToken.objects.update(issued_by=ada)  # like an earlier token
        answer = Client().post(
            f"/api/v1/approvals/{approval.pk}/comments",
            json.dumps({"text": "I agree."}),
            "application/json",
            headers={"Authorization": f"Bearer {secret}"},
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
        assert auth.ONLY_FOR_ONESELF in answer.json()["detail"]
        assert not Comment.objects.exists()

    @pytest.mark.parametrize("text", ["", "  ", "x" * 2001, 7])
    def test_it_refuses_what_is_no_comment(self, waiting: Waiting, dana: User, text: Any) -> None:
        assert self.call(dana, waiting(), text).status_code == 422
