"""Two things at once about one request. On PostgreSQL they truly meet; SQLite lets one in at a time.

Two people at once, and one who presses twice, are in `test_invariants`.
"""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agentapp import actions, deciding, executions, runs
from agentapp.actions import NewDecision, Refused
from agentapp.models import Run, ToolExecution
from approvals import decisions, ledger
from approvals.models import Approval, Event
from tests.races import few_tries, race, tries
from tests.rows import a_card, a_claimed_run, a_moment_ago, a_proposal, a_step, a_tool, read, take, within_transaction

pytestmark = pytest.mark.django_db(transaction=True)

State = Approval.State


@pytest.fixture
def tool(transactional_db):
    return a_tool()


def held(tool, starter, **card: Any) -> tuple[Run, uuid.UUID, Approval]:
    """A run that a worker holds, with one call that people were just asked about."""
    run, token = a_claimed_run(starter)
    _, [execution] = a_step(run, token, [a_proposal(tool, asks=True)])
    with ledger.transaction():
        runs.held(run.pk, token)
        card = a_card(run_id=run.pk, execution_id=execution.pk, starter_id=starter.pk, **card)
        [approval] = decisions.request([card], timezone.now())
        executions.hold([execution], [approval])
    return run, token, approval


def waiting(tool, starter, **card: Any) -> tuple[Run, Approval]:
    run, token, approval = held(tool, starter, **card)
    within_transaction(runs.park, run, token, "approval")
    return run, approval


def decision_of(approval: Approval, user: Any, type: str = "approve") -> Callable[[], decisions.Taken]:
    now = read(approval)
    message = "" if type == "approve" else "Because."
    new = NewDecision(uuid.uuid4(), type, now.version, now.final_digest or now.action_digest, message=message)
    return lambda: actions.decide(approval.pk, new, user)


def split(results: list[Any]) -> tuple[list[Any], list[Refused]]:
    """What was done, and what was refused. Anything else is a failure of the product."""
    refused = [result for result in results if isinstance(result, Refused)]
    done = [result for result in results if not isinstance(result, Refused)]
    assert not [result for result in done if isinstance(result, BaseException)], done
    return done, refused


def holds(run: Run) -> list[str]:
    """The run's events, after checking their chain."""
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None
    return list(Event.objects.filter(run_id=run.pk).order_by("seq").values_list("type", flat=True))


# --- Two people --------------------------------------------------------------------------------


def test_of_two_approvals_that_are_both_needed_none_is_lost(tool, sam, dana, marco):
    for _ in range(tries()):
        run, approval = waiting(tool, sam, approvals_needed=2)
        done, refused = split(race(decision_of(approval, dana), decision_of(approval, marco)))
        # The second person looked at the request before it changed, and is asked to look again.
        assert [refusal.code for refusal in refused] == ["changed"]
        second = marco if done[0].decision.user == dana else dana
        assert decision_of(approval, second)().approval.state == State.APPROVED
        assert holds(run)[-1] == "approval.approved"


# --- A person and the end of the request -------------------------------------------------------


def test_a_decision_or_the_cancellation_of_the_run_comes_first(tool, sam, dana):
    sam.is_superuser = True
    sam.save()
    for _ in range(tries()):
        run, approval = waiting(tool, sam)
        _, refused = split(race(decision_of(approval, dana), lambda pk=run.pk: actions.cancel_run(pk, sam)))
        run.refresh_from_db()
        assert (run.state, read(approval).state) == (Run.State.CANCELLED, State.WITHDRAWN)
        if refused:
            assert refused[0].message == "This request was withdrawn because its run ended."
        told = holds(run)
        assert told[-1] == "run.cancelled"
        assert told.count("approval.approved") == 1 - len(refused)
        assert not within_transaction(decisions.consume, a_moment_ago(approval, "runs_at"))


