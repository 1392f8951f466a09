"""What became of a request, in words."""

import pytest
from django.contrib.auth.models import Group, User

from agentapp.request_words import became
from approvals.models import Approval
from tests.conftest import make_user
from tests.rows import a_request, read, take

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(roles: dict[str, Group]) -> User:
    return make_user("alice", "approver")


EITHER = ([{"approve": 2, "deny": 2}],)


def name(user: User) -> str:
    return user.get_full_name() or user.get_username()


def said(approval: Approval) -> str:
    return became(read(approval))


def test_who_approved_and_who_rejected_is_not_taken_for_the_other(dana: User, marco: User, alice: User) -> None:
    approval = take(a_request(terms=EITHER, approvals_needed=2), dana, "reject")
    assert said(approval) == "1 rejected; more people are needed"
    assert said(take(approval, marco)) == "1 approved, 1 rejected; more people are needed"
    assert said(take(approval, alice, "reject")) == f"rejected by {name(dana)} and {name(alice)}"


def test_who_rejected_is_none_of_those_who_approved(dana: User, marco: User, alice: User) -> None:
    approval = take(take(a_request(terms=EITHER, approvals_needed=2), dana, "reject"), marco)
    assert said(take(approval, alice)) == f"approved by {name(marco)} and {name(alice)}"


def test_who_changed_a_call_of_high_risk_has_not_approved_it(dana: User) -> None:
    approval = a_request(risk="high", approvals_needed=2)
    assert said(take(approval, dana, "edit", arguments={"order": "1001", "amount": 5})) == "0 of 2 approved"


def test_an_approval_that_was_not_used_in_time_was_one() -> None:
    approval = read(a_request())
    approval.state = approval.State.EXPIRED
    assert became(approval) == "expired, no one decided"
    approval.decided_at = approval.expires_at
    assert became(approval) == "approved, and expired"
