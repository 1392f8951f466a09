"""What people say to each other about a request. It changes nothing, and no model sees it."""

import uuid

from django.contrib.auth.models import User

from agentapp import auth, runs
from agentapp.refused import Refused
from approvals import comments, ledger
from approvals.models import Approval
from approvals.standing import Refusal


def post_comment(approval_id: uuid.UUID, text: str, user: User) -> comments.Posted:
    """Post a comment that everybody who may see a request can read, in whatever state it is, unless it is erased."""
    approval: Approval | None = auth.visible_approvals(user).filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    with ledger.transaction():
        runs.lock(approval.run_id)
        approval.refresh_from_db(fields=["erased_at"])
        posted = comments.post(approval, user, text)
    if isinstance(posted, Refusal):
        raise Refused.by(posted, approval, field="text")
    return posted
