import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from agentapp import actions, runs
from agentapp.models import Run, Tool
from approvals import decisions, ledger, mail
from approvals.digest import canonical, parse
from approvals.models import Approval, Decision, Event

from .conftest import REFUND, posted
from .test_plain_posts import Forms

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]
FORM = {
    "shown": ["arg.amount", "arg.reason", "arg.note", "arg.notify"],
    "arg.amount": "214.50",
    "arg.reason": '"damaged_in_transit"',
    "arg.note": "Hi Ana,\r\nsorry about the kettle.",
    "arg.notify": "on",
}


def decide(client: Client, approval: Approval, **fields: object) -> object:
    return client.post(f"/approvals/{approval.pk}/decide/", posted(approval, **fields))


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


class TestApproving:
    def test_an_untouched_form_approves_the_very_bytes_that_were_proposed(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        response = decide(page, approval, **FORM)

        assert response.status_code == 302
        approval.refresh_from_db()
        assert approval.state == Approval.State.APPROVED
        assert approval.final_arguments_text == approval.arguments_text
        assert approval.decisions.get().type == "approve"

    def test_a_changed_field_becomes_the_arguments_that_run(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        decide(page, approval, **{**FORM, "arg.amount": "184,50"})

        approval.refresh_from_db()
        assert parse(approval.final_arguments_text) == {**REFUND, "amount": 184.5}
        assert approval.decisions.get().type == "edit"
        assert approval.shown_title == "Refund $184.50 for order 58213"

    def test_a_posted_locked_field_is_not_read(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        shown = [*FORM["shown"], "arg.order_id"]

        decide(page, approval, **{**FORM, "shown": shown, "arg.order_id": "99999", "arg.amount": "10"})

        approval.refresh_from_db()
        assert parse(approval.final_arguments_text)["order_id"] == "58213"

    def test_the_run_is_woken_when_the_hold_is_over(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        decide(page, approval)

        approval.refresh_from_db()
        assert Run.objects.get(pk=approval.run_id).wake_at == approval.runs_at

    def test_the_same_decision_sent_twice_counts_once(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        fields = posted(approval)

        answers = [page.post(f"/approvals/{approval.pk}/decide/", fields).status_code for _ in range(2)]

        assert answers == [302, 302]
        assert Decision.objects.count() == 1

    def test_one_of_two_leaves_it_waiting_for_another_person(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting(approvals_needed=2)
        assert "as 1 of 2" in page.get(f"/approvals/{approval.pk}/").content.decode()

        decide(page, approval)

        html = page.get(f"/approvals/{approval.pk}/").content.decode()
        assert "needs another person too" in html
        assert 'data-act="approve"' not in html
        assert "as 2 of 2" in signed_in(marco).get(f"/approvals/{approval.pk}/").content.decode()
        approval.refresh_from_db()
        decide(signed_in(marco), approval)
        approval.refresh_from_db()
        assert approval.state == Approval.State.APPROVED


class TestRejectingAndResponding:
    def test_a_rejection_carries_the_picked_reason_and_the_words(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        decide(
            page, approval, type="reject", reason="Not allowed", message="Shipping is not refundable.", stop_run="on"
        )

        decision = Decision.objects.get()
        assert (decision.type, decision.message) == ("reject", "Not allowed. Shipping is not refundable.")
        assert decision.stop_run

    def test_the_reasons_to_pick_are_those_of_the_workspace(
        self, page: Client, waiting: Waiting, settings: Any
    ) -> None:
        settings.REJECTION_REASONS = ["Out of policy"]
        approval = waiting()

        html = page.get(f"/approvals/{approval.pk}/").content.decode()
        decide(page, approval, type="reject", reason="Out of policy", message="")

        assert re.findall(r'name="reason" value="([^"]+)"', html) == ["Out of policy", "Other"]
        assert Decision.objects.get().message == "Out of policy"

    def test_a_rejection_without_a_reason_comes_back_with_the_dialog_open(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        response = decide(page, approval, type="reject", reason="Other", message=" ")

        html = response.content.decode()
        assert response.status_code == 422
        assert 'id="reject-dialog" aria-labelledby="reject-title" open' in html
        assert "Say why: the agent reads it." in html
        assert not Decision.objects.exists()

    def test_an_answer_in_the_tools_place_is_kept(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        decide(page, approval, type="respond", message="Already refunded by phone.")

        approval.refresh_from_db()
        assert approval.state == Approval.State.RESPONDED
        assert Decision.objects.get().message == "Already refunded by phone."

    def test_what_stands_for_something_hidden_is_no_answer_in_the_tools_place(
        self, page: Client, waiting: Waiting
    ) -> None:
        masked = f"Paid to {'\u2022' * 6}."
        refused = decide(page, waiting(), type="respond", message=masked)

        assert refused.status_code == 422
        assert "still has a masked part" in refused.content.decode()
        assert masked in refused.content.decode()
        assert not Decision.objects.exists()


class TestUndo:
    def test_a_held_decision_is_taken_back(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        decide(page, approval)
        assert "undo/" in page.get(f"/approvals/{approval.pk}/").content.decode()

        response = page.post(f"/approvals/{approval.pk}/undo/")

        assert response.status_code == 302
        approval.refresh_from_db()
        assert approval.state == Approval.State.PENDING
        assert Run.objects.get(pk=approval.run_id).wake_at is None

    @pytest.mark.parametrize("next", ["", "focus", "inbox"])
    def test_what_was_changed_comes_back_as_what_is_typed_to_whoever_undoes_it(
        self, page: Client, waiting: Waiting, marco: User, next: str
    ) -> None:
        approval = waiting(risk="low", secret_fields=["note"])
        if next:
            page.post("/inbox/focus/begin/")
        form = {**FORM, "shown": ["arg.amount", "arg.reason", "arg.notify"], "arg.amount": "184,50"}
        decide(page, approval, **form)

        undone = page.post(f"/approvals/{approval.pk}/undo/", {"next": next})
        html = page.get(undone["Location"]).content.decode()

        approval.refresh_from_db()
        assert (approval.state, approval.is_edited) == ("pending", False)
        assert 'name="arg.amount" value="184.50"' in html or 'value="184.50"' in html
        assert "1 change by you" in html
        assert "Approve $184.50, edited" in html
        assert "sorry about the kettle" not in html
        others = signed_in(marco).get(f"/approvals/{approval.pk}/?{undone['Location'].partition('?')[2]}")
        assert "184.50" not in others.content.decode().partition('id="decide"')[2].partition("</form>")[0]
        fields = {"version": approval.version, "action_digest": approval.action_digest, "arg.amount": "184.50"}
        assert decide(page, approval, **{**form, **fields}).status_code == 302  # type: ignore[attr-defined]
        approval.refresh_from_db()
        assert parse(approval.final_arguments_text) == {**REFUND, "amount": 184.5}
        # A request that is decided or no longer waits is shown as it stands.
        assert "change by you" not in page.get(undone["Location"]).content.decode()

    def test_what_was_changed_is_not_laid_over_what_somebody_else_has_changed_since(
        self, page: Client, waiting: Waiting, marco: User
    ) -> None:
        approval = waiting(risk="high")
        form = {**FORM, "shown": ["arg.amount", "arg.reason", "arg.notify"], "arg.amount": "184,50"}
        decide(page, approval, **form)
        undone = page.post(f"/approvals/{approval.pk}/undo/")
        approval.refresh_from_db()
        fields = {"version": approval.version, "action_digest": approval.action_digest, "arg.amount": "99"}
        decide(signed_in(marco), approval, **{**form, **fields})

        html = page.get(undone["Location"]).content.decode()

        approval.refresh_from_db()
        assert (approval.state, parse(approval.final_arguments_text)["amount"]) == ("pending", 99)
        assert "184.50" not in html.partition('id="decide"')[2].partition("</form>")[0]

    def test_once_the_worker_has_it_undo_says_so(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(hold_seconds=0)
        decide(page, approval)
        approval.refresh_from_db()
        with ledger.transaction():
            runs.lock(approval.run_id)
            assert decisions.consume(approval)

        response = page.post(f"/approvals/{approval.pk}/undo/")

        assert response.status_code == 409
        assert "already taken effect" in response.content.decode()

    def test_nobody_undoes_what_somebody_else_decided(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        decide(page, approval)

        assert signed_in(marco).post(f"/approvals/{approval.pk}/undo/").status_code == 403
        approval.refresh_from_db()
        assert approval.state == Approval.State.APPROVED


class TestRefusals:
    def test_the_second_decider_is_told_who_was_first_and_what_differs(
        self, page: Client, waiting: Waiting, marco: User
    ) -> None:
        approval = waiting()
        decide(signed_in(marco), approval, **{**FORM, "arg.amount": "100"})

        response = decide(page, approval, **{**FORM, "arg.amount": "184.50"})

        html = response.content.decode()
        assert response.status_code == 409
        assert "Marco Reyes already decided this" in html
        assert "approved it with changes" in html
        assert "184.5" in html
        assert "&quot;amount&quot;: 100" in html
        assert Decision.objects.count() == 1

    def test_a_note_that_was_not_sent_is_not_lost(self, page: Client, waiting: Waiting, marco: User) -> None:
        approval = waiting()
        decide(signed_in(marco), approval)

        response = decide(page, approval, type="reject", message="A long and careful reason.")

        assert "A long and careful reason." in response.content.decode()
        assert "Your note, not sent" in response.content.decode()

    def test_the_dialog_leads_to_the_next_request(self, page: Client, waiting: Waiting, marco: User) -> None:
        first, second = waiting(expires_seconds=100), waiting(expires_seconds=200)
        decide(signed_in(marco), first)

        response = decide(page, first)

        assert response.context["place"].next == second.pk

    def test_a_request_that_changed_is_shown_anew_with_what_was_typed(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        response = decide(page, approval, version=99, **{**FORM, "arg.amount": "184.50"})

        html = response.content.decode()
        assert response.status_code == 409
        assert "This request changed while you were reading" in html
        assert 'value="184.50"' in html
        assert f'name="version" value="{approval.version}"' in html

    def test_a_rejection_of_what_changed_comes_back_as_it_was_sent_and_is_sent_again_once(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting()
        sent = {"type": "reject", "reason": "Not allowed", "message": "See policy 4.", "stop_run": ""}

        response = decide(page, approval, version=99, **sent)

        forms = Forms(response.content.decode()).forms.values()
        [again] = [form.fields for form in forms if form.fields.get("type") == ["reject"]]
        assert response.status_code == 409
        assert {name: again.get(name) for name in sent} == {name: [value] for name, value in sent.items()}
        page.post(f"/approvals/{approval.pk}/decide/", again)
        decision = Decision.objects.get()
        assert (decision.message, decision.stop_run) == ("Not allowed. See policy 4.", True)

    @pytest.mark.parametrize("field", [{"version": "x"}, {"action_digest": "0" * 64}, {"version": ""}])
    def test_what_was_not_on_the_screen_is_not_approved(
        self, page: Client, waiting: Waiting, field: dict[str, str]
    ) -> None:
        approval = waiting()

        assert decide(page, approval, **field).status_code == 409
        assert not Decision.objects.exists()

    def test_time_that_ran_out_is_a_conflict_and_says_so(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now())

        response = decide(page, approval)

        assert response.status_code == 409
        assert "Time ran out before this decision" in response.content.decode()

    def test_who_has_decided_it_elsewhere_is_told_that_they_did_themself(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        stale = {"version": str(approval.version), "action_digest": approval.action_digest}
        decide(page, approval)

        html = decide(page, approval, **stale).content.decode()

        assert '<h2 class="dialog-head" id="conflict-title">You already decided this</h2>' in html
        assert "You have already approved it. This decision was not recorded." in html

    def test_what_was_asked_anew_is_a_conflict_that_leads_to_the_new_request(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval, newer = waiting(), waiting()
        Approval.objects.filter(pk=newer.pk).update(supersedes=approval)
        Approval.objects.filter(pk=approval.pk).update(state="superseded")

        response = decide(page, approval)

        html = response.content.decode()
        assert response.status_code == 409
        assert '<h2 class="dialog-head" id="conflict-title">This was asked again</h2>' in html
        assert f'href="/approvals/{newer.pk}/">Open the new one</a>' in html

    def test_an_edit_that_breaks_the_schema_comes_back_at_its_field(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        response = decide(page, approval, **{**FORM, "arg.amount": "9999", "arg.note": "Kept."})

        html = response.content.decode()
        assert response.status_code == 422
        assert 'name="arg.amount" inputmode="decimal" autocomplete="off" value="9999" aria-invalid="true"' in html
        assert "Kept." in html
        assert not Decision.objects.exists()

    @pytest.mark.parametrize("way", ["decide", "draft"])
    def test_an_amount_between_two_cents_is_not_offered_rounded(self, page: Client, waiting: Waiting, way: str) -> None:
        approval = waiting(risk="high")
        tool = Tool.objects.get(name=approval.tool)
        amount = {**tool.input_schema["properties"]["amount"], "multipleOf": 0.01}
        schema = {**tool.input_schema, "properties": {**tool.input_schema["properties"], "amount": amount}}
        Tool.objects.update(input_schema=schema)
        fields = {**FORM, "arg.amount": "120.555"}

        html = page.post(f"/approvals/{approval.pk}/{way}/", posted(approval, **fields)).content.decode()

        assert 'value="120.555" aria-invalid="true"' in html
        assert "At most two decimals." in html
        assert "120.56" not in html
        assert "data-arms" not in html
        assert 'data-act="approve"' not in html
        assert "Check again" in html
        assert not Decision.objects.exists()

        fields["arg.amount"] = "120.55"
        html = page.post(f"/approvals/{approval.pk}/draft/", posted(approval, **fields)).content.decode()
        assert 'data-arms="Confirm refund of $120.55"' in html

    def test_a_number_that_could_be_two_is_not_guessed(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        response = decide(page, approval, **{**FORM, "arg.amount": "1,234"})

        assert response.status_code == 422
        assert "can be read as 1234 and as 1.234" in response.content.decode()

    def test_a_decision_the_rule_does_not_allow_is_refused(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(allowed_decisions=("reject",))

        assert 'data-act="approve"' not in page.get(f"/approvals/{approval.pk}/").content.decode()
        assert decide(page, approval).status_code == 422
        assert not Decision.objects.exists()

    def test_who_started_the_run_reads_why_not(self, client: Client, waiting: Waiting, sam: User) -> None:
        sam.groups.add(Group.objects.get(name="approver"))
        approval = waiting()
        client.force_login(sam)

        html = client.get(f"/approvals/{approval.pk}/").content.decode()
        assert "You started this run" in html
        assert 'data-act="approve"' not in html
        assert decide(client, approval).status_code == 403

    def test_a_reader_may_look_and_not_decide(self, client: Client, waiting: Waiting, mia: User) -> None:
        approval = waiting()
        client.force_login(mia)

        assert "You can view this, not decide it" in client.get(f"/approvals/{approval.pk}/").content.decode()
        assert decide(client, approval).status_code == 403
        assert not Decision.objects.exists()

    def test_an_outsider_finds_nothing(self, client: Client, waiting: Waiting, otto: User) -> None:
        approval = waiting()
        client.force_login(otto)

        assert decide(client, approval).status_code == 404
        assert client.post(f"/approvals/{approval.pk}/undo/").status_code == 404
        assert client.post(f"/approvals/{approval.pk}/draft/", posted(approval)).status_code == 404
        assert not Decision.objects.exists()

    @pytest.mark.parametrize("path", ["decide", "undo"])
    def test_no_get_decides_and_it_leads_to_the_request(self, page: Client, waiting: Waiting, path: str) -> None:
        approval = waiting()
        before = Event.objects.count()

        for ask in (page.get, page.head):
            response = ask(f"/approvals/{approval.pk}/{path}/", posted(approval))
            assert (response.status_code, response["Location"]) == (302, f"/approvals/{approval.pk}/")
        assert page.options(f"/approvals/{approval.pk}/{path}/").status_code == 405
        assert Event.objects.count() == before
        assert not Decision.objects.exists()

    @pytest.mark.parametrize("method", ["get", "head"])
    @pytest.mark.parametrize("purpose", [{}, {"Sec-Purpose": "prefetch;prerender"}, {"Purpose": "prefetch"}])
    @pytest.mark.parametrize("signed_in", [True, False])
    def test_whoever_follows_the_link_of_a_message_decides_nothing(
        self, page: Client, waiting: Waiting, method: str, purpose: dict[str, str], signed_in: bool
    ) -> None:
        """Mail scanners, chat previews and prefetching browsers follow links."""
        approval = waiting()
        before = Event.objects.count()
        link = mail.link_to(approval).removeprefix(settings.BASE_URL)
        client = page if signed_in else Client()

        assert getattr(client, method)(link, headers=purpose).status_code == (200 if signed_in else 302)
        approval.refresh_from_db()
        assert (approval.state, approval.version) == ("pending", 1)
        assert not Decision.objects.exists()
        assert Event.objects.count() == before

    def test_a_decision_from_another_site_is_refused(self, waiting: Waiting, dana: User) -> None:
        approval = waiting()
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(dana)

        assert decide(strict, approval).status_code == 403
        assert not Decision.objects.exists()

    def test_a_decision_id_of_another_decision_is_refused(self, page: Client, waiting: Waiting) -> None:
        first, second = waiting(), waiting()
        reused = str(uuid.uuid4())
        decide(page, first, decision_id=reused)

        assert decide(page, second, decision_id=reused).status_code == 422
        second.refresh_from_db()
        assert second.state == Approval.State.PENDING


class TestTheSecondPress:
    """High risk in a browser without JavaScript: the first press asks, on a page of its own."""

    def test_it_names_the_act_and_takes_along_what_was_typed(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(risk="high")
        typed = {**FORM, "arg.amount": "184,50", "message": "<b>Less</b>, as agreed."}

        first = decide(page, approval, type="approve", next="inbox", risk="high", **typed)

        html = first.content.decode()  # type: ignore[attr-defined]
        assert not Decision.objects.exists()
        assert "Confirm refund of $184.50</button>" in html
        assert "1 change by you" in html
        form = Forms(html).forms["form-1"]
        assert form.presses == [
            (f"/approvals/{approval.pk}/draft/", "", "", False),
            (f"/approvals/{approval.pk}/decide/", "type", "confirm", False),
        ]
        back = page.post(f"/approvals/{approval.pk}/draft/", form.fields).content.decode()
        assert 'value="184,50"' in back or 'value="184.50"' in back
        second = page.post(f"/approvals/{approval.pk}/decide/", {**form.fields, "type": "confirm"})
        assert (second.status_code, "/inbox/" in second["Location"]) == (302, True)
        decision = Decision.objects.get()
        assert (decision.type, decision.message) == ("edit", "<b>Less</b>, as agreed.")
        assert parse(decision.arguments_text) == {**REFUND, "amount": 184.5}

    @pytest.mark.parametrize("next", ["", "inbox", "focus"])
    def test_one_press_leads_back_to_where_it_was_made(self, page: Client, waiting: Waiting, next: str) -> None:
        approval = waiting(risk="high")

        html = decide(page, approval, type="approve", next=next).content.decode()  # type: ignore[attr-defined]

        back = {"": f"/approvals/{approval.pk}/", "inbox": f"/inbox/?id={approval.pk}", "focus": "/inbox/focus/"}[next]
        assert f'<a class="btn" href="{back}' in html
        assert not Decision.objects.exists()

    def test_what_cannot_be_decided_is_refused_without_being_asked_first(
        self, page: Client, waiting: Waiting, dana: User, marco: User
    ) -> None:
        approval = waiting(risk="high", approvals_needed=2)
        seen = posted(approval, type="approve")
        actions.decide(approval.pk, actions.NewDecision(uuid.uuid4(), "approve", 1, approval.action_digest), marco)
        path = f"/approvals/{approval.pk}/decide/"

        assert page.post(path, seen).status_code == 409
        assert decide(page, waiting(risk="high", starter_id=dana.pk), type="approve").status_code == 403  # type: ignore[attr-defined]
        wrong = decide(page, waiting(risk="high"), type="approve", **{**FORM, "arg.amount": "900"})
        assert wrong.status_code == 422  # type: ignore[attr-defined]
        assert Decision.objects.get().user == marco

    def test_one_press_sent_again_after_it_was_confirmed_counts_once(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(risk="high")
        seen = posted(approval)
        path = f"/approvals/{approval.pk}/decide/"
        page.post(path, seen)

        assert page.post(path, seen | {"type": "approve"}).status_code == 302
        assert Decision.objects.count() == 1

    def test_where_a_person_shows_who_they_are_its_dialog_asks(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(risk="high", assurance_needed="password")

        response = decide(page, approval, type="approve")

        html = response.content.decode()  # type: ignore[attr-defined]
        dialog = html[html.index('id="approve-dialog"') :].partition("</dialog>")[0]
        assert response.status_code == 422  # type: ignore[attr-defined]
        assert dialog.partition(">")[0].endswith(
            'aria-labelledby="approve-title" open data-passkeys="/static/console/asserted.js"'
        )
        assert "Press again to confirm." in dialog
        assert 'name="type" value="confirm"' in dialog
        assert not Decision.objects.exists()


def test_what_somebody_else_changed_is_not_undone_by_who_left_it_alone(
    page: Client, waiting: Waiting, marco: User
) -> None:
    """Dana changes the note of a request whose amount Marco has changed meanwhile: both changes stand."""
    approval = waiting(approvals_needed=2, risk="low")
    before = posted(approval)
    lower = canonical({**REFUND, "amount": 184.5})
    new = actions.NewDecision(uuid.uuid4(), "edit", 1, approval.action_digest, arguments_text=lower)
    actions.decide(approval.pk, new, marco)

    fields = {"shown": ["arg.amount", "arg.note"], "arg.amount": "214.50", "arg.note": "Hello."}
    response = page.post(f"/approvals/{approval.pk}/decide/", {**before, **fields})

    assert response.status_code == 409
    html = response.content.decode()
    assert "Approve $184.50, edited" in html
    assert "1 change by you" in html
    assert 'value="184.50"' in html
    assert "Hello.</textarea>" in html
