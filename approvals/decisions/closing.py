"""Requests that end without a decision (expired, withdrawn, superseded), and people who may no longer decide."""

import uuid
from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db.models import F, Q

from approvals import approval_events, questions
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
    read = Approval.objects.only(*approval_events.ABOUT, "created_at", "paused_seconds")
    approval = read.annotate(database_now=Now()).get(pk=approval_id)
    approval_events.record(
        approval, "expired", {"reason": why, **approval_events.took(approval, approval.database_now)}
    )
    return True


def lapse(approval_id: uuid.UUID) -> bool:
    """Expire a mocked run's request now. False: its run is not mocked, or it is no longer undecided."""
    waiting = Approval.objects.filter(pk=approval_id, mocked=True, state__in=Approval.UNDECIDED)
    return bool(waiting.update(expires_at=Now())) and expire(approval_id)


def ask_again(approval: Approval, actor: str) -> bool:
    """Set aside a request that nobody decided in time, so that its call asks again. False: the agent has been told."""
    untold = Approval.objects.filter(
        pk=approval.pk, state=Approval.State.EXPIRED, decided_at__isnull=True, used_at__isnull=True
    )
    if not close(untold, Approval.State.SUPERSEDED):
        return False
    # Nobody is told: they know that the request expired, and they are asked again.
    reason = "no one decided in time, and a person asks again"
    approval_events.record(approval, "superseded", {"reason": reason}, actor)
    return True


def withdraw(run_id: uuid.UUID, reason: str) -> int:
    """Close every open request of a run that has ended. Returns how many."""
    states = [*Approval.UNDECIDED, *Approval.DECIDED]
    open_ones = list(
        Approval.objects.filter(run_id=run_id, used_at__isnull=True, state__in=states).only(*approval_events.ABOUT)
    )
    if not open_ones:
        return 0
    open_ids = [approval.pk for approval in open_ones]
    close(Approval.objects.filter(pk__in=open_ids), Approval.State.WITHDRAWN)
    questions.close(open_ids)
    tell(open_ids)
    for approval in open_ones:
        approval_events.record(approval, "withdrawn", {"reason": reason})
    return len(open_ones)


def exclude(run_ids: Sequence[uuid.UUID], user: User) -> None:
    """Bar a person from deciding the requests of some runs, and stop counting what they have decided.

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
        # Anyone about to act on their decisions finds that the request has changed.
        Approval.objects.filter(pk=approval.pk).update(
            excluded=[*approval.excluded, user.pk], version=F("version") + int(counted)
        )


def supersede(approval: Approval, reason: str) -> bool:
    """Set an open request aside because what it asked about has changed. A new one takes its place if needed."""
    states = [*Approval.UNDECIDED, *Approval.DECIDED]
    found = Approval.objects.filter(pk=approval.pk, state__in=states, used_at__isnull=True)
    if not close(found, Approval.State.SUPERSEDED):
        return False
    questions.close([approval.pk])
    tell([approval.pk])
    approval_events.record(approval, "superseded", {"reason": reason})
    return True
