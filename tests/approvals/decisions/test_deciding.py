import re
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals import cards, decisions, ledger
from approvals.decisions import Taken
from approvals.digest import sha256
from approvals.escalation import Step
from approvals.models import Approval, Channel, Decision, DecisionType, Notification
from approvals.sealed import ERASED
from approvals.standing import Refusal
from tests.conftest import make_user
from tests.rows import (
    ARGUMENTS,
    a_card,
    a_decision,
    a_moment_ago,
    a_request,
    decide,
    events,
    in_state,
    read,
    take,
)

pytestmark = pytest.mark.django_db

State = Approval.State
CHEAPER = {"order": "1001", "amount": 200}
CLOSED = [State.APPROVED, State.REJECTED, State.RESPONDED, State.EXPIRED, State.WITHDRAWN, State.SUPERSEDED, State.USED]


def refused(approval: Approval, incoming: decisions.Incoming) -> str:
    """The refusal's code, after checking that it changed nothing."""
    before = (Approval.objects.filter(pk=approval.pk).values().get(), list(Decision.objects.values()), told(approval))
    answer = decide(approval, incoming)
    assert isinstance(answer, Refusal), answer
    after = (Approval.objects.filter(pk=approval.pk).values().get(), list(Decision.objects.values()), told(approval))
    assert before == after
    return answer.code


def told(approval: Approval) -> list[str]:
    return events(ledger.run_chain(approval.run_id))


# --- Asking ------------------------------------------------------------------------------------


def test_a_request_is_pending_and_bound_to_its_exact_call():
    approval = a_request()
    assert (approval.state, approval.version, approval.final_digest) == ("pending", 1, "")
    assert approval.arguments == ARGUMENTS
    assert approval.expires_at - approval.created_at == timedelta(hours=1)
    other = a_request(run_id=approval.run_id)
    assert other.action_digest != approval.action_digest  # the same call again is another act
    assert told(approval) == ["approval.requested"] * 2


def test_a_request_tells_the_channels_of_its_groups_once(roles):
    approvers, managers = roles["approver"], roles["manager"]
    everybody, theirs, others = [
        Channel.objects.create(name=name, kind="email") for name in ("all", "theirs", "others")
    ]
    theirs.groups.set([approvers])
    others.groups.set([managers])

    card = a_card(groups=(approvers.pk,))
    with ledger.transaction():
        [approval] = decisions.request([card], timezone.now(), [everybody, theirs, others])
    assert {n.channel.name for n in Notification.objects.filter(approval=approval)} == {"all", "theirs"}
    event = ledger.Event.objects.get()
    assert sorted(event.data["told"]) == ["all", "theirs"]


# --- Transitions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "state"),
    [("approve", "approved"), ("edit", "approved"), ("reject", "rejected"), ("respond", "responded")],
)
def test_a_decision_about_a_pending_request_counts(dana, type, state):
    changes = {"arguments": CHEAPER} if type == "edit" else {}
    approval = take(a_request(hold_seconds=5), dana, type, **changes)
    assert (approval.state, approval.version) == (state, 2)
    assert approval.runs_at - approval.decided_at == timedelta(seconds=5)
    decision = approval.decisions.get()
    assert (decision.user, decision.type, decision.approval_version) == (dana, type, 1)
    assert decision.view_digest == approval.view_digest
    assert told(approval) == ["approval.requested", f"approval.{state}"]
    event = ledger.Event.objects.filter(type=f"approval.{state}").get()
    assert event.actor == f"user:{dana.pk}:dana"
    assert event.data["decision"] == str(decision.pk)


@pytest.mark.parametrize("state", CLOSED)
@pytest.mark.parametrize("type", DecisionType.values)
def test_a_closed_request_takes_no_decision(dana, marco, state, type):
    approval = in_state(state, dana)
    changes = {"arguments": CHEAPER} if type == "edit" else {}
    said_of_it = {"expired": "expired", "superseded": "superseded"}
    assert refused(approval, a_decision(approval, marco, type, **changes)) == said_of_it.get(state, "already_decided")


