"""What the daily check of the ledger looks for in runs and calls: their chains, and what their events say of them."""

import uuid
from collections.abc import Sequence

from agentapp.models import Run, ToolExecution
from approvals.as_recorded import Compared, with_events
from approvals.digest import sha256
from approvals.ledger import run_chain
from approvals.models import Event
from approvals.proof.chains import Break
from approvals.sealed import digest_of

_DIGEST = '"executed_digest":'


def runs(after: uuid.UUID | None, most: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """The next runs after one, each paired with itself, as `verifying.told_of` expects: every run begins with an event,
    in the transaction that creates it.
    """
    rows = Run.objects.filter(pk__gt=after) if after else Run.objects.all()
    return [(key, key) for key in rows.order_by("pk").values_list("pk", flat=True)[:most]]


def compare(after: uuid.UUID | None, most: int) -> Compared:
    """Compare what the next calls after one ran with, and what the ledger says they were started with."""
    rows = ToolExecution.objects.only("run_id", "executed_text", "salt", "erased_at")
    return with_events(rows, after, most, "execution_id", ("tool_call.started",), _difference)


def _difference(row: ToolExecution, said: Sequence[Event]) -> Break | None:
    chain = run_chain(row.run_id)
    if not said:
        if not row.executed_text:
            return None
        return Break(chain, 1, f"no event says that the call {row.pk} was started, and its row does")
    told = [event for event in said if _DIGEST in event.body]
    # Reads at the start of a step begin together with it, before their digests are made.
    if not told or (row.erased_at is not None and row.executed_text == "{}"):
        return None
    # Before calls had a salt, the ledger had the plain digest.
    digest = digest_of(row.executed_text, row.salt) if row.salt else sha256(row.executed_text)
    named = f'{_DIGEST}"{digest}"'
    if any(event.chain == chain and named in event.body for event in told):
        return None
    return Break(chain, told[0].seq, f"what was started here is not what the row of the call {row.pk} says")