def test_a_decision_or_the_expiry_comes_first(tool, sam, dana):
    outcomes = set()
    for number in range(tries()):
        run, approval = waiting(tool, sam)
        # Some have expired, some have not, and some expire in the meantime.
        expires_at = timezone.now() + timedelta(milliseconds=number % 3 * 4)
        Approval.objects.filter(pk=approval.pk).update(expires_at=expires_at)

        def expire(run_id=run.pk, pk=approval.pk) -> bool:
            with ledger.transaction():
                runs.lock(run_id)
                return decisions.expire(pk)

        decided, expired = race(decision_of(approval, dana), expire)
        state = read(approval).state
        outcomes.add(state)
        if isinstance(decided, Refused):
            assert decided.code in ("expired", "already_decided")
            assert state in (State.EXPIRED, State.PENDING)
            assert (state == State.EXPIRED) == expired
        else:
            assert (state, expired) == (State.APPROVED, False)
        assert len([t for t in holds(run) if t in ("approval.approved", "approval.expired")]) <= 1
    assert State.EXPIRED in outcomes


# --- A person and the worker -------------------------------------------------------------------


def test_an_approval_is_taken_back_or_used_and_never_both(tool, sam, dana):
    outcomes = []
    for _ in range(tries()):
        run, approval = waiting(tool, sam)
        approval = a_moment_ago(take(approval, dana), "runs_at")
        execution = ToolExecution.objects.get(run=run)

        def use(run_id=run.pk, approval=approval, execution=execution) -> bool:
            with ledger.transaction():
                runs.lock(run_id)
                if not decisions.consume(approval):
                    return False
                return executions.begin(execution, approval.final_arguments_text, uuid.uuid4().hex)

        undone, used = race(lambda pk=approval.pk: actions.undo_decision(pk, dana), use)
        outcomes.append(used)
        execution.refresh_from_db()
        if used:
            assert isinstance(undone, Refused)
            assert undone.code == "too_late"
            assert (read(approval).state, execution.state) == (State.USED, ToolExecution.State.EXECUTING)
        else:
            assert isinstance(undone, Approval), undone
            assert (read(approval).state, execution.state) == (State.PENDING, ToolExecution.State.WAITING)
        assert len([t for t in holds(run) if t in ("approval.used", "approval.undone")]) == 1


def test_an_approval_is_used_by_one_of_many_workers(tool, sam, dana):
    for _ in range(tries()):
        run, approval = waiting(tool, sam)
        approval = a_moment_ago(take(approval, dana), "runs_at")

        def use(run_id=run.pk, approval=approval) -> bool:
            with ledger.transaction():
                runs.lock(run_id)
                return decisions.consume(approval)

        assert sorted(race(*[use] * 4)) == [False, False, False, True]
        assert holds(run).count("approval.used") == 1


def test_using_without_the_lock_on_the_run_is_still_once_at_most(tool, sam, dana):
    """The lock is what makes it orderly; the condition is what makes it safe."""
    for _ in range(tries()):
        run, approval = waiting(tool, sam)
        approval = a_moment_ago(take(approval, dana), "runs_at")
        results = race(*[lambda approval=approval: within_transaction(decisions.consume, approval)] * 4)
        assert [result for result in results if result is True] == [True]
        assert holds(run).count("approval.used") == 1


def test_a_rejection_that_meets_a_run_letting_go_always_wakes_it(tool, sam, dana):
    """The worker looks again under the lock before it lets go; a decision wakes a run that was let go.

    Either the worker sees the decision and goes on, or the run is waiting and due. (For approvals: `test_invariants`.)
    """
    for _ in range(tries()):
        run, token, approval = held(tool, sam)

        def let_go(run=run, token=token, pk=approval.pk) -> bool:
            with ledger.transaction():
                runs.held(run.pk, token)
                if Approval.objects.get(pk=pk).state != State.PENDING:
                    return False
                runs.park(run, token, "approval")
                return True

        let_go_of_it, decided = race(let_go, decision_of(approval, dana, "reject"))
        assert isinstance(decided, decisions.Taken), decided
        run.refresh_from_db()

        if let_go_of_it:
            assert (run.state, run.wake_at) == (Run.State.WAITING, decided.approval.runs_at)
            Run.objects.filter(pk=run.pk).update(wake_at=timezone.now() - timedelta(seconds=1))
            assert runs.claim(run.pk) is not None
        else:
            assert (run.state, run.lease_token) == (Run.State.RUNNING, token)
        holds(run)


