"""Approvers show who they are, as the request demands: with the decision, signed or not."""

import itertools

import pytest
from django.db import IntegrityError, transaction

from approvals import accepting, decisions, ledger, signatures, standing, step_up
from approvals.models import Approval, Decision, Event
from approvals.policy import Ruling
from tests.passkeys import PRESENT, Passkey
from tests.rows import a_decision, a_request, decide, read, take, undo

pytestmark = pytest.mark.django_db
CHEAPER = {"order": "1001", "amount": 200}


def signed(approval, user, passkey, type="approve", nonce="n-1", **changes):
    """This person's answer, signed with this passkey as the page has them sign it."""
    how = {name: changes.pop(name) for name in ("origin", "flags") if name in changes}
    incoming = a_decision(approval, user, type, **{"assurance": "", **changes})
    statement = signatures.statement_of(accepting.decision_of(approval, incoming, None), nonce)
    return a_decision(
        approval, user, type, **{"assurance": "", **changes, "id": incoming.id},
        assertion=passkey.assertion(statement, **how),
    )  # fmt: skip


def answered(approval, user, shown, type):
    changes = {"arguments": CHEAPER} if type == "edit" else {}
    if shown == "signed":
        return signed(approval, user, Passkey(), type, **changes)
    return a_decision(approval, user, type, assurance=shown, **changes)


@pytest.mark.parametrize("type", ["approve", "edit", "reject", "respond"])
@pytest.mark.parametrize(("needed", "shown"), list(itertools.product(step_up.LEVELS, repeat=2)))
def test_approving_needs_what_is_asked_and_nothing_else_does(dana, needed, shown, type):
    approval = a_request(assurance_needed=needed)
    taken = decide(approval, answered(approval, dana, shown, type))
    approves = type in ("approve", "edit")
    if approves and not step_up.is_enough(shown, needed):
        assert isinstance(taken, standing.Refusal)
        assert taken.code == ("signature" if needed == "signed" else "reauthenticate")
        assert not Decision.objects.exists()
        assert read(approval).state == Approval.State.PENDING
        return
    assert isinstance(taken, decisions.Taken)
    kept = Decision.objects.get()
    assert kept.assurance == (shown if approves or shown != "signed" else "")
    assert (kept.signature is not None) is (kept.assurance == "signed")


def test_what_is_critical_needs_a_sign_in_and_a_minimum_is_frozen_with_the_request(settings):
    settings.STEP_UP = {"irreversible": "passkey"}
    assert a_request(risk="critical", effect_class="reversible").assurance_needed == "password"
    approval = a_request(assurance_needed="totp")
    assert approval.assurance_needed == "passkey"
    settings.STEP_UP = {}
    assert read(approval).assurance_needed == "passkey"


def test_a_customer_is_asked_for_nothing_of_the_kind(settings):
    settings.STEP_UP = {"low": "signed"}
    assert a_request(kind="confirmation", assurance_needed="signed").assurance_needed == ""


def test_the_event_says_how_and_holds_the_digest_of_the_signature(dana):
    approval = a_request(assurance_needed="signed")
    assert decide(approval, signed(approval, dana, Passkey()))
    event = Event.objects.get(type="approval.approved")
    kept = Decision.objects.get()
    assert event.data["assurance"] == "signed"
    assert event.data["signature"] == signatures.digest_of(kept.signature)
    assert ledger.verify()[1] is None


def test_a_stored_signature_verifies_without_the_account_it_came_from(dana):
    approval = a_request(assurance_needed="signed")
    decide(approval, signed(approval, dana, Passkey()))
    kept = Decision.objects.get()
    assert signatures.verify(kept)
    assert set(kept.signature) == {
        "statement", "credential_id", "authenticator_data", "client_data", "signature", "public_key", "rp_id",
    }  # fmt: skip
    assert str(approval.pk) in kept.signature["statement"]


def test_an_edit_is_signed_over_what_it_makes_of_the_call(dana):
    approval = a_request(assurance_needed="signed")
    decide(approval, signed(approval, dana, Passkey(), "edit", arguments=CHEAPER))
    kept = Decision.objects.get()
    assert kept.type == "edit"
    assert read(approval).final_digest == kept.action_digest != approval.action_digest
    assert f'"action_digest":"{kept.action_digest}"' in kept.signature["statement"]
    assert signatures.verify(kept)


