"""Statements composed once give what their querysets give, with any values."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, connections, transaction
from django.db.models import CharField, F, IntegerField
from django.test.utils import CaptureQueriesContext

from agentapp.models import Run
from approvals.clock import Now
from approvals.prepared import Given, Prepared, PreparedUpdate
from tests.conftest import Clerk, call, calls, says

pytestmark = pytest.mark.django_db

NAMED = Prepared(lambda: User.objects.filter(username=Given("name", CharField())).order_by("pk"))


@pytest.fixture
def people() -> list[User]:
    return [User.objects.create(username=name) for name in ("ann", "ben", "cleo")]


def test_it_gives_the_row_that_is_asked_for_each_time(people: list[User]) -> None:
    for person in (*people, *reversed(people)):
        assert NAMED.rows(name=person.username) == [person]
    assert NAMED.rows(name="nobody") == []
    assert NAMED.first(name="nobody") is None


def test_a_row_is_what_the_queryset_would_give(clerk: Clerk) -> None:
    run = clerk.run(calls(call("a", "look_up", what="1")), says("Done."))
    found = Run.objects.select_related("agent", "starter").annotate(twice=F("step_count") * 2).defer("input")
    kept = Prepared(lambda: found.filter(pk=Given("run", Run._meta.pk)))
    for _ in range(2):
        (ours,), theirs = kept.rows(run=run.pk), found.get(pk=run.pk)
        assert ours.get_deferred_fields() == theirs.get_deferred_fields() == {"input"}
        assert _columns(ours) == _columns(theirs)
        with CaptureQueriesContext(connection) as asked:
            assert (ours.agent, ours.starter) == (theirs.agent, theirs.starter)
        assert not asked.captured_queries


def _columns(row: Run) -> dict[str, Any]:
    return {name: value for name, value in vars(row).items() if name != "_state"}


def test_what_is_not_a_model_is_given_as_the_queryset_gives_it(people: list[User]) -> None:
    of_one = Prepared(lambda: User.objects.filter(pk=Given("pk", IntegerField())).values_list("username", "is_active"))
    names = Prepared(lambda: User.objects.order_by("username").values_list("username", flat=True)[:2])
    assert of_one.first(pk=people[1].pk) == ("ben", True)
    assert names.rows() == ["ann", "ben"]


def test_nothing_equals_what_is_not_there(people: list[User]) -> None:
    assert NAMED.rows(name=None) == []


@pytest.mark.parametrize("given", [{}, {"nome": "ann"}, {"name": "ann", "age": 3}], ids=["none", "other", "more"])
def test_what_a_statement_does_not_ask_for_cannot_be_given(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="name"):
        NAMED.rows(**given)


def test_text_is_a_value_and_never_part_of_the_statement(people: list[User]) -> None:
    assert NAMED.rows(name="ann' OR '1'='1") == []
    assert NAMED.rows(name="%s") == []


def test_it_is_put_together_once() -> None:
    built = []

    def build() -> Any:
        built.append(1)
        return User.objects.filter(username=Given("name", CharField()))

    kept = Prepared(build)
    for name in ("ann", "ben"):
        kept.rows(name=name)
    assert built == [1]


def test_a_change_says_of_how_many_rows(people: list[User]) -> None:
    rename = PreparedUpdate(
        lambda: (
            User.objects.filter(username=Given("name", CharField())),
            {"first_name": Given("to", CharField()), "last_login": Now(), "last_name": F("username")},
        )
    )
    assert rename(name="ann", to="Ann") == 1
    assert rename(name="ben", to="Ben") == 1
    assert rename(name="nobody", to="Nobody") == 0
    ann, ben, cleo = User.objects.order_by("username")
    assert [(each.first_name, each.last_name) for each in (ann, ben, cleo)] == [
        ("Ann", "ann"),
        ("Ben", "ben"),
        ("", ""),
    ]
    assert ann.last_login is not None
    assert cleo.last_login is None


def test_a_change_that_fails_leaves_its_transaction_to_be_rolled_back(people: list[User]) -> None:
    collide = PreparedUpdate(lambda: (User.objects.filter(pk__gt=0), {"username": Given("name", CharField())}))
    with transaction.atomic():
        with pytest.raises(IntegrityError):
            collide(name="same")
        assert connection.needs_rollback
        transaction.set_rollback(True)
    assert set(User.objects.values_list("username", flat=True)) >= {"ann", "ben", "cleo"}


@pytest.mark.django_db(transaction=True)
def test_rows_are_locked_within_a_transaction_only() -> None:
    locking = Prepared(lambda: User.objects.select_for_update().filter(pk=Given("pk", IntegerField())))
    user = User.objects.create(username="ann")
    with transaction.atomic():
        assert locking.rows(pk=user.pk) == [user]
    with pytest.raises(transaction.TransactionManagementError):
        locking.rows(pk=user.pk)


@pytest.mark.django_db(transaction=True)
def test_every_thread_asks_over_its_own_connection() -> None:
    user = User.objects.create(username="ann")
    seen: list[tuple[list[User], int]] = []

    def ask() -> None:
        with CaptureQueriesContext(connection) as asked:
            found = NAMED.rows(name="ann")
        seen.append((found, len(asked.captured_queries)))
        connections.close_all()

    NAMED.rows(name="ann")
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [([user], 1)] * 4
