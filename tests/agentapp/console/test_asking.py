"""Before a decision: questions and answers on the page, who else is looking, masked values, critical calls."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from agentapp import actions
from agentapp.models import Tool
from approvals import decisions, ledger
from approvals.models import Approval, Claim, Event, Question, Viewer
from approvals.sealed import sealed
from tests.e2e.conftest import PASSWORD

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]


def html_of(client: Client, approval: Approval, **query: str) -> str:
    response = client.get(f"/approvals/{approval.pk}/", query)
    assert response.status_code == 200
    return response.content.decode()


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def answer(question: Question, text: str) -> None:
    with ledger.transaction():
        assert decisions.answer(question.pk, text)


class TestAsking:
    def test_one_asks_what_the_tool_offers_or_something_else(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        Tool.objects.update(questions=["Was a replacement offered?"])
        html = html_of(page, approval, do="ask")
        assert 'id="ask-dialog" aria-labelledby="ask-title" open' in html
        assert 'value="Was a replacement offered?"' in html

        for fields in ({"offered": "Was a replacement offered?", "text": ""}, {"text": "And a photo?"}):
            response = page.post(f"/approvals/{approval.pk}/ask/", fields)
            assert response["Location"] == f"/approvals/{approval.pk}/#evidence"
            question = Question.objects.get(closed_at=None)
            answer(question, "No.")
        assert [question.text for question in Question.objects.all()] == ["Was a replacement offered?", "And a photo?"]

    @pytest.mark.parametrize("stored", [5, "Why?", True, {"Why?": 1}, [5, "", " "]])
    def test_questions_that_are_no_list_of_texts_are_not_offered(
        self, page: Client, waiting: Waiting, stored: object
    ) -> None:
        approval = waiting()
        Tool.objects.update(questions=stored)
        html = html_of(page, approval, do="ask")
        assert "Your question" in html
        assert 'name="offered"' not in html
        assert page.get("/inbox/").status_code == 200

    def test_an_empty_question_comes_back_with_the_dialog(self, page: Client, waiting: Waiting) -> None:
        response = page.post(f"/approvals/{waiting().pk}/ask/", {"text": " "})
        assert response.status_code == 422
        assert "Write what you want to know." in response.content.decode()

    def test_while_it_waits_the_page_says_so_and_that_the_clock_stands(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(expires_seconds=1800)
        page.post(f"/approvals/{approval.pk}/ask/", {"text": "Why?"})
        text = text_of(html_of(page, approval))
        for words in ("Waiting for an answer", "“Why?”", "The clock is paused", "29:5", "Approve $214.50"):
            assert words in text
        assert "Ask the agent" not in text

    def test_the_answer_is_evidence_marked_as_a_claim_and_held_against_the_rest(
        self, page: Client, waiting: Waiting, dana: User
    ) -> None:
        approval = waiting()
        answer(actions.ask_agent(approval.pk, "How much?", dana), "She paid $214.50. She wants $300.00.")
        html = page.get(f"/approvals/{approval.pk}/evidence/").content.decode()
        assert 'id="e3"' in html
        assert "A claim, not a fact" in html
        assert re.search(r'She paid \$214\.50&nbsp;<a class="ref" href="#e2">', html)
        assert re.search(r"She wants \$300\.00\. <span class=\"ref none\"", html)

    def test_an_answer_that_never_came_says_so(self, page: Client, waiting: Waiting, dana: User) -> None:
        approval = waiting()
        question = actions.ask_agent(approval.pk, "How much?", dana)
        with ledger.transaction():
            decisions.go_on(question.pk, "no answer came in time")
        text = text_of(html_of(page, approval))
        assert "No answer came" in text
        assert "No answer came; the clock goes on" in text

    def test_who_started_the_run_answers_on_the_same_page(
        self, page: Client, waiting: Waiting, sam: User, dana: User
    ) -> None:
        approval = waiting()
        question = actions.ask_agent(approval.pk, "Did you promise it?", dana)
        assert "in the agent’s place" not in html_of(page, approval)
        started = browser_of(sam)
        assert "Answer “Did you promise it?” in the agent’s place" in html_of(started, approval)
        url, which = f"/approvals/{approval.pk}/answer/", {"question": str(question.pk)}
        assert page.post(url, {"text": "Yes.", **which}).status_code == 403
        assert started.post(url, {"text": "I did.", **which}).status_code == 302
        assert "Answered by Sam Operator" in text_of(html_of(page, approval))
        assert started.post(url, {"text": "No.", **which}).status_code == 403

    def test_a_second_question_waits_for_the_first(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        actions.ask_agent(approval.pk, "Why?", marco)
        response = page.post(f"/approvals/{approval.pk}/ask/", {"text": "When?"})
        assert response.status_code == 409
        assert "Nothing was done." in response.content.decode()

    def test_a_question_and_an_answer_of_many_lines_are_kept_whole(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        # A browser sends each line break as two characters, and counts it as one.
        assert page.post(f"/approvals/{approval.pk}/ask/", {"text": "a\r\n" * 999 + "ab"}).status_code == 302
        question = Question.objects.get()
        answer(question, "a\r\n" * 3999 + "ab")
        question.refresh_from_db()
        assert (question.text == "a\n" * 999 + "ab", question.answer == "a\n" * 3999 + "ab") == (True, True)
        said = Event.objects.get(type="approval.answered").data["answer"]
        assert said == sealed(question.answer, question.salt)

    def test_nobody_else_can_ask_or_answer(self, waiting: Waiting, otto: User, mia: User, dana: User) -> None:
        approval = waiting()
        question = actions.ask_agent(approval.pk, "Why?", dana)
        for path in ("ask/", "answer/", "presence/", "reveal/"):
            fields = {"text": "x", "question": str(question.pk)}
            assert browser_of(otto).post(f"/approvals/{approval.pk}/{path}", fields).status_code == 404
        assert browser_of(mia).post(f"/approvals/{approval.pk}/ask/", {"text": "x"}).status_code == 403


class TestCritical:
    def approve(self, page: Client, approval: Approval, **fields: Any) -> Any:
        approval.refresh_from_db()
        return page.post(f"/approvals/{approval.pk}/decide/", posted(approval, **fields))

    def test_without_the_word_and_a_sign_in_nothing_is_decided_and_nothing_typed_is_lost(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting(risk="critical", approvals_needed=2)
        fields = {"shown": "arg.amount", "arg.amount": "184.50"}
        response = self.approve(page, approval, **fields)
        assert response.status_code == 422
        html = response.content.decode()
        assert 'id="approve-dialog" aria-labelledby="approve-title" open' in html
        assert "Type <b>$184.50</b> to confirm" in html
        response = self.approve(page, approval, confirm="$184.50", **fields)
        assert response.status_code == 403
        html = response.content.decode()
        assert 'value="184.50"' in html
        assert 'name="confirm" form="decide" autocomplete="off" value="$184.50"' in html
        assert not approval.decisions.exists()

    def test_with_both_it_is_decided_and_the_decision_says_how(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(risk="critical", approvals_needed=2)
        page.post("/reauthenticate/", {"password": PASSWORD, "next": "/inbox/"})
        assert self.approve(page, approval, confirm="$214.50").status_code == 302
        assert approval.decisions.get().assurance == "password"

    def test_the_word_is_typed_again_for_what_changed(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(risk="critical", approvals_needed=2)
        page.post("/reauthenticate/", {"password": PASSWORD, "next": "/inbox/"})
        response = self.approve(page, approval, confirm="$214.50", version=99)
        assert response.status_code == 409
        assert 'name="confirm" form="decide" autocomplete="off" value="" required' in response.content.decode()

    def test_a_wrong_password_renews_nothing(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(risk="critical", approvals_needed=2)
        assert page.post("/reauthenticate/", {"password": "guess", "next": "/inbox/"}).status_code == 422
        assert self.approve(page, approval, confirm="$214.50").status_code == 403

    def test_the_dialog_says_what_is_still_needed_and_leads_there_and_back(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting(risk="critical", approvals_needed=2)
        html = html_of(page, approval, do="approve")
        assert "Still needed: confirm that it is you." in html
        way = f"/reauthenticate/?next=%2Fapprovals%2F{approval.pk}%2F%3Fdo%3Dapprove"
        assert f'href="{way}"' in html
        back = page.post(way, {"password": PASSWORD, "next": f"/approvals/{approval.pk}/?do=approve"})["Location"]
        assert back == f"/approvals/{approval.pk}/?do=approve"
        text = text_of(page.get(back).content.decode())
        assert "Signed in again just now. This is valid for another 4:5" in text
        assert "Still needed" not in text

    def test_without_script_nothing_in_the_dialog_is_shut(self, page: Client, waiting: Waiting) -> None:
        html = html_of(page, waiting(risk="critical", approvals_needed=2), do="approve")
        assert "disabled" not in html[html.index('id="approve-dialog"') :].partition("</dialog>")[0]

    def test_what_is_still_needed_can_be_asked_for_alone(
        self, page: Client, waiting: Waiting, settings: Any, otto: User
    ) -> None:
        approval = waiting(risk="critical", approvals_needed=2)
        here = f"/approvals/{approval.pk}/assurance/"
        text = text_of(page.get(here).content.decode())
        assert "Still needed" in text
        assert "are up" not in text
        page.post("/reauthenticate/", {"password": PASSWORD})
        response = page.get(here)
        assert "data-assured" in response.content.decode()
        assert "no-store" in response["Cache-Control"]
        assert f"{here}?was=1" in response.content.decode()
        settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0
        response = page.get(f"{here}?was=1")
        assert "data-assured" not in response.content.decode()
        assert "The five minutes are up. Nothing was decided." in text_of(response.content.decode())
        assert browser_of(otto).get(here).status_code == 404

    def test_a_passkey_is_offered_to_whoever_has_one(self, page: Client, waiting: Waiting, dana: User) -> None:
        approval = waiting(risk="critical", approvals_needed=2)
        assert "Use passkey" not in html_of(page, approval)
        Authenticator.objects.create(user=dana, type=Authenticator.Type.WEBAUTHN, data={})
        assert "Use passkey" in html_of(page, approval)
        assert "Use passkey" not in html_of(page, waiting(risk="high"))

    def test_one_does_not_come_back_to_somewhere_else(self, page: Client) -> None:
        response = page.post("/reauthenticate/", {"password": PASSWORD, "next": "https://evil.example/"})
        assert response["Location"] == "/"


class TestPresence:
    def test_others_who_look_are_named_with_what_they_do(
        self, page: Client, waiting: Waiting, marco: User, dana: User
    ) -> None:
        approval = waiting()
        here = f"/approvals/{approval.pk}/presence/"
        browser_of(marco).post(here, {"doing": "editing"})
        text = text_of(page.post(here, {"doing": "viewing"}).content.decode())
        assert "Marco Reyes is editing" in text
        assert "Dana" not in text

    def test_who_has_not_been_heard_of_for_a_while_has_gone(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        here = f"/approvals/{approval.pk}/presence/"
        browser_of(marco).post(here, {"doing": "away"})
        Viewer.objects.update(seen_at=timezone.now() - timedelta(seconds=50))
        assert "Marco" not in page.post(here, {"doing": "nonsense"}).content.decode()
        assert Viewer.objects.get(user__username="dana").doing == "viewing"

    def test_looking_alone_leaves_no_event(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        before = Event.objects.count()
        page.post(f"/approvals/{approval.pk}/presence/", {"doing": "viewing"})
        assert Event.objects.count() == before


class TestMasked:
    def test_it_is_shown_once_to_who_may_decide_and_the_record_says_to_whom(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting(secret_fields=["note"])
        assert "sorry about the kettle" not in html_of(page, approval)
        response = page.post(f"/approvals/{approval.pk}/reveal/", {"reveal": "note"})
        assert "sorry about the kettle" in response.content.decode()
        assert "no-store" in response["Cache-Control"]
        assert "sorry about the kettle" not in html_of(page, approval)
        event = Event.objects.get(type="approval.revealed")
        assert (event.data["name"], event.actor.endswith(":dana")) == ("note", True)

    def test_the_right_to_decide_is_not_enough(self, page: Client, waiting: Waiting, dana: User) -> None:
        approval = waiting(secret_fields=["note"])
        assert "/reveal/" in html_of(page, approval)
        Group.objects.get(name="approver").permissions.remove(Permission.objects.get(codename="reveal_secret"))
        assert "/reveal/" not in html_of(page, approval)
        response = page.post(f"/approvals/{approval.pk}/reveal/", {"reveal": "note"})
        assert (response.status_code, "sorry about" in response.content.decode()) == (403, False)
        assert not Event.objects.filter(type="approval.revealed").exists()

    def test_nobody_else_sees_it_and_nothing_else_is_shown(
        self, page: Client, waiting: Waiting, mia: User, sam: User
    ) -> None:
        approval = waiting(secret_fields=["note"])
        for client, status in ((browser_of(mia), 403), (browser_of(sam), 403)):
            response = client.post(f"/approvals/{approval.pk}/reveal/", {"reveal": "note"})
            assert (response.status_code, "sorry about" in response.content.decode()) == (status, False)
        assert page.post(f"/approvals/{approval.pk}/reveal/", {"reveal": "amount"}).status_code == 404
        assert not Event.objects.filter(type="approval.revealed").exists()


class TestBeside:
    def test_the_rule_says_what_it_looked_at_and_what_was_there(self, page: Client, waiting: Waiting) -> None:
        values = ({"name": "args.amount", "value": 214.5}, {"name": "args.discount"})
        text = text_of(html_of(page, waiting(condition="args.amount > 100.0", rule_values=values)))
        assert "args.amount &gt; 100.0 args.amount was 214.5 args.discount was not given" in text

    def test_who_may_decide_is_named_and_the_starter_is_not(
        self, page: Client, waiting: Waiting, marco: User, sam: User
    ) -> None:
        text = text_of(html_of(page, waiting()))
        assert "Who may decide DW Dana Whitfield you MR Marco Reyes" in text

    def test_a_claim_of_somebody_else_is_advice(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        now = timezone.now()
        Claim.objects.create(approval=approval, user=marco, until=now + timedelta(minutes=10), claimed_at=now)
        text = text_of(html_of(page, approval))
        assert "Claimed by Marco Reyes. You may still decide." in text
        assert "Approve $214.50" not in text
        assert "Approve $214.50" in text_of(html_of(page, approval, anyway="1"))
        Claim.objects.update(until=now)
        assert "Claimed by" not in text_of(html_of(page, approval))

    def test_evidence_that_is_gone_leaves_its_digest_and_when_it_went(self, page: Client, waiting: Waiting) -> None:
        gone = {"n": 1, "kind": "result", "title": "get_order", "trust": "trusted_system", "sha256": "ab" * 32,
                "deleted_at": "2026-11-20T10:00:00+00:00"}  # fmt: skip
        text = text_of(html_of(page, waiting(evidence=[gone])))
        assert f"Deleted by retention on 20 November 2026. Its SHA-256 was {'ab' * 32}" in text

    def test_when_the_tool_has_changed_the_agent_can_be_asked_to_propose_again(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting()
        Tool.objects.update(version="2" * 64)
        html = html_of(page, approval)
        assert "Ask to propose again" in html
        message = re.search(r'name="message" value="([^"]+)"', html)
        assert message is not None
        page.post(f"/approvals/{approval.pk}/decide/", posted(approval, type="respond", message=message[1]))
        approval.refresh_from_db()
        assert approval.state == Approval.State.RESPONDED
