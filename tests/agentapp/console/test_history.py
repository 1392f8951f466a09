"""The history of a request: one line for a single event, and only one for repeated events."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import actions
from agentapp.console import history as pages
from agentapp.console.history import MAX_LINES, history
from approvals import claims, ledger, questions
from approvals.models import Approval
from tests.rows import take, undo

Waiting = Callable[..., Approval]
LEASE = timedelta(minutes=5)


def look_after(approval: Approval, user: User, times: int = 1, *, keeps: bool = False) -> None:
    for number in range(times):
        with ledger.transaction():
            assert not isinstance(claims.take(approval.pk, user, LEASE), claims.Refusal)
        if not keeps or number < times - 1:
            with ledger.transaction():
                assert claims.release(approval.pk, user) is None


def lines(approval: Approval) -> list[str]:
    return [entry.words for entry in history(approval)]


def test_a_question_stands_in_the_words_of_who_asked_as_long_as_they_are_kept(
    waiting: Waiting, page: Client, dana: User
) -> None:
    approval = waiting()
    question = actions.ask_agent(approval.pk, "Was a replacement offered?", dana)
    shown = page.get(f"/approvals/{approval.pk}/side/").content.decode()
    assert "Dana Whitfield asked the agent: Was a replacement offered?" in shown
    questions.erase([approval.pk])
    shown = page.get(f"/approvals/{approval.pk}/side/").content.decode()
    assert "Dana Whitfield asked the agent<" in shown
    assert "digest" not in shown
    assert question.text not in shown


def test_claims_and_releases_of_one_person_in_a_row_are_one_line(waiting: Waiting, dana: User, marco: User) -> None:
    approval = waiting()
    look_after(approval, dana, 3)
    look_after(approval, marco)
    look_after(approval, dana, 2, keeps=True)

    assert lines(approval)[1:] == [
        "Dana Whitfield claimed and released it",
        "Marco Reyes claimed and released it",
        "Dana Whitfield claimed it again",
    ]


def test_a_claim_by_itself_stays_as_it_is(waiting: Waiting, dana: User) -> None:
    approval = waiting()
    look_after(approval, dana, keeps=True)

    assert lines(approval) == ["Stopped by refunds-over-limit", "Dana Whitfield claimed it"]


def test_what_comes_after_many_claims_is_still_read(waiting: Waiting, dana: User, marco: User) -> None:
    approval = waiting()
    look_after(approval, dana, MAX_LINES)
    look_after(approval, marco)

    assert lines(approval)[-1] == "Marco Reyes claimed and released it"


def test_of_a_long_history_the_end_is_read_and_how_much_was_before_it(waiting: Waiting, dana: User) -> None:
    approval = waiting(hold_seconds=30)
    for _ in range(20):
        take(approval, dana)
        undo(approval, dana)
    take(approval, dana, "reject", message="No.")
    found = lines(approval)
    assert (len(found), found[0]) == (MAX_LINES, "3 earlier lines are left out")
    assert found[-2:] == ["Dana Whitfield took the decision back", "Dana Whitfield rejected it"]


def test_of_a_history_too_long_to_be_read_whole_the_end_is_read(
    waiting: Waiting, dana: User, marco: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = waiting()
    monkeypatch.setattr(pages, "MAX_EVENTS", 4)
    for user in (dana, marco, dana, marco):
        look_after(approval, user)
    assert lines(approval) == [
        "Earlier lines are left out",
        "Dana Whitfield claimed and released it",
        "Marco Reyes claimed and released it",
    ]
