"""Showing what is masked of people on the pages of a run: with the right to, and on record."""

import uuid

from django.contrib.auth.models import User

from agentapp import auth, runs
from agentapp.discretion import REVEAL, SHOWN_SECONDS
from agentapp.refused import Refused
from approvals import ledger


def show_personal_data(run_id: uuid.UUID, user: User) -> None:
    """Put on record that somebody asks to see it. What they see is not: the ledger holds nothing of people."""
    if not auth.visible_runs(user).filter(pk=run_id).exists():
        raise Refused("not_found", "There is no such run.")
    if not user.has_perm(REVEAL):
        raise Refused("forbidden", "Personal data is shown to those who have the right to see it.")
    with ledger.transaction():
        runs.lock(run_id)
        said = {"run": str(run_id), "seconds": SHOWN_SECONDS}
        ledger.record(ledger.run_chain(run_id), "privacy.revealed", said, ledger.actor_of(user))
