"""Whose turn it is in a conversation: its runs go one after the other, or a new run replaces those before it."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.db.models import Q

from agentapp import conversations, runs, subagents
from agentapp.messages import StopSignal
from agentapp.models import Agent, Conversation, Run, ToolExecution
from agentapp.reasons import StopReason
from approvals import ledger
from approvals.models import Approval

State = ToolExecution.State


@dataclass(frozen=True)
class Taken:
    """The run that answers a new message, or the run under which the message is kept for a person."""

    run: Run
    kept: bool = False


@dataclass(frozen=True)
class Turn:
    """A locked conversation with a new message, and the runs that the answering run would replace."""

    conversation: Conversation
    replaced: list[Run]

    @property
    def begins_a_run(self) -> bool:
        """Whether the agent answers the message. Otherwise a person does, who has taken over."""
        return self.conversation.mode != Conversation.Mode.MANUAL

    @property
    def begins_one_more(self) -> bool:
        """Whether the message begins a run besides those under way."""
        return self.begins_a_run and not self.replaced


def lock(conversation: Conversation, agent: Agent) -> Turn:
    """Lock a conversation for a new message. The caller is inside `ledger.transaction()`. Raises Refused if the
    conversation is erased.
    """
    # Runs are locked before conversations, as when a run ends and leaves its answer.
    replaced = _replaceable(conversation) if agent.on_new_message == Agent.OnNewMessage.CANCEL else []
    return Turn(conversations.lock_to_go_on(conversation), replaced)


def take(start: runs.Start, turn: Turn, via: str = "", expected_version: int | None = None) -> Taken:
    """A run for a new message in the locked conversation.

    It waits for earlier runs, or replaces them if the agent says so. While a person has taken over or is wanted, no
    run begins, and the message waits for them. Raises conversations.Changed.
    """
    locked = turn.conversation
    if expected_version is not None and locked.version != expected_version:
        raise conversations.Changed(locked.version)
    if locked.mode == Conversation.Mode.MANUAL:
        return Taken(_keep(start, locked, via), kept=True)
    run = runs.create(replace(start, conversation=locked), via)
    actor = ledger.actor_of(start.starter, via)
    conversations.ask(locked, run, actor)
    for earlier in turn.replaced:
        _replace(earlier, run, actor)
    return Taken(run)


def _keep(start: runs.Start, conversation: Conversation, via: str) -> Run:
    """Keep a message for the person who has taken over, or will. Returns the run it belongs to; no other begins.

    That is the run they took over or, if nobody has yet, the one they can take over.
    """
    own = Run.objects.filter(conversation=conversation, parent__isnull=True)
    run = (
        own.filter(taken_over_by__isnull=False).first()
        or own.exclude(state__in=Run.FINAL).order_by("created_at").first()
        or own.latest("created_at")
    )
    new = conversations.NewMessage(
        conversation, run, start.input, start.starter, key=start.request_key, via=via, token=start.token
    )
    conversations.write(new)
    return run


def ahead(waiting: Iterable[Run]) -> dict[uuid.UUID, Run]:
    """The run each queued run waits for: the last before it in its conversation that has not ended. One query."""
    queued = [r for r in waiting if r.state == Run.State.QUEUED and r.conversation_id and r.parent_id is None]
    if not queued:
        return {}
    earlier = runs.unfinished().filter(conversation__in={run.conversation_id for run in queued})
    found = {}
    for other in earlier.order_by("created_at").only("created_at", "conversation"):
        for run in queued:
            if other.conversation_id == run.conversation_id and other.created_at < run.created_at:
                found[run.pk] = other
    return found


def _replaceable(conversation: Conversation) -> list[Run]:
    """The unfinished runs of a conversation, locked, except those in the middle of an act and those that people have
    paused: a new run waits behind these.
    """
    found = runs.unfinished().filter(conversation=conversation).order_by("created_at").values_list("pk", flat=True)
    locked = [runs.lock(pk) for pk in list(found)]
    return [run for run in locked if run is not None and not run.is_final and not run.is_aside and not _is_acting(run)]


def _is_acting(run: Run) -> bool:
    """Whether a write of a run has begun and not ended, or people have decided about one that is about to begin."""
    begun = Q(state=State.EXECUTING, consequential=True) | Q(state=State.OUTCOME_UNKNOWN)
    decided = Approval.objects.filter(run_id=run.pk, state__in=Approval.DECIDED, used_at__isnull=True)
    return (
        ToolExecution.objects.filter(begun, run=run).exists()
        or decided.exists()
        # Another agent that works for it may be in the middle of an act as well.
        or run.children.exclude(state__in=Run.FINAL).exists()
    )


def _replace(run: Run, by: Run, actor: str) -> None:
    """End a run in favour of another: at once if it waits, else before its next model or tool call."""
    message = f"A new message came in; {by.reference} answers it."
    subagents.cancel(run, StopSignal(StopReason.SUPERSEDED, message, source=by.reference), actor)
