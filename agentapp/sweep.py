"""What makes every nudge optional: it ends what has expired and finds the runs that are due."""

import uuid

from agentapp import runs, switches
from agentapp.models import Run
from approvals import claims, decisions, ledger, questions, standing

BATCH = 500


def sweep() -> list[uuid.UUID]:
    """End what is overdue, wake what no kill switch holds any more, hand on what is with somebody who has gone away,
    forget who looked after what has ended.

    Returns the runs a worker should look at.
    """
    for question_id, run_id in questions.overdue(BATCH):
        with ledger.transaction():
            runs.lock(run_id)
            decisions.go_on(question_id, "no answer came in time")
    for approval_id, run_id in standing.overdue(BATCH):
        with ledger.transaction():
            run = runs.lock(run_id)
            if decisions.expire(approval_id) and run is not None:
                runs.wake(run, runs.clock(run))
    with ledger.transaction():
        runs.wake_switched(list(switches.forgotten().values_list("pk", flat=True)[:BATCH]))
    for approval_id, run_id in claims.left_behind(BATCH):
        with ledger.transaction():
            runs.lock(run_id)
            claims.hand_on(approval_id)
    claims.forget_ended(BATCH)
    return list(Run.objects.filter(runs.due()).order_by("updated_at").values_list("pk", flat=True)[:BATCH])
