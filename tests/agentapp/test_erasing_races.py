"""Erasing meets what is begun at the same moment of what is erased: either it goes too, or it does not begin."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from agentapp import actions, conversations, erasing, evaluating, forking, retention
from agentapp.evals import recording, suites
from agentapp.models import Conversation, Erasure
from agentapp.refused import Refused
from approvals import ledger
from tests.agentapp.test_erasing import NAME, ended, kept

pytestmark = pytest.mark.django_db(transaction=True)


def beside(what: Callable[[], Any]) -> threading.Thread:
    """Somebody else's thread, whose refusal is theirs to read."""

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
        other.join(2)  # it waits for what is begun to be there; if it does not, it is done by now
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
        other.join(2)
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
        other.join(2)
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
        other.join(2)
    other.join(20)
    second.join(20)
    assert Erasure.objects.get().done_at is not None
    assert Conversation.objects.count() == 3
    assert NAME not in kept()
