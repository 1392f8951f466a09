"""Takes one answer to a request, a person's or a customer's, and lets the run go on when it takes effect."""

from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import transaction

from agentapp import nudges, runs
from agentapp.refused import Refused
from approvals import decisions, ledger, standing
from approvals.models import Approval


def take(approval: Approval, incoming: decisions.Incoming) -> decisions.Taken:
    """Take an answer, or raise Refused with the current state of the request."""
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        taken = decisions.decide(approval.pk, incoming, timedelta(seconds=settings.APPROVAL_USE_WITHIN_SECONDS))
        if isinstance(taken, decisions.Taken) and not taken.repeated and run is not None and taken.approval.runs_at:
            # An earlier decision that is still held keeps its time.
            runs.wake(run, min(run.wake_at or taken.approval.runs_at, taken.approval.runs_at))
            transaction.on_commit(partial(nudges.answered, run.pk, taken.approval.hold_seconds), robust=True)
    if isinstance(taken, standing.Refusal):
        approval.refresh_from_db()
        raise Refused.by(taken, approval)
    return taken