def test_a_signature_of_the_call_as_it_was_does_not_approve_another_edit(dana):
    approval = a_request(assurance_needed="signed")
    plain = signed(approval, dana, Passkey())
    edited = a_decision(approval, dana, "edit", arguments=CHEAPER, assurance="", id=plain.id, assertion=plain.assertion)
    assert decide(approval, edited).code == "signature"
    assert not Decision.objects.exists()


def other(approval, dana, marco):
    """Decisions that differ slightly from what was signed, keyed by the difference."""
    passkey = Passkey()
    incoming = signed(approval, dana, passkey)
    changed = {"assurance": "", "assertion": incoming.assertion}
    another = a_request(assurance_needed="signed")
    return {
        "decision": (approval, a_decision(approval, dana, **changed)),
        "person": (approval, a_decision(approval, marco, id=incoming.id, **changed)),
        "request": (another, a_decision(another, dana, id=incoming.id, **changed)),
        "key": (approval, signed_by_another_key(approval, dana, passkey)),
        "recognised": (approval, signed(approval, dana, passkey, flags=PRESENT)),
        "origin": (approval, signed(approval, dana, passkey, origin="https://evil.example")),
    }


def signed_by_another_key(approval, dana, passkey):
    incoming, honest = signed(approval, dana, Passkey()), passkey.assertion
    assertion = incoming.assertion
    statement = signatures.statement_of(accepting.decision_of(approval, incoming, None), "n-1")
    forged = type(assertion)(**{**vars(assertion), "public_key": honest(statement).public_key})
    return a_decision(approval, dana, id=incoming.id, assurance="", assertion=forged)


@pytest.mark.parametrize("what", ["decision", "person", "request", "key", "recognised", "origin"])
def test_a_signature_is_of_one_decision_by_one_person_on_this_site(dana, marco, what):
    approval = a_request(assurance_needed="signed")
    about, incoming = other(approval, dana, marco)[what]
    assert decide(about, incoming).code == "signature"
    assert not Decision.objects.exists()


def test_a_request_that_changed_meanwhile_is_told_as_changed_whatever_was_signed(dana, marco):
    approval = a_request(assurance_needed="signed", approvals_needed=2)
    incoming = signed(approval, dana, Passkey())
    assert isinstance(decide(approval, signed(approval, marco, Passkey())), decisions.Taken)
    assert decide(approval, incoming).code == "changed"
    assert Decision.objects.count() == 1


def test_each_of_two_approvers_signs_and_an_undone_signature_counts_no_more(dana, marco):
    approval = a_request(assurance_needed="signed", approvals_needed=2, hold_seconds=30)
    decide(approval, signed(approval, dana, Passkey()))
    now = read(approval)
    assert decide(now, a_decision(now, marco, assurance="passkey")).code == "signature"
    decide(now, signed(now, marco, Passkey()))
    assert read(approval).state == Approval.State.APPROVED
    undo(approval, marco)
    assert read(approval).state == Approval.State.PENDING
    assert signatures.verify_all() == (2, None)


def test_a_signed_change_by_which_a_rejection_comes_to_count_is_one_the_ledger_knows(dana, marco):
    small = {"approve": 1, "deny": 1, "condition": "args.amount < 210"}
    large = {"approve": 2, "deny": 2}
    approval = take(a_request(assurance_needed="signed", terms=([small, large],)), marco, "reject")
    assert approval.state == Approval.State.PENDING
    decide(approval, signed(approval, dana, Passkey(), "edit", arguments=CHEAPER))
    assert read(approval).state == Approval.State.REJECTED
    assert signatures.verify_all() == (1, None)
    Decision.objects.filter(assurance="signed").update(signature=None, assurance="passkey")
    assert signatures.verify_all()[1].problem == "its signature is gone"


def test_the_same_answer_again_is_harmless_and_taken_back_it_does_not_come_back(dana):
    approval = a_request(assurance_needed="signed", hold_seconds=30)
    incoming = signed(approval, dana, Passkey())
    decide(approval, incoming)
    assert decide(approval, incoming).repeated
    undo(approval, dana)
    decide(approval, incoming)
    assert read(approval).state == Approval.State.PENDING
    assert Decision.objects.count() == 1


