"""An approval meets a change of what it rests on: rules, the approver's account, their group, the run's starter.

Whichever comes first, the call does not run against the change, which was made before the call begins.
"""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from agentapp import actions
from agentapp.models import Tool
from approvals import configuration, ledger
from approvals.models import Approval, Decision, Rule
from tests.clerk_tools import effects_of
from tests.conftest import Clerk, call, calls, make_user, says
from tests.races import few_tries, race

pytestmark = pytest.mark.django_db(transaction=True)


def approval_of(approval: Approval, user: User) -> Callable[[], Any]:
    approval.refresh_from_db()
    new = actions.NewDecision(uuid.uuid4(), "approve", approval.version, approval.action_digest)
    return lambda: actions.decide(approval.pk, new, User.objects.get(pk=user.pk))


def a_rule_forbids_it() -> None:
    configuration.save(Rule(name=f"no-{uuid.uuid4().hex[:8]}", tool="pay", verdict="deny"), "test")


def the_approver_is_switched_off(dana: User) -> None:
    User.objects.filter(pk=dana.pk).update(is_active=False)


def the_approver_leaves_the_group(dana: User) -> None:
    dana.groups.clear()


def the_tool_is_kept_to_others() -> None:
    tool = Tool.objects.get(name="pay")
    configuration.save(tool, "test", {"starters": [Group.objects.create(name=uuid.uuid4().hex)]})


CHANGES: dict[str, Callable[[User], None]] = {
    "a rule forbids it": lambda dana: a_rule_forbids_it(),
    "the approver is switched off": the_approver_is_switched_off,
    "the approver leaves the group": the_approver_leaves_the_group,
    "the tool is kept to the runs of others": lambda dana: the_tool_is_kept_to_others(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_before_the_call_begins_counts(clerk: Clerk, change: Callable[[User], None]) -> None:
    for number in range(few_tries()):
        Rule.objects.all().delete()
        Tool.objects.get(name="pay").starters.clear()
        dana = make_user(f"Dana{number} Whitfield", "approver")
        run = clerk.run(calls(call("p", "pay", account="ana", amount=20)), says("done"))
        [approval] = clerk.open(run)
        decided, changed = race(approval_of(approval, dana), lambda dana=dana: change(dana))
        assert changed is None
        assert isinstance(decided, actions.Refused) or not isinstance(decided, BaseException), decided
        clerk.drive(run)
        assert effects_of("pay") == []
        assert Decision.objects.filter(approval=approval).count() <= 1
        assert ledger.verify(ledger.run_chain(run.pk))[1] is None


@pytest.mark.parametrize("people", [4, 8])
def test_of_many_people_at_once_as_many_count_as_are_needed(clerk: Clerk, people: int) -> None:
    Rule.objects.create(name="pays", tool="pay", verdict="ask", approvals_needed=2)
    approvers = [make_user(f"Person{number} Reyes", "approver") for number in range(people)]
    run = clerk.run(calls(call("p", "pay", account="ana", amount=20)), says("done"))
    [approval] = clerk.open(run)
    results: list[Any] = []
    while Approval.objects.get(pk=approval.pk).state == Approval.State.PENDING:
        waiting = [user for user in approvers if not Decision.objects.filter(approval=approval, user=user).exists()]
        found = race(*(approval_of(approval, user) for user in waiting))
        assert all(isinstance(one, actions.Refused) or not isinstance(one, BaseException) for one in found), found
        results += found
    taken = [one for one in results if not isinstance(one, BaseException)]
    assert (len(taken), Decision.objects.filter(approval=approval).count()) == (2, 2)
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1
