"""The page of a request with thresholds: what it needs in words, and how far this person takes it."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from approvals.models import Approval
from tests.rows import take

pytestmark = pytest.mark.django_db


@pytest.fixture
def approval(waiting: Callable[..., Approval], dana: User, marco: User) -> Approval:
    groups = {name: Group.objects.create(name=name) for name in ("Payments", "Managers")}
    dana.groups.add(groups["Payments"])
    marco.groups.add(groups["Payments"], groups["Managers"])
    terms = [
        {"approve": 2, "deny": 2, "groups": [groups["Payments"].pk], "names": ["Payments"]},
        {"approve": 1, "deny": 2, "groups": [groups["Managers"].pk], "names": ["Managers"]},
    ]
    return waiting(terms=(terms,), groups=tuple(group.pk for group in groups.values()))


def html(user: User, approval: Approval) -> str:
    client = Client()
    client.force_login(user)
    return client.get(f"/approvals/{approval.pk}/").content.decode()


def test_the_button_says_which_of_how_many_each_person_is(approval: Approval, dana: User, marco: User) -> None:
    page = html(dana, approval)
    assert "Needs: Two of Payments, or one of Managers." in page
    assert "as 1 of 2" in page
    assert "as 1 of 2" not in html(marco, approval)  # one of Managers is enough


def test_a_rejection_that_is_not_enough_is_seen_by_the_others(approval: Approval, dana: User, marco: User) -> None:
    take(approval, dana, "reject")
    assert "1 of 2 rejections" in html(marco, approval)
    assert "You have rejected. This request needs another person too." in html(dana, approval)
    assert "rejected it; more people are needed to end it" in html(marco, approval)


def test_a_run_s_events_do_not_call_a_rejection_that_is_not_enough_an_approval(
    approval: Approval, dana: User, mia: User
) -> None:
    take(approval, dana, "reject")
    client = Client()
    client.force_login(mia)
    page = client.get(f"/runs/{approval.run_id}/?view=events").content.decode()
    row = page[page.rindex("<tr", 0, page.index(">approval.changed<")) :]
    assert '<b class="med">Rejected</b>' in row[: row.index("</tr>")]


def test_the_inbox_does_not_call_a_rejection_that_is_not_enough_an_approval(approval: Approval, dana: User) -> None:
    take(approval, dana, "reject")
    client = Client()
    client.force_login(dana)
    page = client.get(f"/inbox/?decided={approval.pk}").content.decode()
    assert "Rejected, others are needed too:" in page
    assert "<b>Approved" not in page
