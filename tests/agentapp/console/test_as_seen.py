"""What the approver saw can be shown again, whatever has happened to the tool, the rule and the call since."""

import html

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agentapp import erasing
from approvals import as_asked, ledger
from approvals.digest import canonical
from approvals.models import Approval, Rule
from tests.agentapp.console.conftest import EVIDENCE, REFUND, make_waiting
from tests.conftest import call, calls, says
from tests.rows import take, undo


@pytest.fixture
def asked(sam: User) -> Approval:
    return make_waiting(sam, evidence=EVIDENCE, approvals_needed=2)


@pytest.fixture
def manager(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def seen(client: Client, approval: Approval, **query: object) -> str:
    response = client.get(f"/audit/approvals/{approval.pk}/as-seen/", query)
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def test_it_shows_the_card_and_says_that_it_matches_the_record(manager, asked, dana) -> None:
    approval = take(asked, dana, message="Fine.")
    page = seen(manager, approval)

    assert "This matches the digest in the record." in page
    assert "What Dana Whitfield had on the screen" in page
    for words in (approval.title, EVIDENCE[0]["body"], "58213", "214.5", "“Fine.”"):
        assert words in page


def test_nothing_on_it_can_be_pressed(manager, asked, dana) -> None:
    page = seen(manager, take(asked, dana))
    main = page[page.index('<main id="main"') : page.index("</main>")]

    assert "<form" not in main
    assert "<button" not in main
    assert "<input" not in main


def test_it_is_what_it_was_when_tool_rule_and_data_have_changed(manager, asked, dana) -> None:
    approval = take(asked, dana)
    before = seen(manager, approval)
    tool = approval.execution.tool
    tool.title_template, tool.sentence_template, tool.version = "Something else", "Something else", "2" * 64
    tool.input_schema, tool.effects_template = {}, []
    tool.save()
    Rule.objects.all().delete()
    after = seen(manager, approval)

    assert "Something else" not in after
    assert "This matches the digest in the record." in after
    assert "The tool has changed since." in after
    assert approval.title in before
    assert approval.title in after


def test_each_decision_is_shown_with_what_stood_there_then(manager, asked, dana, marco) -> None:
    edited = take(asked, dana, "edit", arguments={**REFUND, "amount": 184.5})
    approval = take(edited, marco, "approve")
    first, second = approval.decisions.order_by("decided_at")
    one, other = seen(manager, approval, decision=first.pk), seen(manager, approval, decision=second.pk)

    assert "What they changed:" in one
    assert "Somebody had changed it before:" not in one
    assert '"amount": 184.5' in one
    assert "Somebody had changed it before:" in other
    assert "What they changed:" not in other
    for page in (one, other):
        assert "This matches the digest in the record." in page


def test_what_the_texts_really_said_is_there_again_for_each_decision(manager, sam, dana, marco) -> None:
    asked = make_waiting(sam, arguments={**REFUND, "note": "for pаypal"}, approvals_needed=2)
    edited = take(asked, dana, "edit", arguments={**REFUND, "note": "for PayPal"})
    approval = take(edited, marco, "approve")
    first, second = approval.decisions.order_by("decided_at")

    assert "а is Cyrillic (U+0430)" in seen(manager, approval, decision=first.pk)
    assert "The tool gets more than the eye sees" not in seen(manager, approval, decision=second.pk)


def test_a_secret_is_not_unpacked_later_either(manager, sam, dana) -> None:
    asked = make_waiting(sam, arguments={**REFUND, "note": '{"pin": "s3cret-word"}'}, secret_fields=["note"])
    page = seen(manager, take(asked, dana))
    assert "The tool gets more than the eye sees" not in page
    assert "s3cret-word" not in page


def test_that_a_dry_run_of_a_changed_call_is_not_shown_is_said(manager, asked, dana, marco) -> None:
    foreseen = canonical({"lines": [{"name": "Balance", "before": 1000, "after": 785.5}]})
    Approval.objects.filter(pk=asked.pk).update(preview_text=foreseen)
    approval = take(take(asked, dana, "edit", arguments={**REFUND, "amount": 184.5}), marco)
    first, second = approval.decisions.order_by("decided_at")
    one, other = seen(manager, approval, decision=first.pk), seen(manager, approval, decision=second.pk)

    assert "785.5" in one
    assert "785.5" not in other
    assert "The dry run of the changed call is not shown" in other
    assert "The dry run of the changed call" not in one


def test_an_edit_that_was_taken_back_is_not_what_the_next_one_saw(manager, sam, dana, marco) -> None:
    approval = make_waiting(sam, evidence=EVIDENCE, hold_seconds=60)
    take(approval, dana, "edit", arguments={**REFUND, "amount": 1})
    undo(approval, dana)
    approval = take(approval, marco)

    mine = approval.decisions.get(user=marco)
    assert as_asked.arguments_before(approval, mine) == canonical(REFUND)
    assert "Somebody had changed it before:" not in seen(manager, approval, decision=mine.pk)


def test_a_group_that_was_added_later_was_not_on_the_screen_and_changes_nothing(manager, sam, dana, roles) -> None:
    approval = make_waiting(sam, groups=(roles["approver"].pk,))
    approval.groups.add(Group.objects.create(name="Leads"))

    assert as_asked.check(approval, None).holds


@pytest.mark.parametrize(
    "change",
    [{"title": "Refund nothing"}, {"explanation": "All is well."}, {"evidence": []}, {"reason": "No reason"},
     {"arguments_text": canonical({**REFUND, "amount": 1})}],
)  # fmt: skip
def test_a_row_that_was_changed_by_hand_is_named(manager, asked, dana, change) -> None:
    approval = take(asked, dana)
    Approval.objects.filter(pk=approval.pk).update(**change)

    assert "This does not match the digest in the record." in seen(manager, approval)


def test_a_decision_whose_arguments_were_changed_by_hand_is_named(manager, asked, dana) -> None:
    approval = take(asked, dana)
    approval.decisions.update(arguments_text=canonical({**REFUND, "amount": 1}))

    assert "The arguments are not the ones that were decided on." in seen(manager, approval)


def test_evidence_that_was_deleted_is_said_and_its_digest_is_shown(manager, asked, dana) -> None:
    approval = take(asked, dana)
    kept = {name: value for name, value in approval.evidence[0].items() if name != "body"}
    approval.evidence[0] = {**kept, "sha256": "ab" * 32, "deleted_at": "2026-11-20T10:00:00+00:00"}
    approval.save(update_fields=["evidence"])
    page = seen(manager, approval)

    assert "can no longer be told" in page
    assert "One piece of evidence" in page
    assert "ab" * 32 in page


def test_secrets_stay_masked(manager, sam, dana) -> None:
    approval = take(make_waiting(sam, secret_fields=["note"]), dana)
    page = seen(manager, approval)

    assert "Hi Ana" not in page
    assert "Masked values are masked here too" in page


def test_a_request_that_nobody_decided_is_shown_as_it_was_put(manager, asked) -> None:
    page = seen(manager, asked)

    assert "What people were shown" in page
    assert "This matches the digest in the record." in page


def test_a_decision_of_another_request_opens_nothing(manager, asked, sam, dana) -> None:
    other = take(make_waiting(sam), dana).decisions.get()
    for wanted in (str(other.pk), "x"):
        path = f"/audit/approvals/{asked.pk}/as-seen/?decision={wanted}"
        assert manager.get(path).status_code == 404


def test_it_asks_the_database_a_fixed_number_of_times(manager, asked, dana, django_assert_max_num_queries) -> None:
    approval = take(asked, dana)
    with django_assert_max_num_queries(16):
        seen(manager, approval)


def test_what_was_asked_by_an_agent_at_work_matches_salted_and_marked(manager, clerk, dana) -> None:
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo="tea")), says("Paid."))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    Approval.objects.filter(pk=approval.pk).exclude(salt="").get()

    assert "This matches the digest in the record." in seen(manager, approval)


def test_the_marks_it_began_with_are_part_of_what_was_shown(manager, sam, dana) -> None:
    approval = take(make_waiting(sam, pii_fields=["note"]), dana)
    assert "This matches the digest in the record." in seen(manager, approval)
    Approval.objects.filter(pk=approval.pk).update(pii_fields=[])
    assert "This does not match the digest in the record." in seen(manager, approval)


@pytest.mark.parametrize("by_retention", [False, True])
def test_of_one_that_was_erased_it_says_so_and_that_its_digest_stays(manager, clerk, dana, ada, by_retention) -> None:
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo="tea for Ana")), says("Paid."))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.drive(run)
    if by_retention:
        with ledger.transaction():
            erasing.take_away(run.pk, "retention", {})
    else:
        erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    page = seen(manager, approval)
    approval.refresh_from_db()

    who = "Deleted by retention on" if by_retention else "Erased on"
    assert f"{who} {approval.erased_at:%-d %b %Y}" in page
    assert "its digest stays" in page
    assert approval.view_digest in page
    assert by_retention or "by ada" in page.lower()
    assert "does not match" not in page
    assert "tea for Ana" not in page
    assert "is-wrong" not in page
