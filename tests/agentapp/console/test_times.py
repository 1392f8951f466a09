"""Target times, what happens while nobody decides, and asking again: on rows and pages."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from agentapp.console import formats
from approvals import decisions, ledger
from approvals.escalation import Step
from approvals.models import Approval
from tests.conftest import make_user
from tests.rows import a_moment_ago

pytestmark = pytest.mark.django_db

Ask = Callable[..., Approval]


@pytest.fixture
def leads(roles: dict[str, Group]) -> Group:
    group = Group.objects.create(name="leads")
    group.permissions.set(roles["approver"].permissions.filter(codename="decide_approval"))
    return group


def read(page: Client, path: str) -> str:
    answer = page.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def late(approval: Approval, minutes: int = 12) -> None:
    past = timezone.now() - timedelta(minutes=minutes, seconds=5)
    Approval.objects.filter(pk=approval.pk).update(target_at=past)


def test_a_row_counts_down_to_its_target_and_turns_when_it_is_missed(page: Client, waiting: Ask) -> None:
    approval = waiting(target_seconds=600)
    assert "Target in" in read(page, "/inbox/")
    late(approval)
    shown = read(page, "/inbox/")
    assert "12 min over target" in shown
    assert "Target in" not in shown


def test_a_row_without_a_target_says_nothing_of_it(page: Client, waiting: Ask) -> None:
    waiting()
    assert "arget in" not in read(page, "/inbox/")


def test_the_inbox_can_be_narrowed_to_missed_targets(page: Client, waiting: Ask) -> None:
    waiting(target_seconds=600, title="In time")
    late(waiting(target_seconds=600, title="Too late"))
    shown = read(page, "/inbox/?late=1")
    assert "Too late" in shown
    assert "In time" not in shown


def test_a_page_says_by_when_somebody_should_decide(page: Client, waiting: Ask) -> None:
    approval = waiting(target_seconds=600)
    assert "Somebody should decide by" in read(page, f"/approvals/{approval.pk}/")
    late(approval)
    assert "12 min over target" in read(page, f"/approvals/{approval.pk}/side/")


def test_a_page_says_what_happens_while_nobody_decides_and_then_what_has(
    page: Client, waiting: Ask, roles: dict[str, Group], leads: Group
) -> None:
    steps = (Step(60, remind=True), Step(120, "leads"))
    approval = waiting(groups=(roles["approver"].pk,), escalation=steps)
    shown = read(page, f"/approvals/{approval.pk}/")
    assert "Those who may decide are reminded" in shown
    assert "leads may decide too" in shown
    for _ in steps:
        a_moment_ago(approval, "escalates_at")
        with ledger.transaction():
            assert decisions.escalate(approval.pk)
    shown = read(page, f"/approvals/{approval.pk}/side/")
    assert "Those who may decide were reminded" in shown
    assert shown.count("leads may decide too") == 2, "among the steps, and in the history"


def test_the_pages_of_a_request_are_the_new_group_s_from_then_on_and_not_before(
    client: Client, waiting: Ask, roles: dict[str, Group], leads: Group
) -> None:
    approval = waiting(groups=(roles["approver"].pk,), escalation=(Step(60, "leads"),), title="Refund Ana")
    client.force_login(make_user("Lea Lead", "leads"))
    paths = [f"/approvals/{approval.pk}/{part}" for part in ("", "side/", "state/")] + [f"/inbox/peek/{approval.pk}/"]
    assert [client.get(path).status_code for path in paths] == [404] * len(paths)
    assert "Refund Ana" not in read(client, "/inbox/")
    a_moment_ago(approval, "escalates_at")
    with ledger.transaction():
        decisions.escalate(approval.pk)
    assert [client.get(path).status_code for path in paths] == [200] * len(paths)
    assert "Refund Ana" in read(client, "/inbox/")


def expired(approval: Approval) -> Approval:
    a_moment_ago(approval, "expires_at")
    with ledger.transaction():
        assert decisions.expire(approval.pk)
    return approval


def test_a_person_asks_again_on_the_page_of_what_nobody_decided(page: Client, waiting: Ask) -> None:
    approval = expired(waiting())
    assert "Ask again" in read(page, f"/approvals/{approval.pk}/")
    answer = page.post(f"/approvals/{approval.pk}/ask-again/")
    assert answer.status_code == 302
    approval.refresh_from_db()
    assert approval.state == "superseded"


def test_looking_asks_nothing_again(page: Client, waiting: Ask) -> None:
    approval = expired(waiting())
    assert page.get(f"/approvals/{approval.pk}/ask-again/").status_code == 405
    approval.refresh_from_db()
    assert approval.state == "expired"


def test_where_the_agent_has_been_told_there_is_nothing_to_ask_again(page: Client, waiting: Ask) -> None:
    approval = expired(waiting())
    approval.refresh_from_db()
    with ledger.transaction():
        assert decisions.settle(approval)
    assert "Ask again" not in read(page, f"/approvals/{approval.pk}/")
    answer = page.post(f"/approvals/{approval.pk}/ask-again/")
    assert answer.status_code == 409
    assert "The agent has been told that no one decided" in answer.content.decode()


def test_whoever_may_only_look_is_offered_nothing(client: Client, waiting: Ask, mia: User) -> None:
    approval = expired(waiting())
    client.force_login(mia)
    assert "Ask again" not in read(client, f"/approvals/{approval.pk}/")
    assert client.post(f"/approvals/{approval.pk}/ask-again/").status_code == 403


@pytest.mark.parametrize(("seconds", "words"), [(5, "under a minute"), (60, "1 min"), (7300, "2 h"), (200_000, "2 d")])
def test_how_late_something_is_in_words(seconds: int, words: str) -> None:
    now = timezone.now()
    assert formats.over(now - timedelta(seconds=seconds), now) == words
