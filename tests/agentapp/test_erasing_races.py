"""Erasing meets work that begins at the same moment on what is erased: either it goes too, or it does not begin."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.utils import timezone

from agentapp import actions, conversations, erasing, evaluating, forking, retention
from agentapp.evals import recording, suites
from agentapp.messages import ToolResult
from agentapp.models import Breaker, Conversation, Erasure, Run
from agentapp.refused import Refused
from agentapp.tools.base import ToolError, tool
from approvals import ledger
from tests.agentapp.test_erasing import NAME, ended, kept, last_errors
from tests.conftest import call, calls, says
from tests.races import met, race

pytestmark = pytest.mark.django_db(transaction=True)


def beside(what: Callable[[], Any]) -> threading.Thread:
    """Another person's thread, whose refusal is theirs to read."""

    def act() -> None:
        try:
            what()
        except Refused:
            pass
        finally:
            connection.close()

    return threading.Thread(target=act)


@pytest.mark.postgresql  # SQLite lets one writer in at a time
@pytest.mark.parametrize("branch", [False, True], ids=["try again", "fork"])
def test_what_is_begun_anew_of_a_run_as_it_is_erased_goes_with_it(clerk, dana, sam, ada, branch):
    run = ended(clerk, dana)
    other = beside(lambda: erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada)))
    with ledger.transaction():
        again = forking.fork_run(run.pk, forking.Fork(2), sam) if branch else actions.retry_run(run.pk, sam, 2)
        other.start()
        met(other)  # it waits for what is begun to exist
    other.join(20)
    clerk.drive(again)
    retention.apply_due()
    assert Erasure.objects.get().done_at is not None
    assert NAME not in kept()


@pytest.mark.postgresql
def test_a_case_that_is_made_of_a_run_as_it_is_erased_goes_with_it(clerk, dana, ada):
    run, suite = ended(clerk, dana), suites.create("desk", "", "test")
    other = beside(lambda: erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada)))
    case = suites.read_case(recording.document_of(run, "pays-back"))
    with ledger.transaction():
        evaluating.save_case(suite, case, ada, made_of=run)
        other.start()
        met(other)
    other.join(20)
    assert Erasure.objects.get().done_at is not None
    assert NAME not in kept()


@pytest.mark.postgresql
def test_a_fork_of_a_conversation_that_copies_what_is_erased_just_then_has_nothing_of_it(clerk, dana, ada):
    run = ended(clerk, dana, conversation="ticket-1")
    other = beside(lambda: erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada)))
    with ledger.transaction():
        conversations.fork(run.conversation, None, "ticket-1b")
        other.start()
        met(other)
    other.join(20)
    assert Erasure.objects.get().done_at is not None
    assert NAME not in kept()


@pytest.mark.postgresql
def test_a_fork_of_a_fork_that_was_not_there_when_its_erasure_began_has_nothing_of_it(clerk, dana, ada):
    run = ended(clerk, dana, conversation="ticket-1")
    copied, erased = threading.Event(), threading.Event()

    def fork_again() -> None:
        with ledger.transaction():
            conversations.fork(Conversation.objects.get(key="ticket-1b"), None, "ticket-1c")
            copied.set()
            erased.wait(20)

    second = beside(fork_again)

    def fork_before_it_is_taken_away(execute, sql, params, many, context):
        if sql.startswith('UPDATE "agentapp_message"') and second.ident is None:
            second.start()
            copied.wait(2)  # if it may not copy now, it waits for what is erased
        return execute(sql, params, many, context)

    def erase() -> None:
        with connection.execute_wrapper(fork_before_it_is_taken_away):
            erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
        erased.set()

    other = beside(erase)
    with ledger.transaction():
        conversations.fork(run.conversation, None, "ticket-1b")
        other.start()
        met(other)
    other.join(20)
    second.join(20)
    assert Erasure.objects.get().done_at is not None
    assert Conversation.objects.count() == 3
    assert NAME not in kept()


def _answer(about: str) -> ToolResult:
    if about:
        raise ToolError(f"No line to {about}.")
    return ToolResult(data="It rings.", control={"session_mode": "manual"})


@tool(effect="read", max_attempts=1)
def reach(about: str = "") -> ToolResult:
    """Fail about somebody, or let a person speak next."""
    return _answer(about)


@tool(effect="reversible", max_attempts=1)
def ring(about: str = "") -> ToolResult:
    """As `reach`, and something comes of it."""
    return _answer(about)


class Crossing:
    """Two lock rows of the same tables, and each has locked rows of one before either goes on to another.

    If both start with the same table, the second cannot, and the first goes on alone after a while.
    """

    def __init__(self, *models: type[Model]) -> None:
        self._locks = [f'FROM "{model._meta.db_table}"' for model in models]
        self._met, self._both = threading.local(), threading.Barrier(2, timeout=2)

    def __call__(self, execute, sql, params, many, context):
        found = execute(sql, params, many, context)
        if "FOR UPDATE" in sql and any(lock in sql for lock in self._locks) and not hasattr(self._met, "once"):
            self._met.once = True
            with suppress(threading.BrokenBarrierError):
                self._both.wait()
        return found

    def during(self, act: Callable[[], Any]) -> Callable[[], Any]:
        def crossing() -> Any:
            with connection.execute_wrapper(self):
                return act()

        return crossing


@pytest.mark.postgresql
@pytest.mark.parametrize("by", ["a person", "retention"])
@pytest.mark.parametrize("name", ["reach", "ring"], ids=["read", "write"])
def test_a_call_that_wants_a_person_to_speak_is_kept_while_a_failure_of_its_tool_is_erased_there(
    clerk, offer, dana, ada, settings, name, by
):
    """Both change the tool's breakers and the conversation, and lock them in one order."""
    offer(reach, ring)
    settings.RETENTION_DAYS = {"content": 30}
    talk = {"conversation": "ticket-1"}
    failed = clerk.run(calls(call("a", name, about=NAME)), says("There is no line."), **talk)
    calling = clerk.start(calls(call("a", name)), says("Somebody comes."), **talk)
    if name == "ring":
        clerk.decide(*clerk.open(failed), dana)
        clerk.drive(failed)
        clerk.drive(calling)
        clerk.decide(*clerk.open(calling), dana)
    long_ago = timezone.now() - timedelta(days=31)
    Run.objects.filter(pk=failed.pk).update(finished_at=long_ago)
    failed.messages.update(created_at=long_ago)
    assert NAME in last_errors()["tool"]

    def erase() -> object:
        if by == "retention":
            return retention.apply()
        return erasing.erase("run", str(failed.pk), "Ticket 12", ada, ledger.actor_of(ada))

    crossing = Crossing(Breaker, Conversation)
    came = race(crossing.during(erase), crossing.during(lambda: clerk.drive(calling)))
    assert not [error for error in came if isinstance(error, Exception)]
    calling.refresh_from_db()
    assert (calling.state, clerk.execution(calling, "a").result_status) == ("succeeded", "ok")
    assert Conversation.objects.get().person_wanted == Conversation.Wants.AGENT
    # If a person is wanted, what was said stays: retention may have come second.
    assert by == "retention" or NAME not in kept()
