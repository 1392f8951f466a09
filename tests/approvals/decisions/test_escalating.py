"""What happens while nobody decides: steps are taken once, targets are missed once, and nothing is loosened."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentapp import auth
from approvals import decisions, ledger, questions
from approvals.escalation import Step
from approvals.models import Approval, Channel, Notification
from approvals.standing import may_decide
from tests.conftest import make_user
from tests.rows import a_decision, a_moment_ago, a_request, decide, events, in_state, read, take, within_transaction

pytestmark = pytest.mark.django_db

LEADS = (Step(60, "leads"),)


@pytest.fixture
def leads(roles: dict[str, Group]) -> Group:
    group = Group.objects.create(name="leads")
    group.permissions.set(roles["approver"].permissions.filter(codename="decide_approval"))
    return group


@pytest.fixture
def lea(leads: Group) -> User:
    return make_user("Lea Lead", "leads")


def told(approval: Approval) -> list[str]:
    return events(ledger.run_chain(approval.run_id))[1:]


def asked(roles: dict[str, Group], *steps: Step, **card: Any) -> Approval:
    return a_request(**{"groups": (roles["approver"].pk,), "escalation": steps or LEADS, **card})


def due(approval: Approval) -> Approval:
    return a_moment_ago(approval, "escalates_at")


def escalate(approval: Approval) -> bool:
    return within_transaction(decisions.escalate, approval.pk)


def test_no_step_is_taken_before_its_moment(roles, leads):
    approval = asked(roles)
    assert not escalate(approval)
    assert read(approval).escalated == 0
    assert told(approval) == []


def test_a_step_is_taken_once_and_says_when(roles, leads):
    approval = due(asked(roles))
    assert escalate(approval)
    assert not escalate(approval)
    after = read(approval)
    assert (after.escalated, after.escalates_at, after.version) == (1, None, approval.version)
    assert after.escalation[0]["taken_at"]
    assert told(approval) == ["approval.escalated"]
    event = ledger.Event.objects.get(type="approval.escalated")
    assert (event.data["group"], event.data["added"]) == ("leads", True)


def test_steps_are_taken_one_after_the_other(roles, leads):
    approval = due(asked(roles, Step(60, remind=True), Step(120, "leads")))
    assert escalate(approval)
    assert not escalate(approval), "the second is not due yet"
    assert read(approval).escalates_at == read(approval).created_at + timedelta(seconds=120)
    assert escalate(due(approval))
    assert told(approval) == ["approval.reminded", "approval.escalated"]


def test_whoever_is_in_the_new_group_sees_and_decides_from_then_on_and_not_before(roles, leads, lea):
    approval = due(asked(roles))
    assert may_decide(lea, approval) is not None
    assert not auth.visible_approvals(lea).exists()
    escalate(approval)
    assert may_decide(lea, read(approval)) is None
    assert auth.visible_approvals(lea).get() == approval
    assert take(approval, lea).state == Approval.State.APPROVED


def test_whoever_could_decide_before_still_can(roles, leads, dana):
    approval = due(asked(roles))
    escalate(approval)
    assert take(approval, dana).state == Approval.State.APPROVED


def test_more_people_who_may_decide_are_no_fewer_who_must(roles, leads, lea, dana):
    approval = due(asked(roles, approvals_needed=2))
    escalate(approval)
    assert take(approval, lea).state == Approval.State.PENDING
    assert take(approval, dana).state == Approval.State.APPROVED


def test_whoever_must_not_decide_does_not_through_a_group(roles, leads, lea):
    approval = due(asked(roles, starter_id=lea.pk))
    escalate(approval)
    refused = decide(read(approval), a_decision(read(approval), lea))
    assert getattr(refused, "code", "") == "starter"


def test_a_request_for_everybody_is_not_narrowed_to_a_group(roles, leads, dana):
    approval = due(asked(roles, groups=()))
    assert escalate(approval)
    assert not read(approval).groups.exists()
    assert may_decide(dana, read(approval)) is None
    assert ledger.Event.objects.get(type="approval.escalated").data["added"] is False


def test_a_group_that_is_gone_is_not_added_nor_another_of_its_name(roles, leads, lea):
    approval = due(asked(roles))
    leads.delete()
    Group.objects.create(name="leads")
    assert escalate(approval)
    assert list(read(approval).groups.all()) == [roles["approver"]]
    assert "no such group" in ledger.Event.objects.get(type="approval.escalated").data["reason"]


@pytest.mark.parametrize("state", ["approved", "rejected", "responded", "expired", "withdrawn", "superseded", "used"])
def test_nothing_is_escalated_that_no_longer_waits(dana, state):
    approval = in_state(state, dana)
    Approval.objects.filter(pk=approval.pk).update(
        escalation=[{"after": 1, "group": "", "remind": True, "at": "2026-01-01T00:00:00+00:00", "taken_at": ""}]
    )
    assert not escalate(due(approval))


def test_those_who_may_decide_are_reminded_and_no_others(roles, leads, lea, dana, marco, sam):
    approval = due(asked(roles, Step(60, remind=True), Step(120, remind=True), approvals_needed=2))
    take(approval, marco)
    escalate(due(approval))
    assert [n.user for n in Notification.objects.all()] == [dana], "Marco has approved, Lea may not decide"
    escalate(due(approval))
    assert Notification.objects.filter(user=dana, kind="reminded").count() == 2


def test_a_new_group_is_told_over_its_channels_and_by_mail(roles, leads, lea, dana):
    theirs = Channel.objects.create(name="leads", kind="memory")
    theirs.groups.add(leads)
    Channel.objects.create(name="off", kind="memory", active=False).groups.add(leads)
    Channel.objects.create(name="everybody", kind="memory")
    escalate(due(asked(roles)))
    found = Notification.objects.all()
    assert {(n.channel and n.channel.name, n.user, n.kind) for n in found} == {
        ("leads", None, "escalated"), (None, lea, "escalated"),
    }  # fmt: skip


# --- Questions ---------------------------------------------------------------------------------


def test_a_question_stops_the_steps_and_the_target(roles, leads, dana):
    approval = asked(roles, target_seconds=30)
    before = read(approval)
    question = within_transaction(decisions.ask, approval.pk, dana, "Why?", timedelta(minutes=10))
    moved = read(approval)
    assert moved.escalates_at == before.escalates_at + timedelta(minutes=10)
    assert moved.target_at == before.target_at + timedelta(minutes=10)
    assert within_transaction(decisions.answer, question.pk, "Because.")
    after = read(approval)
    paused = after.expires_at - before.expires_at
    assert timedelta(0) < paused < timedelta(minutes=1)
    assert (after.escalates_at - before.escalates_at, after.target_at - before.target_at) == (paused, paused)
    assert after.escalation[0]["at"] == after.escalates_at.isoformat()


def test_a_target_that_was_missed_before_a_question_stays_missed(roles, dana):
    approval = a_moment_ago(asked(roles, target_seconds=30), "target_at")
    within_transaction(decisions.ask, approval.pk, dana, "Why?", timedelta(minutes=10))
    assert read(approval).breached_at is not None
    assert questions.open_about([approval.pk]).exists()


# --- Targets -----------------------------------------------------------------------------------


def test_a_missed_target_is_noted_once(roles):
    approval = asked(roles, target_seconds=30)
    assert not within_transaction(decisions.breach, approval.pk)
    a_moment_ago(approval, "target_at")
    assert within_transaction(decisions.breach, approval.pk)
    noted = read(approval).breached_at
    assert not within_transaction(decisions.breach, approval.pk)
    assert read(approval).breached_at == noted
    assert told(approval) == ["approval.breached"]


def test_a_decision_that_comes_before_the_sweep_and_after_the_target_notes_it(roles, dana):
    approval = take(a_moment_ago(asked(roles, target_seconds=30), "target_at"), dana)
    assert approval.breached_at is not None
    assert told(approval) == ["approval.breached", "approval.approved"]
    assert not within_transaction(decisions.breach, approval.pk)


def test_a_decision_in_time_meets_the_target(roles, dana):
    approval = take(asked(roles, target_seconds=30), dana)
    a_moment_ago(approval, "target_at")
    assert not within_transaction(decisions.breach, approval.pk)
    assert read(approval).breached_at is None


def test_nothing_without_a_target_misses_one(roles):
    approval = asked(roles)
    with pytest.raises(IntegrityError), transaction.atomic():
        Approval.objects.filter(pk=approval.pk).update(breached_at=timezone.now())
