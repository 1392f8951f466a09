"""Ends the rest of a plan: only people can, never a program."""

import uuid

from django.contrib.auth.models import User

from agentapp import auth, runs
from agentapp.refused import Refused
from approvals import ledger, plans
from approvals.models import Approval


def end_plan(approval_id: uuid.UUID, why: str, user: User) -> Approval:
    """Let no more calls of a plan run without asking. A call that has begun is not affected."""
    approval = auth.visible_approvals(user).filter(pk=approval_id).first()
    if approval is None or not approval.is_plan:
        raise Refused("not_found", "There is no such plan.")
    if not auth.may_end_plan(user):
        raise Refused("forbidden", "Ending a plan needs the right to decide approvals, or to engage kill switches.")
    if not why.strip():
        raise Refused("message_required", "Say why: the reason stays on record.", "reason")
    with ledger.transaction():
        runs.lock(approval.run_id)  # a call that begins now waits for this, or is seen here
        approval.refresh_from_db(fields=["erased_at"])
        ended = plans.end_one(approval, why.strip(), ledger.actor_of(user))
    if not ended:
        raise Refused("nothing_left", "Nothing is left of this plan.")
    return approval
