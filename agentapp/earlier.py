"""What a run is told about the past: its conversation, and the steps that it takes as done. Reads only."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from agentapp.descent import line_of
from agentapp.models import Agent, Message, Run, Step, ToolExecution
from agentapp.transcript import StepRows, load_kept, mark_taken_back

# Drivers whose results stay in the conversation, whatever its compiler.
KEEPS_RESULTS = ("guided",)


@dataclass
class Earlier:
    """What was said in a conversation before a run, and what the runs that said it did.

    For a run that retries another, also the steps it takes as done.
    """

    messages: list[Message] = field(default_factory=list)
    summary: str = ""
    summary_until: int = 0
    steps: dict[uuid.UUID, list[StepRows]] = field(default_factory=dict)
    meanwhile: list[Message] = field(default_factory=list)
    """What the customer and a person said while the person had taken the run over."""
    kept: list[StepRows] = field(default_factory=list)
    done: list[ToolExecution] = field(default_factory=list)
    """What else the runs that a fork comes from did. The model is not told until it proposes the same."""


def load_earlier(run: Run, kept: list[StepRows] | None = None) -> Earlier:
    """What the run's compiler needs from the past. No query for a run outside a conversation that retries no other.

    `kept`: the steps it takes as done, if they have been read. They do not change.
    """
    kept = load_kept(run) if kept is None else kept
    earlier = Earlier(kept=kept)
    if run.asked_in is not None:
        asked, until = _asked(run)
        earlier.meanwhile = [m for m in _listen(earlier, asked) if until is None or m.created_at < until]
    elif run.conversation is not None:
        earlier.meanwhile = _listen(earlier, run)
        earlier.summary, earlier.summary_until = run.conversation.summary, run.conversation.summary_until
    if run.asked_in is not None and run.conversation is not None:
        earlier.meanwhile += _own(_rows(run, Message.objects.all()), run)
    if earlier.messages and _sends_results(run):
        earlier.steps = _steps_behind(earlier.messages)
    return earlier


def _listen(earlier: Earlier, run: Run) -> list[Message]:
    """Take in what was said in its conversation before a run. Returns what was said to it meanwhile."""
    rows = _rows(run, Message.objects.all())
    earlier.messages = _before(run, rows)
    return _own(rows, run)


def _own(rows: Sequence[Message], run: Run) -> list[Message]:
    """What people said to a run after its input."""
    own = [message for message in rows if message.run_id == run.pk]
    return [m for m in own[1:] if m.author_id is not None or m.role == Message.Role.USER]


def _asked(run: Run) -> tuple[Run, datetime | None]:
    """The conversation's run that a branch comes from, and when the first decision that is not kept began.

    A summary of the conversation may include what came later, so a branch is sent the messages themselves.
    """
    later: Run | None = None
    line = iter(line_of(run))
    while run.retry_of_id is not None and run.conversation_id != run.asked_in_id:
        later, run = run, next(line)
    if later is None:
        return run, None
    first = run.steps.filter(number__gt=later.steps_kept).order_by("number").values_list("started_at", flat=True)
    return run, first.first()


def _sends_results(run: Run) -> bool:
    """Whether later runs of a conversation are sent what earlier ones did, and not only what was said."""
    return keeps_results(run) or run.agent_snapshot.get("message_compiler") == Agent.Compiler.FULL_CONVERSATION


def keeps_results(run: Run) -> bool:
    return run.agent_snapshot.get("driver") in KEEPS_RESULTS


def said_before(run: Run, readable: QuerySet[Message] | None = None) -> list[Message]:
    """The conversation's messages before this run, turn by turn: an answer follows its question.

    Messages that came while an earlier run was under way have lower places than that run's answer.
    `readable` limits them to what a person may see.
    """
    return _before(run, _rows(run, Message.objects.all() if readable is None else readable))


def _rows(run: Run, messages: QuerySet[Message]) -> list[Message]:
    return list(messages.filter(conversation=run.conversation_id).select_related("author").order_by("seq"))


def _before(run: Run, rows: Sequence[Message]) -> list[Message]:
    turns: dict[Any, int] = {}
    for message in rows:
        turns.setdefault(message.run_id or message.pk, message.seq)
    own = turns.get(run.pk)
    placed = [(turns[message.run_id or message.pk], message) for message in rows if message.run_id != run.pk]
    before = [pair for pair in placed if own is None or pair[0] < own]
    return [message for _, message in sorted(before, key=lambda pair: (pair[0], pair[1].seq))]


def _steps_behind(messages: Sequence[Message]) -> dict[uuid.UUID, list[StepRows]]:
    """The steps of the ended runs whose answer is among the messages. Three or four queries.

    A fork can hold a question without the answer its run gave: what that run did comes after the fork.
    """
    answered = {message.run_id for message in messages if message.role == Message.Role.ASSISTANT}
    ended = Run.objects.filter(pk__in={message.run_id for message in messages}, state__in=Run.FINAL)
    wanted = [pk for pk, said in ended.values_list("pk", "answer") if pk in answered or not said]
    steps = {step.pk: StepRows(step, []) for step in Step.objects.filter(run__in=wanted).order_by("run", "number")}
    executions = ToolExecution.objects.filter(run__in=wanted).select_related("tool", "replay_of__tool")
    for execution in executions.order_by("step__number", "index"):
        steps[execution.step_id].executions.append(execution)
    mark_taken_back(steps.values())
    found: dict[uuid.UUID, list[StepRows]] = defaultdict(list)
    for rows in steps.values():
        found[rows.step.run_id].append(rows)
    return found
