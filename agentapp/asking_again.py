"""Asks people again about a call that nobody decided in time, as long as its agent has not been told so."""

import uuid
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from agentapp import auth, executions, runs, tasks
from agentapp.models import Run, ToolExecution
from agentapp.refused import Refused
from approvals import decisions, ledger
from approvals.models import Approval
from approvals.standing import may_decide

TOLD = "The agent has been told that no one decided, so this request cannot be asked again."
WHY = "No one decided in time, and a person asks again."


def can_be_asked_again(approval: Approval, execution: ToolExecution | None, user: User) -> bool:
    """Whether this person may have people asked again: those who may decide, and the person who started the run.

    Possible while earlier calls of its step still wait or its run is paused: otherwise the agent has been told.
    """
    if approval.state != Approval.State.EXPIRED or approval.decided_at is not None or approval.used_at is not None:
        return False
    waits = execution is not None and execution.state == ToolExecution.State.WAITING and not execution.run.is_final
    return waits and _may_ask_again(user, approval)


def ask_again(approval_id: uuid.UUID, user: User) -> Run:
    """Let a call ask people once more, under the current rules. Returns its run."""
    approval = auth.visible_approvals(user).filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    if not _may_ask_again(user, approval):
        raise Refused("forbidden", "Only the person who started the run, or one who may decide, can ask again.")
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        execution = ToolExecution.objects.filter(approval=approval).first()
        if run is None or run.is_final or execution is None:
            raise _why_not(approval_id, run)
        if not decisions.ask_again(approval, ledger.actor_of(user)) or not executions.set_aside(execution, WHY):
            raise _why_not(approval_id, run)
        runs.wake(run, runs.clock(run))
        transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    return run


def _why_not(approval_id: uuid.UUID, run: Run | None) -> Refused:
    """Why it cannot be asked again, as it stands under the lock."""
    now = Approval.objects.get(pk=approval_id)
    if now.state == Approval.State.SUPERSEDED:
        return Refused("already_asked", "This has already been asked again: a new request has replaced this one.")
    told = now.decided_at is not None or now.used_at is not None
    if run is None or (run.is_final and not told):
        return Refused("run_ended", "The run has ended, so nobody can be asked about its calls any more.")
    if now.state == Approval.State.EXPIRED:
        return Refused("too_late", TOLD)
    if now.state in Approval.UNDECIDED:
        return Refused("already_asked", "People are already being asked about it.", approval=now)
    return Refused("already_decided", "Only a request that nobody decided in time can be asked again.", approval=now)


def _may_ask_again(user: User, approval: Approval) -> bool:
    return user.is_active and (approval.starter_id == user.pk or may_decide(user, approval) is None)