@pytest.mark.parametrize("state", [State.APPROVED, State.REJECTED, State.RESPONDED, State.USED])
def test_who_has_decided_it_is_told_that_they_did_themself(dana, state):
    approval = in_state(state, dana)
    assert refused(approval, a_decision(approval, dana)) == "decided_by_you"


@pytest.mark.parametrize("type", DecisionType.values)
def test_a_request_whose_time_is_up_takes_no_decision_even_before_it_is_closed(dana, type):
    approval = a_moment_ago(a_request(), "expires_at")
    assert refused(approval, a_decision(approval, dana, type, arguments=CHEAPER)) == "expired"


def test_a_request_that_is_not_there_takes_no_decision(dana):
    approval = a_request()
    incoming = a_decision(approval, dana)
    approval.pk = uuid.uuid4()
    answer = decide(approval, incoming)
    assert isinstance(answer, Refusal)
    assert answer.code == "not_found"


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("approved", "Dana Whitfield already approved it. Your decision was not recorded."),
        ("rejected", "Dana Whitfield already rejected it. Your decision was not recorded."),
        ("responded", "Dana Whitfield already answered it. Your decision was not recorded."),
        ("used", "Dana Whitfield already approved it. Your decision was not recorded."),
        ("expired", "No one decided in time; the call will not run."),
        ("withdrawn", "This request was withdrawn because its run ended."),
        ("superseded", "This request was replaced by a newer one."),
    ],
)
def test_the_second_to_decide_is_told_who_was_first_and_what_they_did(dana, marco, state, sentence):
    approval = in_state(state, dana)
    answer = decide(approval, a_decision(approval, marco))
    assert isinstance(answer, Refusal)
    assert answer.message == sentence


def test_the_second_to_decide_is_told_of_changes_and_of_people_without_a_name(dana, marco):
    dana.first_name = dana.last_name = ""
    dana.save()
    approval = take(a_request(), dana, "edit", arguments=CHEAPER)
    answer = decide(approval, a_decision(approval, marco))
    assert isinstance(answer, Refusal)
    assert answer.message == "dana already approved it with changes. Your decision was not recorded."


# --- What is echoed ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, -1])
def test_a_decision_about_another_version_is_refused(dana, version):
    approval = a_request()
    assert refused(approval, a_decision(approval, dana, version=version)) == "changed"


@pytest.mark.parametrize("digest", ["", "0" * 64, sha256("something else")])
def test_a_decision_about_another_call_is_refused(dana, digest):
    approval = a_request()
    assert refused(approval, a_decision(approval, dana, action_digest=digest)) == "action_changed"


def test_after_an_edit_the_digest_of_the_proposal_is_no_longer_good(dana, marco):
    approval = take(a_request(risk="high"), dana, "edit", arguments=CHEAPER)
    assert approval.state == State.PENDING
    assert refused(approval, a_decision(approval, marco, action_digest=approval.action_digest)) == "action_changed"


def test_a_decision_sent_again_gives_the_same_answer_and_changes_nothing(dana):
    approval = a_request()
    incoming = a_decision(approval, dana)
    first = decide(approval, incoming)
    second = decide(approval, incoming)
    assert isinstance(first, Taken)
    assert isinstance(second, Taken)
    assert (second.repeated, second.decision.pk, second.approval.state) == (True, first.decision.pk, "approved")
    assert told(approval) == ["approval.requested", "approval.approved"]
    assert approval.decisions.count() == 1


@pytest.mark.parametrize("arguments", [ARGUMENTS, CHEAPER])
def test_an_edit_sent_again_gives_the_same_answer(dana, arguments):
    approval = a_request()
    incoming = a_decision(approval, dana, "edit", arguments=arguments)
    assert isinstance(decide(approval, incoming), Taken)
    again = decide(approval, incoming)
    assert isinstance(again, Taken)
    assert again.repeated


