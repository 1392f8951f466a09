"""Who can still approve a high-risk call after somebody's change: named, counted, or nobody."""

import pytest
from django.contrib.auth.models import Group, User

from approvals import remaining
from approvals.models import Approval
from tests.approvals.test_delegations import lend
from tests.conftest import make_user
from tests.rows import a_request, read, take

pytestmark = pytest.mark.django_db
ELSE = "Unless somebody gets that right before time runs out, it does not run."
LESS = {"amount": 1}


def words(approval: Approval, *changing: User) -> str | None:
    found = remaining.of(read(approval), [user.pk for user in changing])
    return found.words if found is not None else None


def changed(approval: Approval, user: User) -> Approval:
    return take(approval, user, "edit", arguments=LESS)


def test_whoever_else_may_decide_is_named(dana: User, marco: User) -> None:
    approval = a_request(risk="high")
    assert words(approval) is None
    assert words(approval, dana) == "Marco Reyes may approve this."
    assert words(changed(approval, dana)) == "Marco Reyes may approve this."


def test_that_nobody_else_may_is_said_while_it_is_changed_and_after(dana: User) -> None:
    approval = a_request(risk="high")
    assert words(approval, dana) == f"Nobody else may approve this. {ELSE}"
    assert words(changed(approval, dana)) == f"Nobody else may approve this. {ELSE}"
    make_user("Nora Lind", "approver")
    assert words(approval) == "Nora Lind may approve this."


def test_many_are_counted_and_fewer_than_it_needs_are_said_to_be(dana: User, marco: User) -> None:
    approval = a_request(risk="high", approvals_needed=2)
    assert words(approval, dana) == f"Only Marco Reyes may approve this, and 2 people must. {ELSE}"
    for name in ("Ana One", "Bo Two", "Cy Three", "Di Four"):
        make_user(name, "approver")
    assert words(approval, dana) == "Ana One, Bo Two, Cy Three or 2 others may approve this, and 2 of them must."
    approval = take(changed(approval, dana), marco)
    assert words(approval) == "Ana One, Bo Two, Cy Three or 1 other may approve this."


def test_who_was_lent_the_right_of_whoever_changed_it_is_none_of_them(
    dana: User, marco: User, roles: dict[str, Group]
) -> None:
    finance = Group.objects.create(name="finance")
    dana.groups.add(finance)
    lend(dana, marco, finance)
    approval = a_request(risk="high", groups=(finance.pk,))
    assert words(approval, dana) == f"Nobody else may approve this. {ELSE}"
    assert words(changed(approval, dana)) == f"Nobody else may approve this. {ELSE}"


def test_the_starter_and_whoever_had_a_hand_in_the_run_are_none_of_them(dana: User, marco: User) -> None:
    nora = make_user("Nora Lind", "approver")
    approval = a_request(risk="high", starter_id=marco.pk, excluded=[nora.pk])
    assert words(approval, dana) == f"Nobody else may approve this. {ELSE}"


@pytest.mark.parametrize("risk", ["low", "medium"])
def test_below_high_risk_nobody_stands_back(dana: User, risk: str) -> None:
    assert words(a_request(risk=risk), dana) is None


def test_once_it_is_decided_nothing_is_said(dana: User, marco: User) -> None:
    assert words(take(changed(a_request(risk="high"), dana), marco)) is None
