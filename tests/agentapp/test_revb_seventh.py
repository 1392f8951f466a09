"""Review: what comes from outside stays from outside when an agent hands it to another; who decides about an undo."""

import pytest

from agentapp import actions
from approvals.models import Rule
from tests.agentapp.test_revb_more import lent  # noqa: F401
from tests.clerk_tools import effects_of
from tests.teams import Team

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def team(clerk) -> Team:
    return Team(clerk)


def test_who_asked_for_an_undo_does_not_decide_it_whatever_a_rule_says(clerk, lent, dana):  # noqa: F811
    Rule.objects.create(name="anybody", tool="take_back", verdict="ask", starter_excluded=False, hold_seconds=0)
    run = clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana))
    (approval,) = clerk.open(run)
    with pytest.raises(actions.Refused):
        clerk.decide(approval, dana)
    clerk.drive(run)
    assert effects_of("take_back") == []
