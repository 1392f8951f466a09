"""What is shown if there is nothing to show: named, in the console's look, and nothing lost."""

import logging
import re
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client, RequestFactory

from agentapp.console import problems, runs

PART = {"HX-Request": "true", "HX-Request-Type": "partial"}


def test_a_page_that_needs_a_right_names_it_who_has_it_and_who_can_give_it(
    client: Client, dana: User, ada: User, mia: User
) -> None:
    client.force_login(dana)
    answer = client.get("/switches/")
    html = answer.content.decode()

    assert answer.status_code == 403
    assert "This is not open to you" in html
    assert "the right to <b>engage and release kill switches</b>" in html
    assert "The roles admin and manager have it. Ada Admin can give it to you." in re.sub(r"\s+", " ", html)
    assert '<nav class="nav" aria-label="Main">' in html


def test_the_admin_names_what_it_needs_and_who_can_give_it(client: Client, dana: User, ada: User) -> None:
    client.force_login(dana)
    answer = client.get("/admin/", follow=True)
    html = re.sub(r"\s+", " ", answer.content.decode())

    assert answer.status_code == 403
    assert "the right to <b>open the administration</b>. Ada Admin can give it to you." in html
    assert "a right that you do not have" not in html


@pytest.mark.parametrize(
    ("path", "right"), [("/admin/approvals/rule/", "view rule"), ("/admin/agentapp/agent/add/", "add agent")]
)
def test_a_page_of_the_admin_names_the_right_that_staff_lack(
    client: Client, dana: User, ada: User, path: str, right: str
) -> None:
    User.objects.filter(pk=dana.pk).update(is_staff=True)
    client.force_login(dana)
    answer = client.get(path)
    html = re.sub(r"\s+", " ", answer.content.decode())

    assert answer.status_code == 403
    assert f"the right to <b>{right}</b>. The role admin has it. Ada Admin can give it to you." in html


BUTTONS = {
    "/approvals/{id}/ask/": "/approvals/{id}/",
    "/approvals/{id}/reveal/": "/approvals/{id}/",
    "/approvals/{id}/claim/renew/": "/approvals/{id}/",
    "/inbox/focus/{id}/skip/": "/approvals/{id}/",
    "/runs/{id}/pause/": "/runs/{id}/",
    "/runs/{id}/chat/stop/": "/runs/{id}/",
    "/settings/sessions/7/end/": "/settings/sessions/",
    "/grants/{id}/revoke/": "/grants/{id}/",
}


@pytest.mark.parametrize("path", BUTTONS)
def test_opening_what_a_button_sends_to_says_that_nothing_was_done_and_leads_to_its_page(
    page: Client, path: str
) -> None:
    some = uuid.uuid4()
    answer = page.get(path.format(id=some))
    html = answer.content.decode()

    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert "There is nothing to open here" in html
    assert "nothing was done or changed" in html
    assert f'href="{BUTTONS[path].format(id=some)}">' in html
    assert '<nav class="nav" aria-label="Main">' in html


def test_who_signs_in_on_the_way_to_what_a_button_sends_to_comes_to_its_page(client: Client, dana: User) -> None:
    path = f"/approvals/{uuid.uuid4()}/ask/"
    sent = client.get(path)
    assert sent["Location"] == f"/login/?next={path}"
    client.force_login(dana)
    assert f'href="{path.removesuffix("ask/")}">' in client.get(path).content.decode()


def test_a_part_of_a_page_that_is_none_is_said_there_and_not_tried_again(page: Client) -> None:
    answer = page.get(f"/approvals/{uuid.uuid4()}/ask/", headers=PART)

    assert answer.status_code == 405
    assert "There is nothing to open here" in answer.content.decode()
    assert "Try again" not in answer.content.decode()
    assert "<nav" not in answer.content.decode()


def test_what_is_sent_to_a_page_that_takes_nothing_is_refused_without_a_page(page: Client) -> None:
    answer = page.post("/counts/")
    assert (answer.status_code, answer.content) == (405, b"")


# Django has a page of its own for this where DEBUG is on, as in the demo.
in_the_demo_too = pytest.mark.parametrize("debug", [False, True], ids=["in production", "in the demo"])


@in_the_demo_too
def test_a_page_that_is_not_there_says_so_in_the_frame_of_who_is_signed_in(
    page: Client, settings: Any, debug: bool
) -> None:
    settings.DEBUG = debug
    answer = page.get("/nowhere/")

    assert answer.status_code == 404
    assert "There is nothing here" in answer.content.decode()
    assert '<nav class="nav" aria-label="Main">' in answer.content.decode()


@in_the_demo_too
@pytest.mark.parametrize("section", ["approvals", "runs"])
def test_what_may_not_be_seen_and_what_is_not_there_are_answered_alike(
    page: Client, settings: Any, section: str, debug: bool
) -> None:
    settings.DEBUG = debug
    answer = page.get(f"/{section}/0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11/")

    assert answer.status_code == 404
    assert "or it is not for you to see" in answer.content.decode()


@in_the_demo_too
@pytest.mark.django_db
def test_who_is_not_signed_in_sees_the_same_without_a_frame(client: Client, settings: Any, debug: bool) -> None:
    settings.DEBUG = debug
    answer = client.get("/nowhere/")

    assert answer.status_code == 404
    assert "There is nothing here" in answer.content.decode()
    assert "<nav" not in answer.content.decode()


def test_a_part_of_a_page_gets_a_callout_that_offers_to_try_again(page: Client) -> None:
    answer = page.get("/runs/0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11/", headers=PART)
    html = answer.content.decode()

    assert answer.status_code == 404
    assert html.lstrip().startswith('<div class="callout bad" role="alert" data-failed>')
    assert "There is no such run" in html
    assert "Try again" in html


