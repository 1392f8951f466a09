"""The only writer of Draft: what a model has said so far in a step, for people who watch. Nothing depends on it."""

import re
import uuid
from collections.abc import Iterable

from django.db import connection, transaction
from django.db.models import F

from agentapp.models import Draft, Run
from approvals.append_only import ANNOUNCED_ON
from approvals.clock import Now
from approvals.detectors import without_secrets
from approvals.digest import storable

MAX_CHARS = 100_000
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Chinese and Japanese. Keys are not written in them.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
# The last word may be the beginning of a secret, which can be recognised only when there is more of it.
_UNFINISHED = re.compile(rf"(?<![^\s{_UNSPACED}])[^\s{_UNSPACED}]+\Z")


def chain(run_id: uuid.UUID) -> str:
    """The name under which a change of a draft is announced. It is not a chain of the ledger."""
    return f"draft:{run_id}"


def write(run: Run, token: uuid.UUID, step: int, text: str) -> bool:
    """Keep what has come so far, in its own transaction. False: this lease no longer holds the run.

    Whatever looks like a secret is removed, as from the message that the draft becomes.
    """
    shown = without_secrets(_UNFINISHED.sub("", storable(text)))[:MAX_CHARS]
    with transaction.atomic():
        if not Run.objects.filter(pk=run.pk, lease_token=token, state=Run.State.RUNNING).exists():
            return False
        Draft.objects.bulk_create(
            [Draft(run=run, step=step, text=shown, updated_at=Now())],
            update_conflicts=True, unique_fields=["run"], update_fields=["step", "text", "updated_at"],
        )  # fmt: skip
        # SQLite's listeners read the rows instead.
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, %s)", [ANNOUNCED_ON, chain(run.pk)])
    return True


def discard(run: Run) -> None:
    """Delete a draft: its step is stored, or never will be. Storing the step announces it."""
    Draft.objects.filter(run=run).delete()


def under_way(run_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Draft]:
    """The drafts of steps that are being decided. A draft left by a dead worker soon drops out."""
    current = Draft.objects.filter(run__in=list(run_ids), run__state=Run.State.RUNNING, step=F("run__step_count") + 1)
    return {draft.run_id: draft for draft in current}
