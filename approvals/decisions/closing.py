"""Requests that end without a decision: expired, withdrawn, superseded; and people who may decide no more."""

import uuid
from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db.models import F, Q

from approvals import ledger, questions
from approvals.clock import Now
from approvals.decisions.rows import close, tell
from approvals.models import Approval


def expire(approval_id: uuid.UUID) -> bool:
    """End a request nobody decided in time, or an approval nobody used in time. Absence never approves."""
    pending = Approval.objects.filter(pk=approval_id, state__in=Approval.UNDECIDED, expires_at__lte=Now())
    unused = Approval.objects.filter(pk=approval_id, state=Approval.State.APPROVED, use_by__lte=Now())
    if close(pending, Approval.State.EXPIRED):
        why = "no one decided"
    elif close(unused, Approval.State.EXPIRED):
        why = "approved, but not used in time"
    else:
        return False
    questions.close([approval_id])
    tell([approval_id])
    approval = Approval.objects.only("run_id").get(pk=approval_id)
    ledger.record(ledger.run_chain(approval.run_id), "approval.expired", {"approval": str(approval_id), "reason": why})
    return True


def ask_again(approval: Approval, actor: str) -> bool:
    """Set aside a request that nobody decided in time, so that its call asks anew. False: the agent has been told."""
    untold = Approval.objects.filter(
        pk=approval.pk, state=Approval.State.EXPIRED, decided_at__isnull=True, used_at__isnull=True
    )
    if not close(untold, Approval.State.SUPERSEDED):
        return False
    # Nobody is told: the request expired, as they know, and they are asked anew.
    reason = "no one decided in time, and a person asks again"
    data = {"approval": str(approval.pk), "reason": reason}
    ledger.record(ledger.run_chain(approval.run_id), "approval.superseded", data, actor)
    return True


def withdraw(run_id: uuid.UUID, reason: str) -> int:
    """Close every open request of a run that has ended. Returns how many."""
    open_ids = list(
        Approval.objects.filter(
            run_id=run_id, used_at__isnull=True, state__in=[*Approval.UNDECIDED, *Approval.DECIDED]
        ).values_list("pk", flat=True)
    )
    if not open_ids:
        return 0
    Approval.objects.filter(pk__in=open_ids).update(state=Approval.State.WITHDRAWN, version=F("version") + 1)
    questions.close(open_ids)
    tell(open_ids)
    for approval_id in open_ids:
        ledger.record(ledger.run_chain(run_id), "approval.withdrawn", {"approval": str(approval_id), "reason": reason})
    return len(open_ids)


def exclude(run_ids: Sequence[uuid.UUID], user: User) -> None:
    """Let a person decide nothing more about the requests of some runs, and count nothing they have decided.

    The caller holds the locks on the runs' rows and records why.
    """
    unused = Approval.objects.filter(
        run_id__in=run_ids, used_at__isnull=True, state__in=[*Approval.UNDECIDED, *Approval.DECIDED]
    )
    for approval in unused.only("excluded"):
        if user.pk in approval.excluded:
            continue
        theirs = Q(user=user) | Q(on_behalf_of=user)
        counted = approval.decisions.filter(theirs, undone_at__isnull=True).exists()
        # Whoever is about to act on what they decided finds that the request has changed.
        Approval.objects.filter(pk=approval.pk).update(
            excluded=[*approval.excluded, user.pk], version=F("version") + int(counted)
        )


def supersede(approval: Approval, reason: str) -> bool:
    """Set an open request aside because what it asked about has changed. A new one takes its place, or none need."""
    states = [*Approval.UNDECIDED, *Approval.DECIDED]
    found = Approval.objects.filter(pk=approval.pk, state__in=states, used_at__isnull=True)
    if not close(found, Approval.State.SUPERSEDED):
        return False
    questions.close([approval.pk])
    tell([approval.pk])
    ledger.record(
        ledger.run_chain(approval.run_id), "approval.superseded", {"approval": str(approval.pk), "reason": reason}
    )
    return True