def test_what_was_approved_before_counts_only_as_strongly_as_it_was_shown(dana, settings):
    approval = take(a_request(), dana, assurance="password")

    def meets(assurance):
        return standing.meets(approval, Ruling("ask", "", allowed_decisions=("approve",), assurance=assurance))

    assert meets("password")
    assert not meets("totp")
    settings.STEP_UP = {"irreversible": "passkey"}
    assert not meets("")


def test_somebody_elses_hand_in_the_table_does_not_make_it_enough(dana):
    approval = a_request(assurance_needed="passkey", hold_seconds=0)
    approval = take(approval, dana, assurance="passkey")
    assert standing.is_enough(approval)
    Decision.objects.update(assurance="password")
    assert not standing.is_enough(approval)


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        (Decision, {"assurance": "finger"}),
        (Decision, {"assurance": "signed"}),
        (Decision, {"signature": {"statement": ""}}),
        (Approval, {"assurance_needed": "finger"}),
        (Approval, {"kind": "confirmation"}),
        (Approval, {"risk": "critical", "assurance_needed": ""}),
    ],
)
def test_the_database_refuses_what_cannot_be(dana, row, changes):
    take(a_request(assurance_needed="totp"), dana, assurance="totp")
    with pytest.raises(IntegrityError), transaction.atomic():
        row.objects.update(**changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"action_digest": "0" * 64}, "it is not the decision that was signed"),
        ({"approval_version": 7}, "it is not the decision that was signed"),
        ({"type": "edit"}, "it is not the decision that was signed"),
        ({"signature": {}}, "what was signed cannot be read"),
        ({"signature": {"statement": "{"}}, "what was signed cannot be read"),
    ],
)
def test_what_was_changed_by_hand_is_found(dana, changes, problem):
    approval = a_request(assurance_needed="signed")
    decide(approval, signed(approval, dana, Passkey()))
    Decision.objects.update(**changes)
    kept = Decision.objects.get()
    assert signatures.problem_of(kept) == problem
    held, broken = signatures.verify_all()
    assert (held, broken.decision, broken.reference, broken.problem) == (0, kept.pk, approval.reference, problem)


def test_a_signature_of_another_key_is_found_even_where_it_verifies(dana):
    approval = a_request(assurance_needed="signed")
    incoming = signed(approval, dana, Passkey())
    decide(approval, incoming)
    kept = Decision.objects.get()
    statement = signatures.statement_of(kept, "n-1")
    Decision.objects.update(signature=Passkey().assertion(statement).as_json(statement))
    assert signatures.verify(Decision.objects.get())
    assert signatures.verify_all()[1].problem == "its signature is not the one the ledger knows"


@pytest.mark.parametrize("field", ["signature", "client_data", "authenticator_data", "public_key"])
def test_each_part_that_is_kept_matters(dana, field):
    approval = a_request(assurance_needed="signed")
    decide(approval, signed(approval, dana, Passkey()))
    kept = Decision.objects.get()
    kept.signature = {**kept.signature, field: kept.signature[field][:-4] + "BBBB"}
    assert not signatures.verify(kept)


def test_a_signature_that_was_taken_away_is_missed(dana):
    approval = a_request(assurance_needed="signed")
    decide(approval, signed(approval, dana, Passkey()))
    assert signatures.verify_all(ledger.run_chain(approval.run_id)) == (1, None)
    Decision.objects.update(signature=None, assurance="passkey")
    assert signatures.verify_all()[1].problem == "its signature is gone"
    assert not standing.is_enough(read(approval))


def test_what_runs_is_held_against_what_was_signed(dana):
    approval = a_request(assurance_needed="signed")
    decide(approval, signed(approval, dana, Passkey()))
    assert signatures.hold(read(approval), standing.decided(read(approval)))
    kept = Decision.objects.get()
    Decision.objects.update(signature={**kept.signature, "signature": "AAAA"})
    assert not signatures.hold(read(approval), standing.decided(read(approval)))
