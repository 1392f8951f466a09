"""What call results ask of their conversation: that a person speaks next, or the agent after all."""

from collections.abc import Sequence
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from agentapp import conversations
from agentapp.models import Conversation, Run, ToolExecution
from agentapp.tools.control import MODE


def heed(run: Run, executions: Sequence[ToolExecution]) -> None:
    """Hand a conversation to a person, or keep it with the agent, as the results just stored say.

    The last result that says anything counts; one that says nothing changes nothing. Runs in the transaction that
    stores them, whose caller holds the run's lock. The run still goes on to its answer.
    """
    asked = [execution for execution in executions if execution.is_answered and MODE in execution.control]
    if not asked or run.conversation_id is None:
        return
    by = asked[-1]
    conversation = conversations.lock(Conversation(pk=run.conversation_id))
    if by.control[MODE] == Conversation.Mode.MANUAL:
        conversations.want_person(conversation, Conversation.Wants.AGENT, _facts(run, by))
    else:
        conversations.want_nobody(conversation, _facts(run, by))


def with_wishes(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Runs that others asked for, with what their calls ask of the conversation, for `wish_of`."""
    asking = ToolExecution.objects.filter(run=OuterRef("pk"), control__has_key=MODE)
    return runs.annotate(wish=Subquery(asking.order_by("-step__number", "-index").values("control")[:1]))


def wish_of(run: Run) -> dict[str, Any]:
    """That wish as control of the call that asked for the run, through which it reaches the conversation."""
    last: dict[str, Any] | None = run.wish  # type: ignore[attr-defined]
    return {MODE: last[MODE]} if last else {}


def _facts(run: Run, by: ToolExecution) -> dict[str, str]:
    return {"run": str(run.pk), "execution": str(by.pk), "tool": by.name}
