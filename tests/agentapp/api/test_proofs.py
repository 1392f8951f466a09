"""Receipts and proofs for programs: who gets them, and that the verifier accepts them."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import auth
from approvals import as_asked, ledger, rule_terms, rule_versions
from approvals.digest import canonical, sha256
from approvals.models import Approval, Event, Rule, RuleVersion
from approvals.proof import checkpoints, signing_key
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")
SCOPES = ["approvals:read", "events:read"]


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Approval:
    run = clerk.run(PAY, says("Done."))
    approval = clerk.open(run)[0]
    clerk.decide(approval, dana)
    clerk.drive(run)
    return Approval.objects.get(pk=approval.pk)


def bearer(user: User) -> Client:
    _, secret = auth.issue_token(user, "checks", SCOPES, actor="test")
    return Client(headers={"authorization": f"Bearer {secret}"})


def holds(said: dict[str, str]) -> bool:
    text = canonical({name: value for name, value in said.items() if name != "signature"})
    return signing_key.holds(text, said["signature"], said["public_key"])


def test_a_receipt_says_who_decided_and_is_signed(paid, mia) -> None:
    said = bearer(mia).get(f"/api/v1/approvals/{paid.pk}/receipt").json()
    assert (said["approval"], said["decision"]) == (str(paid.pk), "used")
    assert [one["name"] for one in said["deciders"]] == ["Dana Whitfield"]
    assert holds(said)
    assert not holds({**said, "decision": "rejected"})


def in_force(rule: Rule, user: User, **terms: object) -> RuleVersion:
    """Another version of a rule, brought into force as people do."""
    rule = Rule.objects.get(pk=rule.pk)
    draft = rule_versions.keep_draft(rule, {**rule_terms.terms_of(rule), **terms}, user, "test")
    found = rule_versions.Simulated(draft.terms_digest, ledger.height(), {"looked_at": 0}, [])
    rule_versions.note_simulation(draft.pk, found, "test")
    made = rule_versions.activate(draft.pk, draft.terms_digest, user, "test")
    assert isinstance(made, RuleVersion), made
    return made


def test_a_receipt_names_the_version_of_the_rule_that_asked_whatever_became_of_it(
    clerk: Clerk, dana: User, ada: User, mia: User
) -> None:
    rule = Rule.objects.create(name="payments", tool="pay", verdict="ask")
    asked_by = in_force(rule, ada, description="Payments are looked at.")
    run = clerk.run(PAY, says("Done."))
    [approval] = clerk.open(run)
    later = in_force(rule, ada, description="Payments are looked at twice.")
    Rule.objects.filter(pk=rule.pk).update(name="renamed")
    clerk.decide(approval, dana)
    said = bearer(mia).get(f"/api/v1/approvals/{approval.pk}/receipt").json()
    assert (said["rule"], said["rule_version"], said["rule_digest"]) == ("payments", 2, asked_by.terms_digest)
    assert (asked_by.number, later.number, later.terms_digest != asked_by.terms_digest) == (2, 3, True)
    assert holds(said)
    assert not holds({**said, "rule_version": 3})
    asked = Event.objects.get(type="approval.requested", approval_id=approval.pk)
    assert (asked.data["rule_version"], asked.data["rule_digest"]) == (2, asked_by.terms_digest)
    detail = bearer(mia).get(f"/api/v1/approvals/{approval.pk}").json()
    assert (detail["rule_version"], detail["rule_digest"]) == (2, asked_by.terms_digest)
    assert as_asked.check(Approval.objects.get(pk=approval.pk), None).holds
    reader = Client()
    reader.force_login(mia)
    for page in (f"/approvals/{approval.pk}/", f"/audit/approvals/{approval.pk}/as-seen/"):
        assert "<code>payments</code> v2" in reader.get(page).text


def test_a_receipt_of_a_request_that_no_rule_made_names_none(paid, mia) -> None:
    said = bearer(mia).get(f"/api/v1/approvals/{paid.pk}/receipt").json()
    assert (said["rule"], said["rule_version"], said["rule_digest"]) == ("", None, "")


def test_they_hold_for_whoever_may_not_see_personal_data_and_lists_show_no_more_than_before(clerk, dana, mia) -> None:
    User.objects.filter(pk=dana.pk).update(username="dana@example.com", first_name="", last_name="")
    dana.refresh_from_db()
    run = clerk.run(PAY, says("Done."))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.drive(run)
    event, client = Event.objects.get(type="approval.approved"), bearer(mia)
    assert checkpoints.make_due()
    said = client.get(f"/api/v1/approvals/{approval.pk}/receipt").json()
    assert ([one["name"] for one in said["deciders"]], holds(said)) == (["dana@example.com"], True)
    proven = client.get(f"/api/v1/events/{event.pk}/proof").json()["event"]
    assert (proven["body"], proven["hash"]) == (event.body, sha256(proven["body"]))
    for path, asked in (("events", {"run": str(run.pk)}), ("events/search", {"q": "did:approved"})):
        listed = client.get(f"/api/v1/{path}", asked).text
        assert str(event.pk) in listed
        assert "dana@example.com" not in listed


def test_of_what_was_erased_there_is_no_receipt(paid, mia) -> None:
    Approval.objects.filter(pk=paid.pk).update(erased_at=timezone.now())
    answer = bearer(mia).get(f"/api/v1/approvals/{paid.pk}/receipt")
    assert (answer.status_code, answer.json()["code"]) == (409, "erased")


def test_an_event_is_proven_as_soon_as_a_checkpoint_covers_it(paid, mia) -> None:
    event, client = Event.objects.get(type="approval.approved"), bearer(mia)
    read = client.get("/api/v1/events", {"run": str(paid.run_id)}).json()["items"]
    assert [one["type"] for one in read if one["id"] == str(event.pk)] == ["approval.approved"]
    waiting = client.get(f"/api/v1/events/{event.pk}/proof")
    assert (waiting.status_code, waiting.json()["code"]) == (409, "not_covered")
    assert checkpoints.make_due()
    said = client.get(f"/api/v1/events/{event.pk}/proof").json()
    assert (said["kind"], said["event"]["body"]) == ("inclusion", event.body)


def test_who_may_not_read_the_ledger_gets_no_proof(paid, dana) -> None:
    event = Event.objects.get(type="approval.approved")
    assert checkpoints.make_due()
    assert bearer(dana).get(f"/api/v1/events/{event.pk}/proof").status_code == 403
