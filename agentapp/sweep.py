"""What makes every nudge optional: it ends what has expired and finds the runs that are due."""

import uuid

from agentapp import runs, switches
from agentapp.models import Run
from approvals import decisions, ledger

BATCH = 500


def sweep() -> list[uuid.UUID]:
    """Expire what is overdue, wake what no kill switch holds any more. Returns the runs a worker should look at."""
    for approval_id, run_id in decisions.overdue(BATCH):
        with ledger.transaction():
            run = runs.lock(run_id)
            if decisions.expire(approval_id) and run is not None:
                runs.wake(run, runs.clock(run))
    with ledger.transaction():
        runs.wake_switched(list(switches.forgotten().values_list("pk", flat=True)[:BATCH]))
    return list(Run.objects.filter(runs.due()).order_by("updated_at").values_list("pk", flat=True)[:BATCH])
