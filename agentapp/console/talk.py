"""What a conversation shows: what was said, what the agent did for it, who is asked. Reads only."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from agentapp import auth, drafts
from agentapp.console import card, card_rows, controls, schemas, words
from agentapp.console.fields import label_of
from agentapp.models import Conversation, Draft, Message, Run, ToolExecution
from approvals.digest import MalformedJSON, parse
from approvals.models import Approval

PAGE = 40
# Further requests are only counted; the inbox shows them.
MAX_ASKED = 3


@dataclass(frozen=True)
class Said:
    """What somebody said. `fields` are its parts if it was given in a form."""

    who: str
    """customer, agent or person."""
    name: str
    content: str
    at: datetime
    key: str
    seq: int = 0
    author: User | None = None
    partial: bool = False
    fields: tuple[tuple[str, Any], ...] = ()
    is_new: bool = False
    kind: str = "said"


@dataclass(frozen=True)
class Did:
    """One step of the agent, as one line."""

    run: uuid.UUID
    step: int
    calls: tuple[ToolExecution, ...]
    key: str
    kind: str = "did"

    @property
    def began(self) -> datetime:
        return self.calls[0].proposed_at

    @property
    def seconds(self) -> float | None:
        """How long its calls took, without the time people took. None: none has run."""
        spans = [(call.started_at, call.finished_at) for call in self.calls if call.started_at and call.finished_at]
        return sum((end - start).total_seconds() for start, end in spans) if spans else None

    @property
    def names(self) -> str:
        return ", ".join(dict.fromkeys(call.name for call in self.calls))

    @property
    def state(self) -> str:
        """One word for all of them: the worst."""
        states = {call.result_status or call.state for call in self.calls}
        order = ("outcome_unknown", "waiting", "executing", "proposed", "ready", "fatal_error", "retryable_error")
        return next((state for state in (*order, "refused", "cancelled") if state in states), "ok")


@dataclass(frozen=True)
class Ended:
    """A run that ended without an answer."""

    run: Run
    words: str
    key: str
    kind: str = "ended"


@dataclass
class Asked:
    """A waiting request, with all that its card shows. `openable`: the reader may see it."""

    approval: Approval
    openable: bool
    card: dict[str, Any] = field(default_factory=dict)

    @property
    def who(self) -> str:
        if self.approval.asks_customer:
            return "the customer"
        groups = [group.name for group in self.approval.groups.all()]
        return " or ".join(groups) if groups else "somebody who may decide"


@dataclass
class Talk:
    """A conversation as one person may see it, around one of its runs."""

    run: Run
    """The run under way; if there is none, the last."""
    conversation: Conversation | None
    items: list[Said | Did | Ended]
    earlier: int | None
    unfinished: list[Run]
    asked: list[Asked]
    version: int
    taken_over: Run | None
    draft: Draft | None = None
    unasked: int = 0

    @property
    def queued(self) -> int:
        """How many messages wait for their turn."""
        return sum(run.state == Run.State.QUEUED and run.pk != self.run.pk for run in self.unfinished)

    @property
    def may_decide(self) -> bool:
        return any(asked.card.get("may_decide") for asked in self.asked)

    @property
    def held_by(self) -> list[str]:
        return controls.held_by(self.run)

    @property
    def retries_at(self) -> datetime | None:
        """When a model that failed to answer is asked again."""
        waits = self.run.state == Run.State.QUEUED and self.run.model_failures
        return self.run.wake_at or timezone.now() if waits else None


def of(run: Run, user: User, before: int | None = None, seen: int | None = None) -> Talk:
    """The conversation of a run; for a run without one, its input and its answer.

    `run` comes with its agent, conversation and starter. `before` is the place before which to read. `seen` is the
    version the reader had seen: everything later is marked as new.
    """
    conversation = run.conversation
    messages, earlier = _messages(run, user, before)
    unfinished = _unfinished(run, user)
    current = unfinished[0] if unfinished else run if conversation is None else _last(run, messages)
    did = _did([run.pk, *(m.run_id for m in messages if m.run_id), *(other.pk for other in unfinished)])
    said = _said(run, messages, seen) if conversation else _alone(run)
    asked = _asked([other.pk for other in unfinished], user)
    taken = next((r for r in (current, run, *unfinished) if r.taken_over_by_id is not None), None)
    if taken is None and conversation is not None and conversation.mode == Conversation.Mode.MANUAL:
        taken = auth.visible_runs(user).filter(conversation=conversation, taken_over_by__isnull=False).first()
    return Talk(
        run=current,
        conversation=conversation,
        items=_in_order(said, did, None if before else current),
        earlier=earlier,
        unfinished=unfinished,
        asked=[] if before else asked[:MAX_ASKED],
        version=conversation.version if conversation else 0,
        taken_over=taken,
        draft=drafts.under_way([current.pk]).get(current.pk) if current.state == Run.State.RUNNING else None,
        unasked=max(0, len(asked) - MAX_ASKED),
    )


def _messages(run: Run, user: User, before: int | None) -> tuple[list[Message], int | None]:
    """The last messages before a place, and the place before which there are more."""
    if run.conversation is None:
        return [], None
    rows = auth.visible_messages(user).filter(conversation=run.conversation).select_related("author", "run")
    rows = rows.defer("run__agent_snapshot", "run__script", "run__metadata", "run__input")
    if before is not None:
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[: PAGE + 1])
    more = len(found) > PAGE
    found = list(reversed(found[:PAGE]))
    return found, found[0].seq if more else None


def _unfinished(run: Run, user: User) -> list[Run]:
    """The unfinished runs of the conversation that the reader may see, in order."""
    if run.conversation_id is None:
        return [] if run.is_final else [run]
    rows = auth.visible_runs(user).filter(conversation=run.conversation_id).exclude(state__in=Run.FINAL)
    return list(rows.select_related("agent", "taken_over_by").order_by("created_at")[:50])


def _last(run: Run, messages: Sequence[Message]) -> Run:
    """The run to which the last message belongs."""
    last = next((message.run for message in reversed(messages) if message.run is not None), run)
    return run if last.pk == run.pk else last


def _did(run_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, list[Did]]:
    """The steps of some runs that asked for calls, each with its calls. One query."""
    calls = ToolExecution.objects.filter(run__in=set(run_ids), tool__isnull=False).select_related("step", "approval")
    calls = calls.only(
        "run", "step__number", "index", "name", "state", "result_status", "proposed_at", "started_at", "finished_at",
        "approval__state",
    )  # fmt: skip
    steps: dict[tuple[uuid.UUID, int], list[ToolExecution]] = defaultdict(list)
    for call in calls.order_by("step__number", "index"):
        steps[call.run_id, call.step.number].append(call)
    found: dict[uuid.UUID, list[Did]] = defaultdict(list)
    for (run_id, number), of_step in steps.items():
        found[run_id].append(Did(run_id, number, tuple(of_step), f"{run_id.hex[-6:]}-{number}"))
    return found


def _said(run: Run, messages: Iterable[Message], seen: int | None) -> list[tuple[Run | None, Said]]:
    found = []
    for message in messages:
        of_customer = message.role == Message.Role.USER
        who = "customer" if of_customer else "person" if message.author else "agent"
        name = (run.customer or "Customer") if of_customer else run.agent.name
        one = Said(
            who=who,
            name=auth.name_of(message.author) if message.author else name,
            content=message.content,
            at=message.created_at,
            key=f"m{message.seq}",
            seq=message.seq,
            author=message.author,
            partial=who == "agent" and message.run is not None and message.run.answer_is_partial,
            fields=fields_of(message.content, run) if of_customer else (),
            is_new=seen is not None and message.seq > seen,
        )
        found.append((message.run, one))
    return found


def _alone(run: Run) -> list[tuple[Run | None, Said]]:
    """A run without a conversation, shown as a conversation of its own."""
    asked = Said(
        "customer", run.customer or "Customer", run.input, run.created_at, "m1", fields=fields_of(run.input, run)
    )
    found: list[tuple[Run | None, Said]] = [(run, asked)]
    if run.answer:
        at = run.finished_at or run.updated_at
        found.append((run, Said("agent", run.agent.name, run.answer, at, "m2", partial=run.answer_is_partial)))
    return found


def fields_of(text: str, run: Run) -> tuple[tuple[str, Any], ...]:
    """What was given in a form, part by part. Empty: it is plain text."""
    properties = schemas.properties(run.agent.input_schema)
    if not properties or not text.startswith("{"):
        return ()
    try:
        given = parse(text)
    except MalformedJSON:
        return ()
    if not isinstance(given, dict):
        return ()
    return tuple((label_of(name, schemas.resolve(properties.get(name), {})), value) for name, value in given.items())


def _in_order(
    said: Sequence[tuple[Run | None, Said]], did: dict[uuid.UUID, list[Did]], under_way: Run | None
) -> list[Said | Did | Ended]:
    """What was said, in order. A run's steps come before its answer, or at the end while it is under way."""
    items: list[Said | Did | Ended] = []
    left = {run_id: list(steps) for run_id, steps in did.items()}
    last_of = {run.pk: place for place, (run, _) in enumerate(said) if run is not None}
    answered = {run.pk for run, one in said if run is not None and one.who == "agent"}
    for place, (run, one) in enumerate(said):
        steps = left.get(run.pk, []) if run is not None else []
        before = [step for step in steps if one.who == "agent" or (one.who == "person" and step.began < one.at)]
        items += [*before, one]
        if run is None:
            continue
        left[run.pk] = [step for step in steps if step not in before]
        if run.is_final and last_of[run.pk] == place:
            items += left.pop(run.pk, [])
            if run.state != Run.State.SUCCEEDED and run.pk not in answered:
                items.append(Ended(run, words.stopped(run), f"e{run.pk.hex[-6:]}"))
    return items + (left.get(under_way.pk, []) if under_way is not None else [])


def _asked(run_ids: Sequence[uuid.UUID], user: User) -> list[Asked]:
    """The requests that these runs wait for, or that were decided but can still be taken back. Three queries."""
    if not run_ids:
        return []
    now = timezone.now()
    held = Q(state__in=Approval.DECIDED, used_at__isnull=True, runs_at__gt=now)
    visible = auth.visible_approvals(user).filter(pk=OuterRef("pk"))
    rows = Approval.objects.filter(Q(state__in=Approval.UNDECIDED) | held, run_id__in=run_ids)
    found: list[Asked] = []
    for approval in card_rows.whole(rows, user).annotate(openable=Exists(visible)).order_by("created_at", "pk"):
        openable = bool(approval.openable)
        shown = card.context(approval, user, in_run=True) if openable and len(found) < MAX_ASKED else {}
        if shown:
            card_rows.note_shown(approval, user)
        found.append(Asked(approval, openable, shown))
    return found
