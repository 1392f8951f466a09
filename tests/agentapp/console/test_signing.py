"""Confirming who one is in order to approve, and signing a decision with a passkey, on the pages."""

import json
import re
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.internal.flows import login
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from fido2.utils import websafe_decode, websafe_encode

from agentapp.console import signing
from approvals import delegations, signatures
from approvals.delegations import Scope
from approvals.detectors import MASK, without_secrets
from approvals.models import Approval, Decision
from approvals.standing import Refusal
from tests.passkeys import Passkey

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]
CHANGED = {"shown": "arg.amount", "arg.amount": "184.50"}


@pytest.fixture
def passkey(dana: User) -> Passkey:
    """Dana's."""
    made = Passkey()
    made.keep_for(dana)
    return made


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def show(client: Client, *kinds: str, ago: float = 0) -> None:
    """Record that a session has just confirmed these."""
    session = client.session
    session[login.AUTHENTICATION_METHODS_SESSION_KEY] = [
        {"method": "mfa" if kind else "password", "type": kind, "at": time.time() - ago} for kind in kinds
    ]
    session[login._AUTHENTICATION_METHODS_USER_SESSION_KEY] = session["_auth_user_id"]
    session.save()


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def dialog_of(client: Client, approval: Approval) -> str:
    html = client.get(f"/approvals/{approval.pk}/?do=approve").content.decode()
    return html[html.index('id="approve-dialog"') :].partition("</dialog>")[0]


def challenge_of(client: Client, approval: Approval, form: dict[str, Any]) -> bytes:
    """What the page is asked to have signed for this form."""
    response = client.post(f"/approvals/{approval.pk}/sign/", form)
    assert response.status_code == 200, response.content
    asked = json.loads(response.content)["request_options"]["publicKey"]
    assert asked["userVerification"] == "required"
    return websafe_decode(asked["challenge"])


def signed(client: Client, approval: Approval, passkey: Passkey, **fields: Any) -> dict[str, Any]:
    """The form as the page sends it after a passkey has signed it."""
    approval.refresh_from_db()
    form = posted(approval, **fields)
    return {**form, "assertion": json.dumps(passkey.answer(challenge_of(client, approval, form)))}


def decide(client: Client, approval: Approval, form: dict[str, Any]) -> Any:
    return client.post(f"/approvals/{approval.pk}/decide/", form)


