"""What deciding promises and does not keep: each test fails on what is."""

import pytest
from django.contrib.auth.models import Group

from approvals import standing
from approvals.models import Approval
from tests.conftest import make_user
from tests.rows import a_request, decide, a_verdict, read, take

pytestmark = pytest.mark.django_db


def test_a_change_by_which_rejections_count_ends_the_request_or_leaves_it_open_to_approval(roles):
    """docs: "rejected when any of them has `deny` rejections". The comment in is_enough: "they end what they would
    have ended". It stays pending instead, and nobody's approval can move it any more until it expires.
    """
    payments, managers = (Group.objects.create(name=name) for name in ("Payments", "Managers"))

    def person(name, *groups):
        user = make_user(name, "approver")
        user.groups.add(*groups)
        return user

    both, pia, paul, max_ = (
        person("both", payments, managers),
        person("pia", payments),
        person("paul", payments),
        person("max", managers),
    )
    terms = (
        [
            {"approve": 2, "deny": 2, "groups": [payments.pk], "names": ["Payments"]},
            {
                "approve": 1,
                "deny": 1,
                "groups": [managers.pk],
                "names": ["Managers"],
                "condition": "args.amount > 500.0",
            },
        ],
    )
    approval = a_request(
        terms=terms,
        groups=(payments.pk, managers.pk),
        arguments={"order": "1", "amount": 240.5},
        approvals_needed=1,
        risk="medium",
    )
    approval = take(approval, both, "reject")
    assert approval.state == "pending"  # one of two rejections of Payments
    approval = take(approval, pia, "edit", arguments={"order": "1", "amount": 900.5})
    count = standing.progress(read(approval))
    if count.is_denied:
        assert approval.state == "rejected"
    else:
        assert take(approval, paul).state == "approved"


def test_one_answer_in_the_tools_place_is_no_way_round_the_rejections_that_a_threshold_wants(roles):
    """deny: 2, and one person ends it by responding: the call does not run, and the model reads their words as data."""
    payments = Group.objects.create(name="Payments")
    pia = make_user("pia", "approver")
    pia.groups.add(payments)
    terms = ([{"approve": 2, "deny": 2, "groups": [payments.pk], "names": ["Payments"]}],)
    approval = a_request(terms=terms, groups=(payments.pk,), approvals_needed=2)
    assert take(approval, pia, "respond").state == "pending"
