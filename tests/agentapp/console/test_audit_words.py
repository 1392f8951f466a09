"""What people said, in the audit trail: from the rows that keep it, if they match the digests in the ledger."""

import html
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agentapp import actions, erasing
from approvals import claims, comments, configuration, decisions, ledger
from approvals.models import Approval, Comment, Decision, Event, Grant
from tests.conftest import Clerk, call, calls, says
from tests.grants import a_grant
from tests.rows import a_tool, within_transaction

pytestmark = pytest.mark.django_db
PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")


@pytest.fixture
def manager(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


@pytest.fixture
def discussed(clerk: Clerk, dana: User, marco: User) -> Approval:
    """A request that people discussed and rejected. Its run has ended."""
    run = clerk.run(PAY, says("Nothing was paid."))
    approval = clerk.open(run)[0]
    approval.groups.set(Group.objects.filter(name="approver"))
    within_transaction(claims.hand_over, approval.pk, dana, marco, "You know this shop.")
    within_transaction(comments.post, approval, dana, "It looks odd.")
    question = within_transaction(decisions.ask, approval.pk, marco, "Which account is it?", timedelta(hours=1))
    within_transaction(decisions.answer, question.pk, "That of Ana.")
    clerk.decide(Approval.objects.get(pk=approval.pk), marco, type="reject", message="Call her first.")
    clerk.drive(run)
    return Approval.objects.get(pk=approval.pk)


def opened(client: Client, type: str) -> str:
    """The row of the only event of a type, opened."""
    event = Event.objects.get(type=type)
    response = client.get(f"/audit/events/{event.pk}/row/")
    assert response.status_code == 200
    return html.unescape(response.content.decode())


@pytest.mark.parametrize(
    ("type", "words"),
    [
        ("approval.handed_over", "Reason given: “You know this shop.”"),
        ("approval.commented", "Reason given: “It looks odd.”"),
        ("approval.asked", "Reason given: “Which account is it?”"),
        ("approval.answered", "That of Ana."),
        ("approval.rejected", "Reason given: “Call her first.”"),
    ],
)
def test_an_opened_row_says_what_was_said(manager, discussed, type: str, words: str) -> None:
    assert words in opened(manager, type)


def granted_and_revoked(clerk: Clerk, dana: User) -> Grant:
    grant = a_grant(clerk, dana, reason="They are all of one household.")
    return actions.revoke_grant(grant.pk, "Two of them moved out.", dana)


def test_why_a_grant_was_made_and_taken_back_stands_in_their_rows(manager, clerk, dana) -> None:
    granted_and_revoked(clerk, dana)
    assert "Reason given: “They are all of one household.”" in opened(manager, "grant.made")
    assert "Reason given: “Two of them moved out.”" in opened(manager, "grant.revoked")


def test_of_a_grant_of_an_erased_request_the_rows_say_that_its_words_are_gone(manager, clerk, sam, dana) -> None:
    grant = granted_and_revoked(clerk, dana)
    actions.cancel_run(grant.approval.run_id, sam)
    erasing.erase("run", str(grant.approval.run_id), "Request 12", None, "command")
    for type in ("grant.made", "grant.revoked"):
        row = opened(manager, type)
        assert "household" not in row
        assert "moved out" not in row
        assert "erased on" in row
    assert ledger.verify()[1] is None


def test_a_reason_that_the_ledger_has_in_words_is_still_read(manager, clerk, dana) -> None:
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "grant.revoked", {"grant": "g", "why": "Enough of it."}, "user:1:dana")
    assert "Reason given: “Enough of it.”" in opened(manager, "grant.revoked")
    assert ledger.verify()[1] is None


def test_the_title_of_a_run_stands_in_the_row_of_its_start(manager, discussed) -> None:
    event = Event.objects.get(type="run.queued", run_id=discussed.run_id)

    assert discussed.run_title in html.unescape(manager.get(f"/audit/events/{event.pk}/row/").content.decode())


def test_no_row_shows_a_digest_for_words(manager, discussed) -> None:
    for event in Event.objects.all():
        page = html.unescape(manager.get(f"/audit/events/{event.pk}/row/").content.decode())
        assert "Characters" not in page, event.type
        assert "'digest'" not in page, event.type
    assert "digest" not in manager.get("/audit/").content.decode()


def test_words_that_are_not_those_of_the_record_are_not_shown_as_such(manager, discussed) -> None:
    Decision.objects.filter(approval=discussed).update(message="I agree with all of it.")
    Comment.objects.filter(approval=discussed).update(text="All is fine.")

    assert "I agree" not in opened(manager, "approval.rejected")
    assert "no longer kept" in opened(manager, "approval.rejected")
    assert "All is fine." not in opened(manager, "approval.commented")


def test_what_was_erased_is_said_to_be(manager, ada, discussed) -> None:
    erasing.erase("run", str(discussed.run_id), "They asked for it.", ada, "user:1:ada")
    day = Approval.objects.get(pk=discussed.pk).erased_at.date().isoformat()

    for type in ("approval.rejected", "approval.commented", "approval.asked", "approval.handed_over", "run.queued"):
        page = opened(manager, type)
        assert f"erased on {day}" in page, type
        for words in ("Call her first", "It looks odd", "Which account", "That of Ana", "You know this shop"):
            assert words not in page


def test_who_may_not_see_the_request_reads_none_of_it(client: Client, otto, discussed) -> None:
    client.force_login(otto)
    for event in Event.objects.filter(approval_id=discussed.pk):
        assert client.get(f"/audit/events/{event.pk}/row/").status_code in (403, 404)


def test_a_change_of_configuration_leads_to_before_and_after(manager, ada) -> None:
    tool = a_tool()
    tool.description = "Pays out."
    configuration.save(tool, ledger.actor_of(ada))
    change = Event.objects.get(type="configuration.changed")
    from_here = manager.get("/audit/", {"q": "did:config"}).content.decode()

    assert f'href="/changes/{change.pk}/"' in from_here
    assert 'href="/changes/"' in from_here
    assert 'href="/changes/what-if/"' in from_here
    assert 'href="/changes/what-if/"' not in manager.get("/audit/").content.decode()
