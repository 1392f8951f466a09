"""Asking people anew about a call that nobody decided in time, as long as its agent has not been told so."""

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

TOLD = "The agent has been told that no one decided, so this cannot be asked again here."
WHY = "No one decided in time, and a person asks again."


def can_be_asked_again(approval: Approval, execution: ToolExecution | None, user: User) -> bool:
    """Whether this person may have people asked anew: whoever may decide about it, or whose run it is.

    Calls before it in its step still wait, or its run is paused: else the agent has been told.
    """
    if approval.state != Approval.State.EXPIRED or approval.decided_at is not None or approval.used_at is not None:
        return False
    waits = execution is not None and execution.state == ToolExecution.State.WAITING and not execution.run.is_final
    return waits and _may_ask_again(user, approval)


def ask_again(approval_id: uuid.UUID, user: User) -> Run:
    """Let a call ask people once more, by the rules of now. Returns its run."""
    approval = auth.visible_approvals(user).filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    if not _may_ask_again(user, approval):
        raise Refused("forbidden", "Those who may decide about it can ask again, and whoever started the run.")
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
    """Why it cannot be asked again, by what stands now that nobody else can change it."""
    now = Approval.objects.get(pk=approval_id)
    if now.state == Approval.State.SUPERSEDED:
        return Refused("already_asked", "Somebody has asked again already, so this request is replaced by a new one.")
    told = now.decided_at is not None or now.used_at is not None
    if run is None or (run.is_final and not told):
        return Refused("run_ended", "The run has ended, so nobody can be asked about its calls any more.")
    if now.state == Approval.State.EXPIRED:
        return Refused("too_late", TOLD)
    if now.state in Approval.UNDECIDED:
        return Refused("already_asked", "People are being asked about it now.", approval=now)
    return Refused("already_decided", "Only what nobody decided in time can be asked again.", approval=now)


def _may_ask_again(user: User, approval: Approval) -> bool:
    return user.is_active and (approval.starter_id == user.pk or may_decide(user, approval) is None)
