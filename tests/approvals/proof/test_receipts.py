import base64
import json
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import approval_events, ledger
from approvals.digest import canonical, sha256
from approvals.models import Approval, Event
from approvals.proof import keys, receipts, signing_key
from tests.approvals.proof.exports import PROOF, said_elsewhere, said_of_proof
from tests.rows import a_decision, a_request, decide, read, take, undo

pytestmark = pytest.mark.django_db


def test_a_receipt_says_who_decided_what_and_holds_for_an_outsider(dana, folder, key):
    approval = take(a_request(), dana)
    told = receipts.receipt(approval)
    assert (told["reference"], told["decision"], told["tool"]) == (approval.reference, "approved", approval.tool)
    assert (told["action_digest"], told["view_digest"]) == (approval.action_digest, approval.view_digest)
    [decider] = told["deciders"]
    assert (decider["user"], decider["name"], decider["type"]) == (f"user:{dana.pk}", "Dana Whitfield", "approve")
    hashes = set(Event.objects.filter(chain=ledger.run_chain(approval.run_id)).values_list("hash", flat=True))
    assert told["events"]
    assert set(told["events"]) <= hashes
    (folder / "receipt.json").write_text(canonical(told))
    code, words = said_elsewhere(folder / "receipt.json", key.key_id, by=PROOF)
    assert (code, words.startswith(f"OK: {approval.reference} was approved")) == (0, True)


def test_a_receipt_names_the_event_of_the_decision_however_much_was_said_before(dana, key):
    asked = a_request()
    with ledger.transaction():
        for number in range(22):
            approval_events.record(asked, "commented", {"comment": str(number)})
    undo(take(asked, dana), dana)
    named = receipts.receipt(take(asked, dana))["events"]
    types = [Event.objects.get(hash=one).type.removeprefix("approval.") for one in named]
    assert types == ["requested", "approved", "undone", "approved"]


@pytest.mark.parametrize("name", ["decision", "deciders", "tool", "action_digest", "reference"])
def test_a_receipt_that_was_changed_does_not_hold(dana, folder, key, name):
    told = receipts.receipt(take(a_request(), dana))
    (folder / "receipt.json").write_text(canonical({**told, name: "other"}))
    assert said_of_proof(folder / "receipt.json", key.key_id)[0] == 1


def test_a_receipt_leads_whoever_trusts_the_key_of_before_to_the_one_that_signed_it(dana, folder, key, settings):
    done = take(a_request(), dana)
    before = receipts.receipt(done)
    keys.rotate(folder / "new.key")
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "new.key")
    new, file = signing_key.public_key().key_id, folder / "receipt.json"
    told = receipts.receipt(done)
    for receipt, known, code in ((told, key.key_id, 0), (told, new, 0), (before, key.key_id, 0), (before, new, 1)):
        file.write_text(canonical(receipt))
        assert said_of_proof(file, known)[0] == code
    # A key that has signed nothing leads nowhere, and neither does a changed one.
    first, second = told["succession"]
    for succession in ([second], [first], [first, {**second, "endorsement": first["endorsement"]}]):
        file.write_text(canonical({**told, "succession": succession}))
        assert said_of_proof(file, key.key_id)[0] == 1


def test_a_receipt_shows_no_argument(dana, key):
    approval = take(a_request(), dana)
    text = canonical(receipts.receipt(approval))
    assert approval.arguments_text not in text
    assert "arguments_text" not in text
    # Nor a hash by which guesses could be checked.
    assert sha256(approval.arguments_text) not in text


@pytest.mark.parametrize(
    ("customer", "shown"),
    [("ana.pereira@example.com", "\u2022" * 6), ("+351 912 345 678", "\u2022" * 6), ("40117", "40117")],
)
def test_a_receipt_names_a_customer_as_the_ledger_does(dana, key, customer, shown):
    approval = a_request(kind="confirmation")
    decide(approval, replace(a_decision(approval, dana), user=None, customer=customer, assurance=""))
    told = json.loads(base64.urlsafe_b64decode(receipts.header(approval.pk)))
    [decider] = told["deciders"]
    assert (decider["user"], decider["name"]) == (f"customer:{shown}", shown)
    assert Event.objects.get(approval_id=approval.pk, type="approval.approved").actor == f"customer:{shown}"
    assert shown == customer or customer not in canonical(told)


def test_a_receipt_names_people_who_work_here_as_the_ledger_does(dana, key):
    User.objects.filter(pk=dana.pk).update(username="dana@example.com", first_name="", last_name="")
    approval = take(a_request(), dana)
    [decider] = receipts.receipt(approval)["deciders"]
    actor = Event.objects.get(approval_id=approval.pk, type="approval.approved").actor
    assert actor == f"{decider['user']}:{decider['name']}" == f"user:{dana.pk}:dana@example.com"


def test_of_what_was_erased_there_is_no_receipt(dana, key):
    approval = take(a_request(), dana)
    assert receipts.header(approval.pk)
    Approval.objects.filter(pk=approval.pk).update(erased_at=timezone.now())
    with pytest.raises(receipts.Erased):
        receipts.receipt(read(approval))
    assert receipts.header(approval.pk) == ""


def test_what_nobody_decided_is_said_to_be_undecided(roles, key):
    told = receipts.receipt(a_request())
    assert (told["decision"], told["deciders"], told["decided_at"]) == ("pending", [], "")


def test_a_header_is_one_line_and_without_a_key_there_is_none(dana, key, settings, folder):
    approval = take(a_request(), dana)
    header = receipts.header(approval.pk)
    assert json.loads(base64.urlsafe_b64decode(header))["reference"] == approval.reference
    assert header.isascii()
    assert header.isprintable()
    settings.LEDGER = replace(settings.LEDGER, makes_key=False, signing_key_file=folder / "none")
    assert receipts.header(approval.pk) == ""
