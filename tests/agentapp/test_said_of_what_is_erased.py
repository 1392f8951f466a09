"""What people say of a request after its words were deleted would never be deleted, so it is not kept."""

import pytest
from django.test import Client

from agentapp import actions, commenting, erasing, judging
from agentapp.refused import Refused
from approvals import ledger
from approvals.models import Approval, Comment, Grant, Judgement, PlannedCall
from tests.agentapp.test_erasing import NAME, ended, kept
from tests.conftest import call, calls, says
from tests.grants import grant_from, let_grant
from tests.plans import ANN, BOB, approved_plan, let_plan, refund

pytestmark = pytest.mark.django_db


def erased(run, ada) -> None:
    erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))


def refusal(act) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


@pytest.fixture
def gone(clerk, dana, ada):
    """A decided request whose words are deleted."""
    run = ended(clerk, dana)
    erased(run, ada)
    return Approval.objects.get()


def test_nobody_comments_on_it(gone, dana):
    before = Comment.objects.count()
    assert refusal(lambda: commenting.post_comment(gone.pk, f"Was that {NAME}?", dana)) == "erased"
    assert (Comment.objects.count(), NAME in kept()) == (before, False)


def test_its_page_has_no_place_for_a_comment(gone, dana, client: Client):
    client.force_login(dana)
    assert b'name="text"' not in client.get(f"/approvals/{gone.pk}/").content


def test_nobody_judges_how_it_was_decided(gone, ada):
    decision = gone.decisions.get()
    assert refusal(lambda: judging.judge_decision(decision.pk, "wrong", f"{NAME} was paid twice.", ada)) == "erased"
    assert (Judgement.objects.count(), NAME in kept()) == (0, False)


def test_nothing_like_it_is_allowed_ahead(clerk, dana, ada):
    run = clerk.run(calls(call("s", "send", to=NAME)), says("done"))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.drive(run)
    erased(run, ada)
    assert refusal(lambda: grant_from(approval, let_grant(dana), reason=f"{NAME} is ill.")) == "not_grantable"
    assert (Grant.objects.count(), NAME in kept()) == (0, False)


def test_why_a_grant_from_it_is_revoked_is_not_kept(clerk, dana, ada):
    run = clerk.run(calls(call("s", "send", to="x")), says("done"))
    [approval] = clerk.open(run)
    grant = grant_from(approval, let_grant(dana))
    clerk.decide(approval, dana)
    clerk.drive(run)
    erased(run, ada)
    actions.revoke_grant(grant.pk, f"{NAME} is well.", dana)
    grant.refresh_from_db()
    assert (grant.revoked_by, NAME in kept()) == (dana, False)


def test_nothing_is_left_of_its_plan(clerk, dana, ada, offer, settings):
    offer(refund)
    let_plan(clerk, settings)
    run, approval = approved_plan(clerk, dana, [ANN, BOB])
    erased(run, ada)
    assert refusal(lambda: actions.end_plan(approval.pk, f"{NAME} called.", dana)) == "nothing_left"
    assert not PlannedCall.objects.filter(ended_why__contains=NAME).exists()