class TestSigning:
    def test_a_decision_is_signed_and_the_signature_kept(
        self, page: Client, waiting: Waiting, passkey: Passkey
    ) -> None:
        approval = waiting(assurance_needed="signed")
        assert decide(page, approval, signed(page, approval, passkey)).status_code == 302
        kept = Decision.objects.get()
        assert (kept.type, kept.assurance) == ("approve", "signed")
        assert signatures.verify(kept)
        assert Authenticator.objects.get(type="webauthn").last_used_at is not None
        html = page.get(f"/approvals/{approval.pk}/").content.decode()
        assert "Dana Whitfield approved, signed with a passkey" in text_of(html)

    def test_a_passkey_whose_id_looks_like_a_key_signs_too(self, page: Client, waiting: Waiting, dana: User) -> None:
        passkey = Passkey(id=websafe_decode("sk-B5dtTEy46RdV84oStcaeVXKEZbGjI"))
        passkey.keep_for(dana)
        assert without_secrets(websafe_encode(passkey.id)) == MASK
        approval = waiting(assurance_needed="signed")
        form = posted(approval)
        asked = page.post(f"/approvals/{approval.pk}/sign/", form).json()["request_options"]["publicKey"]
        renewing = page.get("/reauthenticate/passkey/").json()["request_options"]["publicKey"]
        assert [one["id"] for one in asked["allowCredentials"]] == [websafe_encode(passkey.id)]
        assert renewing["allowCredentials"] == asked["allowCredentials"]
        assert websafe_encode(passkey.id) in page.get("/reauthenticate/").content.decode()
        assert decide(page, approval, signed(page, approval, passkey)).status_code == 302
        assert signatures.verify(Decision.objects.get())

    def test_an_edit_is_signed_as_it_stands_on_the_form(self, page: Client, waiting: Waiting, passkey: Passkey) -> None:
        approval = waiting(assurance_needed="signed")
        assert decide(page, approval, signed(page, approval, passkey, **CHANGED)).status_code == 302
        kept = Decision.objects.get()
        assert kept.type == "edit"
        assert '"amount":184.5' in kept.arguments_text
        assert f'"action_digest":"{kept.action_digest}"' in kept.signature["statement"]  # type: ignore[index]
        assert signatures.verify(kept)

    def test_what_was_changed_after_signing_is_not_what_was_signed(
        self, page: Client, waiting: Waiting, passkey: Passkey
    ) -> None:
        approval = waiting(assurance_needed="signed")
        form = signed(page, approval, passkey) | CHANGED
        response = decide(page, approval, form)
        assert response.status_code == 403
        html = response.content.decode()
        assert "That is not a signature of this decision" in html
        assert 'value="184.50"' in html
        assert not Decision.objects.exists()

    def test_an_answer_counts_for_one_use_of_one_decision(
        self, page: Client, waiting: Waiting, passkey: Passkey
    ) -> None:
        approval = waiting(assurance_needed="signed", approvals_needed=2)
        form = signed(page, approval, passkey)
        # A refused try uses it up.
        assert decide(page, approval, {**form, **CHANGED}).status_code == 403
        response = decide(page, approval, form)
        assert response.status_code == 403
        assert "over, or that signature was already used. Sign again." in response.content.decode()
        # And it counts for no other decision.
        again = {**form, "decision_id": str(uuid.uuid4())}
        assert decide(page, approval, again).status_code == 403
        assert not Decision.objects.exists()

    def test_a_decision_sent_twice_counts_once(self, page: Client, waiting: Waiting, passkey: Passkey) -> None:
        approval = waiting(assurance_needed="signed")
        form = signed(page, approval, passkey)
        assert [decide(page, approval, form).status_code for _ in range(2)] == [302, 302]
        assert Decision.objects.count() == 1

    def test_a_decision_taken_back_is_signed_anew(self, page: Client, waiting: Waiting, passkey: Passkey) -> None:
        approval = waiting(assurance_needed="signed", hold_seconds=30)
        form = signed(page, approval, passkey)
        decide(page, approval, form)
        page.post(f"/approvals/{approval.pk}/undo/")
        decide(page, approval, form)
        approval.refresh_from_db()
        assert approval.state == Approval.State.PENDING
        decide(page, approval, signed(page, approval, passkey))
        approval.refresh_from_db()
        assert approval.state == Approval.State.APPROVED
        assert signatures.verify_all() == (2, None)

    def test_after_five_minutes_it_is_asked_anew(
        self, page: Client, waiting: Waiting, passkey: Passkey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        approval = waiting(assurance_needed="signed")
        form = signed(page, approval, passkey)
        later = time.time() + signing.SECONDS + 1
        monkeypatch.setattr(signing.time, "time", lambda: later)
        response = decide(page, approval, form)
        assert response.status_code == 403
        assert "The five minutes to sign are over" in response.content.decode()
        assert not Decision.objects.exists()

    def test_a_request_that_changed_meanwhile_is_refused_and_keeps_what_was_typed(
        self, page: Client, waiting: Waiting, passkey: Passkey, marco: User
    ) -> None:
        approval = waiting(assurance_needed="signed", approvals_needed=2)
        form = signed(page, approval, passkey, **CHANGED)
        theirs = Passkey()
        theirs.keep_for(marco)
        other = browser_of(marco)
        assert decide(other, approval, signed(other, approval, theirs)).status_code == 302
        response = decide(page, approval, form)
        assert response.status_code == 409
        assert 'value="184.50"' in response.content.decode()
        assert [decision.user for decision in Decision.objects.all()] == [marco]
        # A page that had not yet heard of it is told before it asks for a passkey.
        assert page.post(f"/approvals/{approval.pk}/sign/", form).status_code == 409

    def test_somebody_elses_passkey_signs_nothing(
        self, page: Client, waiting: Waiting, passkey: Passkey, marco: User
    ) -> None:
        approval = waiting(assurance_needed="signed")
        theirs = Passkey()
        theirs.keep_for(marco)
        response = decide(page, approval, signed(page, approval, theirs))
        assert response.status_code == 403
        assert "That is not a passkey of yours." in response.content.decode()
        # Nor does what they signed for themselves.
        other = browser_of(marco)
        form = signed(other, approval, theirs)
        assert decide(page, approval, form).status_code == 403
        assert not Decision.objects.exists()

    @pytest.mark.parametrize("assertion", ["", "{", "[]", '{"rawId":1}', '{"rawId":"x","response":{}}', "null"])
    def test_what_is_no_signature_decides_nothing(
        self, page: Client, waiting: Waiting, passkey: Passkey, assertion: str
    ) -> None:
        approval = waiting(assurance_needed="signed")
        form = {**signed(page, approval, passkey), "assertion": assertion}
        assert decide(page, approval, form).status_code == 403
        assert not Decision.objects.exists()

    def test_a_passkey_shown_to_sign_in_is_no_signature(self, page: Client, waiting: Waiting, passkey: Passkey) -> None:
        approval = waiting(assurance_needed="signed")
        show(page, "webauthn")
        assert decide(page, approval, posted(approval)).status_code == 403
        assert not Decision.objects.exists()

    def test_rejecting_asks_for_no_signature(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(assurance_needed="signed")
        assert decide(page, approval, posted(approval, type="reject", message="No.")).status_code == 302
        kept = Decision.objects.get()
        assert (kept.type, kept.assurance, kept.signature) == ("reject", "", None)

    def test_the_word_of_a_critical_one_is_checked_before_a_passkey_is_asked(
        self, page: Client, waiting: Waiting, passkey: Passkey, marco: User
    ) -> None:
        approval = waiting(assurance_needed="signed", risk="critical", approvals_needed=2)
        response = page.post(f"/approvals/{approval.pk}/sign/", posted(approval, confirm="no"))
        assert (response.status_code, json.loads(response.content)["code"]) == (422, "confirmation")
        assert decide(page, approval, signed(page, approval, passkey, confirm="$214.50")).status_code == 302
        assert signatures.verify(Decision.objects.get())

    def test_what_is_asked_for_is_seen_by_nobody_who_may_not_see_the_request(
        self, waiting: Waiting, otto: User, passkey: Passkey, page: Client
    ) -> None:
        approval = waiting(assurance_needed="signed")
        here = f"/approvals/{approval.pk}/sign/"
        assert browser_of(otto).post(here, posted(approval)).status_code == 404
        assert page.get(here).status_code == 405
        assert "no-store" in page.post(here, posted(approval))["Cache-Control"]

    def test_a_deputy_signs_with_their_own_passkey(
        self, waiting: Waiting, passkey: Passkey, dana: User, marco: User
    ) -> None:
        finance = Group.objects.create(name="finance")
        dana.groups.add(finance)
        now = timezone.now()
        lent = delegations.begin(dana, marco, now - timedelta(minutes=1), now + timedelta(days=1), Scope([finance.pk]))
        assert not isinstance(lent, Refusal)
        approval = waiting(assurance_needed="signed", groups=(finance.pk,))
        theirs = Passkey()
        theirs.keep_for(marco)
        other = browser_of(marco)
        assert decide(other, approval, signed(other, approval, theirs)).status_code == 302
        kept = Decision.objects.get()
        assert kept.who == "Marco Reyes for Dana Whitfield"
        assert f'"user":{marco.pk}' in kept.signature["statement"]  # type: ignore[index]


class TestLevels:
    @pytest.mark.parametrize(
        ("needed", "kinds", "is_taken"),
        [
            ("password", [""], True),
            ("totp", [""], False),
            ("totp", ["", "totp"], True),
            ("totp", ["recovery_codes"], True),
            ("passkey", ["", "totp"], False),
            ("passkey", ["webauthn"], True),
            ("password", [], False),
        ],
    )
    def test_what_was_shown_in_the_last_five_minutes_counts(
        self, page: Client, waiting: Waiting, needed: str, kinds: list[str], is_taken: bool
    ) -> None:
        approval = waiting(assurance_needed=needed)
        show(page, *kinds, ago=400)
        assert decide(page, approval, posted(approval)).status_code == 403
        show(page, *kinds)
        assert decide(page, approval, posted(approval)).status_code == (302 if is_taken else 403)
        assert Decision.objects.exists() is is_taken

    def test_a_weaker_sign_in_after_it_does_not_make_a_passkey_count_longer(
        self, page: Client, waiting: Waiting, passkey: Passkey
    ) -> None:
        approval = waiting(assurance_needed="passkey")
        show(page, "webauthn", ago=290)
        session = page.session
        session[login.AUTHENTICATION_METHODS_SESSION_KEY].append({"method": "password", "at": time.time()})
        session.save()
        assert re.search(
            r"Confirmed with a passkey 4 min ago\. This is valid for another 0?0:\d\d",
            text_of(dialog_of(page, approval)),
        )

    @pytest.mark.parametrize(
        ("needed", "words"),
        [
            ("totp", "You have neither an authenticator app nor a passkey, so you cannot approve this yet."),
            ("passkey", "You have no passkey, so you cannot approve this yet."),
            ("signed", "You have no passkey, so you cannot approve this yet."),
        ],
    )
    def test_whoever_has_no_such_factor_reads_so_and_where_to_get_one(
        self, page: Client, waiting: Waiting, needed: str, words: str
    ) -> None:
        dialog = dialog_of(page, waiting(assurance_needed=needed))
        assert words in text_of(dialog)
        assert 'href="/settings/security/"' in dialog
        assert "data-assured" not in dialog

    def test_the_dialog_shows_the_sentence_and_asks_for_no_word(
        self, page: Client, waiting: Waiting, passkey: Passkey
    ) -> None:
        dialog = dialog_of(page, waiting(assurance_needed="signed"))
        assert "Your passkey signs this exact decision" in text_of(dialog)
        assert "Approve $214.50 with your passkey" in text_of(dialog)
        assert '<p class="plain">' in dialog
        assert 'id="confirm"' not in dialog
        # Without JavaScript, nothing is offered that cannot work.
        assert re.search(r"<button[^>]*data-sign[^>]*hidden", dialog)
        assert "This needs JavaScript" in dialog

    def test_what_is_still_needed_is_said_for_each_level(
        self, page: Client, waiting: Waiting, passkey: Passkey
    ) -> None:
        assert "Still needed: your passkey." in text_of(dialog_of(page, waiting(assurance_needed="passkey")))
        assert "Still needed: a second step" in text_of(dialog_of(page, waiting(assurance_needed="totp")))
        assert "Still needed: confirm that it is you." in text_of(dialog_of(page, waiting(assurance_needed="password")))

    def test_a_request_that_asks_nothing_has_no_dialog(self, page: Client, waiting: Waiting) -> None:
        html = page.get(f"/approvals/{waiting(risk='high').pk}/").content.decode()
        assert "approve-dialog" not in html
        assert "assurance.js" not in html

    def test_elsewhere_one_is_led_to_the_page_that_asks(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(assurance_needed="signed")
        peek = page.get(f"/inbox/peek/{approval.pk}/").content.decode()
        assert f'href="/approvals/{approval.pk}/?do=approve' in peek
        assert 'value="approve"' not in peek
        chat = page.get(f"/runs/{approval.run_id}/chat/").content.decode()
        assert 'value="approve"' not in chat
        assert f'href="/approvals/{approval.pk}/"' in chat

    def test_it_is_decided_by_itself_and_in_no_batch(self, page: Client, waiting: Waiting) -> None:
        small = {"risk": "low", "effect_class": "reversible", "hold_seconds": 0}
        first, second = waiting(**small), waiting(**small, assurance_needed="password")
        show(page, "")
        response = page.get("/inbox/batch/", {"pick": [str(first.pk), str(second.pk)]})
        assert response.status_code == 422
        assert "1 needs the approver to show who they are: decide it on its own." in response.content.decode()
        item = f"{second.pk}:{second.version}:{second.action_digest}:{uuid.uuid4()}"
        assert page.post("/inbox/batch/", {"type": "approve", "item": item}).status_code == 422
        assert not Decision.objects.exists()