def test_a_cancellation_that_meets_a_run_letting_go_always_ends_it(tool, sam):
    sam.is_superuser = True
    sam.save()
    for _ in range(tries()):
        run, token, _ = held(tool, sam)

        def let_go(run=run, token=token) -> bool:
            with ledger.transaction():
                if runs.held(run.pk, token).cancel_requested_at is not None:
                    return False
                runs.park(run, token, "approval")
                return True

        let_go_of_it, cancelled = race(let_go, lambda pk=run.pk: actions.cancel_run(pk, sam))
        assert isinstance(cancelled, Run), cancelled
        run.refresh_from_db()
        if let_go_of_it:
            assert run.state == Run.State.CANCELLED
        else:
            assert run.state == Run.State.RUNNING
            assert run.cancel_requested_at is not None
        holds(run)


# --- A customer --------------------------------------------------------------------------------


def confirming(approval: Approval, yes: bool = True) -> Callable[[], decisions.Taken]:
    """A customer's answer about what they see now, submitted as their conversation's page and API submit it."""
    now = read(approval)
    type_ = "approve" if yes else "reject"
    incoming = decisions.Incoming(
        uuid.uuid4(), type_, None, now.version, now.action_digest, via="link", customer="Ana"
    )  # fmt: skip
    return lambda: deciding.take(now, incoming)


CONFIRMATION = {"kind": "confirmation", "allowed_decisions": ("approve", "reject"), "starter_excluded": False}


def test_a_confirmation_or_a_cancellation_comes_first(tool, sam):
    for _ in range(few_tries()):
        run, approval = waiting(tool, sam, **CONFIRMATION)
        _, refused = split(race(confirming(approval), lambda pk=run.pk: actions.cancel_run(pk, sam)))
        run.refresh_from_db()
        assert (run.state, read(approval).state) == (Run.State.CANCELLED, State.WITHDRAWN)
        assert holds(run).count("approval.approved") == 1 - len(refused)
        assert not within_transaction(decisions.consume, a_moment_ago(approval, "runs_at"))


def test_a_confirmation_or_the_expiry_comes_first(tool, sam):
    for number in range(few_tries()):
        run, approval = waiting(tool, sam, **CONFIRMATION)
        expires_at = timezone.now() + timedelta(milliseconds=number % 3 * 4)
        Approval.objects.filter(pk=approval.pk).update(expires_at=expires_at)

        def expire(run_id=run.pk, pk=approval.pk) -> bool:
            with ledger.transaction():
                runs.lock(run_id)
                return decisions.expire(pk)

        answered, expired = race(confirming(approval), expire)
        state = read(approval).state
        if isinstance(answered, Refused):
            assert answered.code in ("expired", "already_decided")
            assert (state == State.EXPIRED) == expired
        else:
            assert (state, expired) == (State.APPROVED, False)
        assert len([t for t in holds(run) if t in ("approval.approved", "approval.expired")]) <= 1


def test_of_a_yes_and_a_no_of_one_customer_one_counts(tool, sam):
    for _ in range(few_tries()):
        run, approval = waiting(tool, sam, **CONFIRMATION)
        done, refused = split(race(confirming(approval), confirming(approval, yes=False)))
        assert (len(done), [one.code for one in refused]) == (1, ["already_decided"])
        assert approval.decisions.count() == 1
        assert len([t for t in holds(run) if t in ("approval.approved", "approval.rejected")]) == 1