def test_a_decision_id_is_good_for_one_person_one_request_and_one_answer(dana, marco):
    approval, other = a_request(), a_request()
    incoming = a_decision(approval, dana, "edit", arguments=CHEAPER)
    decide(approval, incoming)
    now = read(approval)
    for again in [
        a_decision(now, marco, "edit", arguments=CHEAPER, id=incoming.id),
        a_decision(now, dana, "reject", id=incoming.id),
        a_decision(now, dana, "approve", id=incoming.id),
        a_decision(now, dana, "edit", arguments={"order": "1001", "amount": 1}, id=incoming.id),
    ]:
        assert refused(approval, again) == "decision_id_reused"
    assert refused(other, a_decision(other, dana, "edit", arguments=CHEAPER, id=incoming.id)) == "decision_id_reused"


@pytest.mark.parametrize("more", [{"message": "No, stop it all."}, {"stop_run": True}, {"message": ""}])
def test_a_decision_id_is_good_for_one_message_and_for_stopping_or_not(dana, more):
    approval = a_request()
    incoming = a_decision(approval, dana, "reject", message="No.")
    decide(approval, incoming)
    assert refused(approval, replace(incoming, **more)) == "decision_id_reused"
    Decision.objects.update(message=ERASED)
    again = decide(approval, incoming)
    assert isinstance(again, Taken)
    assert again.repeated


# --- Who may -----------------------------------------------------------------------------------


def test_the_starter_is_excluded_unless_the_rule_lets_them(dana):
    approval = a_request(starter_id=dana.pk)
    assert refused(approval, a_decision(approval, dana)) == "starter"
    allowed = a_request(starter_id=dana.pk, starter_excluded=False)
    assert take(allowed, dana).state == State.APPROVED


def test_only_the_named_groups_decide(dana, roles):
    finance = Group.objects.create(name="finance")
    approval = a_request(groups=(finance.pk, roles["manager"].pk))
    answer = decide(approval, a_decision(approval, dana))
    assert isinstance(answer, Refusal)
    assert answer.code == "forbidden"
    assert "finance" in answer.message
    assert "manager" in answer.message
    dana.groups.add(finance)
    assert take(approval, dana).state == State.APPROVED


@pytest.mark.parametrize("type", DecisionType.values)
def test_people_without_the_right_decide_nothing(sam, mia, otto, ada, type):
    approval = a_request()
    for person in (sam, mia, otto, ada):
        assert refused(approval, a_decision(approval, person, type, arguments=CHEAPER)) == "forbidden"


def test_being_in_the_group_is_not_the_right_to_decide(otto, roles):
    finance = Group.objects.create(name="finance")
    otto.groups.add(finance)
    approval = a_request(groups=(finance.pk,))
    assert refused(approval, a_decision(approval, otto)) == "forbidden"


def test_somebody_deactivated_decides_nothing(dana):
    approval = a_request()
    dana.is_active = False
    dana.save()
    assert refused(approval, a_decision(approval, dana)) == "forbidden"


def test_a_superuser_is_bound_by_group_and_start_as_everybody_is(roles):
    root = make_user("Root Superuser")
    root.is_superuser = True
    root.save()
    mine, theirs = a_request(starter_id=root.pk), a_request(groups=(roles["approver"].pk,))
    assert refused(mine, a_decision(mine, root)) == "starter"
    assert refused(theirs, a_decision(theirs, root)) == "forbidden"


@pytest.mark.parametrize("type", DecisionType.values)
def test_only_allowed_decisions_are_taken(dana, type):
    others = tuple(value for value in DecisionType.values if value != type)
    approval = a_request(allowed_decisions=others)
    assert refused(approval, a_decision(approval, dana, type, arguments=CHEAPER)) == "not_allowed"
    assert take(a_request(allowed_decisions=(type,)), dana, type, arguments=CHEAPER).state != State.PENDING


