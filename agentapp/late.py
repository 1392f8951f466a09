"""The answer of a write whose worker has since lost the run: it counts if it can, and is never dropped."""

from dataclasses import replace
from decimal import Decimal
from functools import partial

from django.db import transaction

from agentapp import budgets, executions, nudges, plan_use, runs, steering
from agentapp.executions import Outcome
from agentapp.models import ToolExecution
from approvals import decisions, ledger
from approvals.models import Approval

ANSWERED_LATE = "The tool has answered after all, so it need not be called again."


def keep(outcome: Outcome, attempt: int) -> None:
    """Store an attempt's outcome. If it is the answer, nobody is asked any more, and the run goes on."""
    with ledger.transaction():
        run = runs.lock(outcome.execution.run_id)
        assert run is not None
        execution = ToolExecution.objects.get(pk=outcome.execution.pk)
        # If the call was given up, it has already been paid for.
        cost = outcome.cost if execution.state == ToolExecution.State.EXECUTING else Decimal(0)
        if not executions.finish_late(replace(outcome, execution=execution, cost=cost), attempt):
            return
        budgets.pay(run, cost)
        steering.heed(run, [execution])
        plan_use.take_up(run, execution)
        if outcome.result.status != "ok":
            runs.mark_tool_error(run)
        asked = Approval.objects.filter(execution=execution).first()
        if asked is not None:
            decisions.supersede(asked, ANSWERED_LATE)
        runs.wake(run, runs.clock(run))
        transaction.on_commit(partial(nudges.nudge, run.pk), robust=True)
