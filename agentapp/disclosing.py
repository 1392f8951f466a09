"""Shows what is masked to people who have the right to see it, and records it."""

import uuid
from typing import Any

from django.contrib.auth.models import User

from agentapp import auth, runs
from agentapp.discretion import REVEAL, SHOWN_SECONDS
from agentapp.refused import Refused
from approvals import approval_events, ledger, standing
from approvals.digest import parse
from approvals.models import Approval

REVEAL_SECRET = "approvals.reveal_secret"  # noqa: S105


def show_personal_data(run_id: uuid.UUID, user: User) -> None:
    """Record that a person asks to see personal data, but not the data: the ledger holds nothing about people."""
    if not auth.visible_runs(user).filter(pk=run_id).exists():
        raise Refused("not_found", "There is no such run.")
    if not user.has_perm(REVEAL):
        raise Refused("forbidden", "Only people with the right to see personal data are shown it.")
    with ledger.transaction():
        runs.lock(run_id)
        said = {"run": str(run_id), "seconds": SHOWN_SECONDS}
        ledger.record(ledger.run_chain(run_id), "privacy.revealed", said, ledger.actor_of(user))


def reveal_secret(approval_id: uuid.UUID, name: str, user: User) -> Any:
    """The value of a masked argument, for a person who may decide and has the right. Who saw it goes on record."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None or name not in approval.secret_fields:
        raise Refused("not_found", "There is no such masked argument.")
    forbidden = standing.may_decide(user, approval)
    if forbidden is not None:
        raise Refused(forbidden.code, "Only people who may decide about this request can see what is masked.")
    if not user.has_perm(REVEAL_SECRET):
        raise Refused("forbidden", "Seeing what is masked needs the right to see masked arguments.")
    arguments = parse(approval.final_arguments_text or approval.arguments_text)
    with ledger.transaction():
        runs.lock(approval.run_id)
        approval_events.record(approval, "revealed", {"name": name}, ledger.actor_of(user))
    return arguments.get(name) if isinstance(arguments, dict) else None
