"""Revoking a right at the moment it is used. On PostgreSQL the two truly meet; SQLite lets one in at a time."""

import uuid
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from agentapp import actions
from agentapp.actions import NewDecision, Refused
from approvals import decisions, delegations, ledger, standing
from approvals.delegations import Scope
from approvals.models import Approval, Decision, Event
from tests.conftest import make_user
from tests.races import few_tries, race
from tests.rows import a_request

pytestmark = pytest.mark.django_db(transaction=True)


def fresh(user: User) -> User:
    return User.objects.get(pk=user.pk)


def test_a_right_is_taken_back_before_it_is_used_or_after(roles: Any) -> None:
    finance = Group.objects.create(name="finance")
    bea, ada = make_user("bea", "approver", "finance"), make_user("ada", "approver")
    seen = set()
    for _ in range(few_tries()):
        now = timezone.now()
        lent = delegations.begin(bea, ada, now - timedelta(minutes=1), now + timedelta(days=1), Scope([finance.pk]))
        assert isinstance(lent, delegations.Delegation)
        approval = a_request(groups=(finance.pk,), risk="medium")
        new = NewDecision(uuid.uuid4(), "approve", approval.version, approval.action_digest)
        taken, ended = race(
            partial(actions.decide, approval.pk, new, fresh(ada)), partial(delegations.end, lent.pk, fresh(bea))
        )
        assert ended is True
        approval = Approval.objects.get(pk=approval.pk)
        if isinstance(taken, Refused):
            assert taken.code == "forbidden"
            assert (approval.state, Decision.objects.filter(approval=approval).count()) == ("pending", 0)
        else:
            assert isinstance(taken, decisions.Taken), taken
            # It was used in time, but no longer stands when the call is about to run.
            assert not standing.deciders_still_allowed(approval)
        seen.add(isinstance(taken, Refused))
        assert ledger.verify(ledger.CONFIGURATION)[1] is None
    assert seen
    assert Event.objects.filter(type="delegation.ended").count() == few_tries()


def test_a_deputy_and_their_lender_at_once_count_as_one(roles: Any) -> None:
    finance = Group.objects.create(name="finance")
    bea, ada = make_user("bea", "approver", "finance"), make_user("ada", "approver")
    now = timezone.now()
    delegations.begin(bea, ada, now - timedelta(minutes=1), now + timedelta(days=1), Scope([finance.pk]))
    for _ in range(few_tries()):
        approval = a_request(groups=(finance.pk,), risk="medium", approvals_needed=2)
        digest = approval.action_digest
        first, second = (
            partial(actions.decide, approval.pk, NewDecision(uuid.uuid4(), "approve", 1, digest), fresh(user))
            for user in (ada, bea)
        )
        results = race(first, second)
        assert sum(isinstance(result, decisions.Taken) for result in results) == 1, results
        assert sum(isinstance(result, Refused) for result in results) == 1, results
        assert Approval.objects.get(pk=approval.pk).state == "pending"