@pytest.mark.django_db
def test_a_request_that_cannot_be_read_says_that_nothing_was_changed() -> None:
    answer = problems.bad_request(RequestFactory().get("/"), SuspiciousOperation("x"))

    assert answer.status_code == 400
    assert "Nothing was changed" in answer.content.decode()


class TestForms:
    """Posts that arrive under another session than the one in which their page was shown."""

    def test_a_token_of_an_earlier_session_sends_nothing_and_leads_back(self, dana: User) -> None:
        browser = Client(enforce_csrf_checks=True)
        browser.force_login(dana)
        browser.get("/inbox/")
        answer = browser.post(
            "/runs/new/", {"csrfmiddlewaretoken": "x" * 64}, headers={"Referer": "http://testserver/inbox/?view=mine"}
        )
        html = answer.content.decode()

        assert answer.status_code == 403
        assert "Your session has changed" in html
        assert "Nothing was sent" in html
        assert 'href="/inbox/?view=mine"' in html

    def test_a_browser_that_keeps_no_cookies_is_told_so(self, dana: User) -> None:
        browser = Client(enforce_csrf_checks=True)

        assert "keeps no cookies" in browser.post("/login/", {"username": "dana"}).content.decode()

    @pytest.mark.parametrize(
        ("referrer", "back"),
        [
            ("http://testserver/approvals/1/?do=reject", "/login/?next=/approvals/1/%3Fdo%3Dreject"),
            ("https://elsewhere.example/approvals/1/", "/login/?next=/"),
            ("", "/login/?next=/"),
        ],
    )
    @pytest.mark.django_db
    def test_who_posts_signed_out_comes_back_to_the_page_they_posted_from(
        self, client: Client, referrer: str, back: str
    ) -> None:
        assert client.post("/runs/new/", headers={"Referer": referrer})["Location"] == back

    @pytest.mark.django_db
    def test_a_part_asked_for_signed_out_is_not_answered_with_the_page_to_sign_in(self, client: Client) -> None:
        answer = client.get("/inbox/rows/", headers=PART)

        assert answer.status_code == 401
        assert "data-failed" in answer.content.decode()

    @pytest.mark.django_db
    def test_a_page_opened_signed_out_leads_to_sign_in_and_back(self, client: Client) -> None:
        assert client.get("/runs/?state=failed")["Location"] == "/login/?next=/runs/%3Fstate%3Dfailed"


class TestBroken:
    """Our own failure."""

    @pytest.fixture
    def failing(self, page: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
        def fail(*_: object) -> None:
            raise OperationalError("password=hunter2")

        monkeypatch.setattr(runs, "_page", fail)
        page.raise_request_exception = False
        return page

    def test_it_names_a_reference_that_is_also_in_the_log(
        self, failing: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.ERROR, "agentapp.console.problems"):
            answer = failing.get("/runs/")
        html = answer.content.decode()
        reference = re.search(r"E-[0-9A-F]{8}", html)

        assert answer.status_code == 503
        assert reference is not None
        [line] = [record.getMessage() for record in caplog.records if record.name == "agentapp.console.problems"]
        assert line == f"{reference[0]}: GET /runs/ failed with OperationalError"
        assert "hunter2" not in html
        assert "default-src 'none'" in answer["Content-Security-Policy"]
        assert "The database does not answer" in html
        assert "nothing is approved by itself" in html

    def test_a_database_that_is_away_is_asked_once(self, page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each time may take seconds."""
        asked = []

        def away(*_: object) -> None:
            asked.append(1)
            raise OperationalError

        page.raise_request_exception = False
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(BaseDatabaseWrapper, "cursor", away)
            assert page.get("/runs/").status_code == 503
        assert len(asked) == 1

    @pytest.mark.postgresql
    @pytest.mark.django_db(transaction=True)
    def test_what_took_the_database_too_long_is_said_to(self, page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        def search(*_: object) -> None:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 10")
                cursor.execute("SELECT pg_sleep(60)")

        monkeypatch.setattr(runs, "_page", search)
        page.raise_request_exception = False
        answer = page.get("/runs/")

        assert answer.status_code == 503
        assert "This took too long" in answer.content.decode()
        assert "does not answer" not in answer.content.decode()

    def test_what_is_not_the_database_is_our_own_failure(self, page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("password=hunter2")

        monkeypatch.setattr(runs, "_page", fail)
        page.raise_request_exception = False
        answer = page.get("/runs/")

        assert answer.status_code == 500
        assert "This did not work" in answer.content.decode()

    def test_a_part_gets_a_callout_with_the_reference(self, failing: Client) -> None:
        html = failing.get("/runs/", headers=PART).content.decode()

        assert "data-failed" in html
        assert re.search(r"Reference <code>E-[0-9A-F]{8}", html)
        assert "<html" not in html

    @pytest.mark.django_db
    def test_it_asks_the_database_nothing(self, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
        with django_assert_num_queries(0):
            answer = problems.broken(RequestFactory().get("/runs/"))

        assert answer.status_code == 500
        assert "This did not work" in answer.content.decode()

    def test_it_is_shown_in_words_where_even_its_page_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> str:
            raise RuntimeError("no templates")

        monkeypatch.setattr(problems, "render_to_string", fail)
        answer = problems.broken(RequestFactory().get("/runs/"))

        assert answer["Content-Type"] == "text/plain"
        assert re.search(r"E-[0-9A-F]{8}", answer.content.decode())