@pytest.mark.parametrize("type", ["approve", "edit", "reject"])
def test_a_decision_writes_nothing_of_what_people_were_shown(dana, type):
    """Not even with the same values, so nothing that a person or a program had in hand meanwhile can replace it."""
    approval = a_request()
    with CaptureQueriesContext(connection) as asked:
        take(approval, dana, type, **({"arguments": CHEAPER} if type == "edit" else {}))
    [update] = [each["sql"] for each in asked if each["sql"].startswith('UPDATE "approvals_approval"')]
    written = set(re.findall(r'"(\w+)" = ', update.partition(" WHERE ")[0]))
    assert {"state", "version", "final_digest"} <= written
    assert not written & {*cards.CARD_COLUMNS, "sentence", "arguments_text", "risk"}


def test_a_request_that_allows_nothing_is_decided_by_nobody(dana):
    approval = a_request(allowed_decisions=())
    for type in DecisionType.values:
        assert refused(approval, a_decision(approval, dana, type, arguments=CHEAPER)) == "not_allowed"


@pytest.mark.parametrize("message", ["", "  \n"])
@pytest.mark.parametrize("type", ["reject", "respond"])
def test_a_rejection_and_an_answer_need_words(dana, type, message):
    approval = a_request()
    assert refused(approval, a_decision(approval, dana, type, message=message)) == "message_required"


# --- What people are shown ---------------------------------------------------------------------


SHOWN = {
    "salt": "0f" * 16,
    "pii_fields": ["order"],
    "mocked": True,
    "kind": "confirmation",
    "agent": "sales",
    "route": "returns",
    "run_title": "Another run",
    "tool": "refund_all",
    "tool_version": "v2",
    "effect_class": "reversible",
    "arguments": {"order": "1001", "amount": 241},
    "title": "Refund order 1002",
    "sentence": [{"text": "Pays back 241", "value": False}],
    "effects": [],
    "button": "Pay 241",
    "locked_fields": ["order"],
    "secret_fields": ["order"],
    "evidence": [{"text": "A ticket"}],
    "explanation": "The kettle is broken.",
    "snapshot_text": '{"paid":240}',
    "preview_text": '{"lines":[{"after":0,"name":"left"}]}',
    "difference": [{"field": "paid"}],
    "reason": "Another reason",
    "rule": "refunds",
    "rule_version": 2,
    "rule_digest": "d" * 64,
    "condition": "args.amount > 100.0",
    "rule_values": ({"name": "args.amount", "value": 240},),
    "risk": "critical",
    "risk_factors": ({"name": "outside", "weight": 35},),
    "provenance": ({"path": "order", "origin": "outside"},),
    "allowed_decisions": ("approve",),
    "approvals_needed": 2,
    "terms": ([{"approve": 2}],),
    "starter_excluded": False,
    "expires_seconds": 60,
    "hold_seconds": 9,
    "assurance_needed": "totp",
    "second_look": {"verdict": "concern", "why": "Odd.", "model": "a:b"},
    "plan_text": "[]",
    "on_expiry": "stop",
    "groups": (1,),
    "escalation": (Step(60, "managers"),),
    "target_seconds": 60,
    "business_hours": True,
}
KEYS_OF_ROWS = {
    "excluded",
    "about",
    "editor_id",
    "editor_lender_id",
    "run_id",
    "execution_id",
    "starter_id",
    "supersedes_id",
    "arguments_text",
}


@pytest.mark.parametrize("field", SHOWN)
def test_the_digest_of_the_view_covers_everything_shown(field):

    assert cards.view_digest(a_card(**{field: SHOWN[field]})) != cards.view_digest(a_card())


def test_no_field_of_a_card_is_left_out_of_the_view_by_accident():
    fields = set(cards.Card.__dataclass_fields__)
    assert fields - KEYS_OF_ROWS == set(SHOWN) - {"arguments"}
