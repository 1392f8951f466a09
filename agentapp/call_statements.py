"""The statements that each step runs on its calls' rows, built once. Only `executions`, their writer, uses these."""

from django.db import IntegrityError
from django.db.models import BooleanField, F, TextField, UUIDField

from agentapp.models import ToolExecution
from approvals.clock import Now
from approvals.inserting import RowInsert
from approvals.prepared import Given, PreparedUpdate
from approvals.updating import RowUpdate

State = ToolExecution.State
UNBEGUN = (State.PROPOSED, State.WAITING, State.READY)

ADD = RowInsert(ToolExecution)
HOLD = RowUpdate(lambda: ToolExecution.objects.filter(state=State.PROPOSED), ["state", "approval", "times_asked"])
BEGIN = PreparedUpdate(
    lambda: (
        ToolExecution.objects.filter(pk=Given("pk", UUIDField()), state__in=UNBEGUN),
        {
            "state": State.EXECUTING,
            "executed_text": Given("text", TextField()),
            "idempotency_key": Given("key", TextField()),
            "with_key": Given("with_key", BooleanField()),
            "allowed_by": Given("by", TextField()),
            "grant": Given("grant", UUIDField()),
            "attempts": F("attempts") + 1,
            "started_at": Now(),
        },
    )
)
FINISH = RowUpdate(
    lambda: ToolExecution.objects.exclude(state__in=ToolExecution.ANSWERED),
    [
        "state", "result_status", "reason", "message", "result_text", "metadata", "trust", "evidence_ref",
        "artifact_text", "control", "retry_after", "cost", "attempts", "finished_at", "raw_result_text", "replay_of",
        "failures",
    ],
)  # fmt: skip


def hurt(error: IntegrityError) -> str:
    """What an error names: its constraint, or a message with its column. The transaction is over, so no query helps.

    PostgreSQL's message also has the values of the row, which are a model's words.
    """
    told = getattr(error.__cause__, "diag", None)
    return str(told.constraint_name) if told else str(error)
