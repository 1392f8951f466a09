"""A conversation as its customer sees it: what was said, what is happening in a few fixed words, what they are asked.

It contains nothing internal: no arguments, reasons, rules, other runs, names of tools or people, and nothing that an
agent says along with a call. Reads only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentapp import drafts, guidance_rows, toolset
from agentapp.considered import GUIDED, Insight
from agentapp.guidance.insights import standing, to_ask_for
from agentapp.models import Conversation, Message, Run, ToolExecution
from approvals.clock import Now
from approvals.models import Approval, ApprovalKind

PAGE = 200
MAX_OPEN = 20
MAX_CHOICES = 12

# What is happening, in the words of programs and of customers.
WORDS = {
    "idle": "",
    "queued": "Your message has arrived.",
    "working": "Writing an answer",
    "looking": "Looking that up",
    "acting": "Doing that for you",
    "confirmation": "Waiting for your answer",
    "checking": "Checking with a colleague",
    "person_wanted": "A person will answer you here.",
    "person": "A person has taken over.",
    "failed": "Sorry, something went wrong, and no answer came. Please write again.",
}


@dataclass(frozen=True)
class Said:
    """One message. `who`: customer, agent, or person (somebody of the team)."""

    seq: int
    who: str
    text: str
    at: datetime


@dataclass(frozen=True)
class Asked:
    """What the customer is asked to confirm: exactly what runs if they say yes."""

    id: str
    title: str
    sentence: Sequence[dict[str, Any]]
    effects: Sequence[dict[str, Any]]
    button: str
    version: int
    action_digest: str
    expires_at: datetime


@dataclass(frozen=True)
class Needed:
    """Something the agent must be told before it can go on, under the name that the customer knows."""

    name: str
    description: str
    examples: Sequence[str]
    choices: Sequence[str]
    """The possible values; empty if it can be anything, or there are too many to choose from."""


@dataclass(frozen=True)
class View:
    conversation: Conversation
    messages: list[Said]
    earlier: bool
    """Whether there are messages before these."""
    status: str
    asked: list[Asked]
    draft: str = ""
    """What the agent has written so far, if it can only be an answer."""
    needed: Sequence[Needed] = ()

    @property
    def words(self) -> str:
        return WORDS[self.status]


def of(conversation: Conversation, after: int = 0) -> View:
    """The last messages, only those `after` a place. A long conversation takes no more queries than a short one."""
    rows = list(conversation.messages.filter(seq__gt=after).order_by("-seq")[: PAGE + 1])
    open_runs = list(
        Run.objects.filter(conversation=conversation, parent__isnull=True)
        .exclude(state__in=Run.FINAL)
        .only("state", "waiting_for", "taken_over_by", "created_at", "step_count", "route")
        .order_by("created_at")[:MAX_OPEN]
    )
    asked = _asked(open_runs)
    current = open_runs[0] if open_runs else None
    running = current is not None and current.state == Run.State.RUNNING
    latest = None if current is not None else _latest(conversation)
    return View(
        conversation,
        [_said(row) for row in reversed(rows[:PAGE])],
        len(rows) > PAGE,
        _status(conversation, current, asked, latest),
        asked,
        _draft(current) if current is not None and running else "",
        _needed(latest),
    )


def _draft(run: Run) -> str:
    """What the agent has written of its answer. Until a reply ends, its text may belong to a call, which the customer
    must not see. Where guidelines decide, the text was requested without calls.
    """
    found = drafts.under_way([run.pk]).get(run.pk)
    if found is None:
        return ""
    return found.text if run.agent_snapshot["driver"] == GUIDED or not toolset.may_call(run) else ""


def _latest(conversation: Conversation) -> Message | None:
    found: Message | None = conversation.messages.order_by("-seq").select_related("run").first()
    return found


def _needed(latest: Message | None) -> list[Needed]:
    """What the last answer asked for, if nobody has said anything since. Empty if no guidelines decide."""
    run = latest.run if latest is not None and latest.role == Message.Role.ASSISTANT else None
    if latest is None or latest.author_id is not None or run is None or run.agent_snapshot["driver"] != GUIDED:
        return []
    missing = to_ask_for(standing(guidance_rows.evaluations_of(run)))
    return [Needed(one.display_name, one.description, one.examples, _choices(one)) for one in missing]


def _choices(insight: Insight) -> list[str]:
    found = [str(choice) for choice in insight.choices or ()]
    return found if len(found) <= MAX_CHOICES else []


def _said(message: Message) -> Said:
    of_team = "person" if message.author_id is not None else "agent"
    who = "customer" if message.role == Message.Role.USER else of_team
    return Said(message.seq, who, message.content, message.created_at)


def _asked(open_runs: Sequence[Run]) -> list[Asked]:
    waits = Approval.objects.filter(
        run_id__in=[run.pk for run in open_runs], kind=ApprovalKind.CONFIRMATION, state=Approval.State.PENDING,
        expires_at__gt=Now(),
    )  # fmt: skip
    return [
        Asked(
            str(row.pk), row.shown_title, row.sentence, row.effects, row.button, row.version, row.action_digest,
            row.expires_at,
        )
        for row in waits.order_by("created_at", "execution__index", "pk")  # those of one step in the order of its calls
    ]  # fmt: skip


def _status(conversation: Conversation, current: Run | None, asked: Sequence[Asked], latest: Message | None) -> str:
    """The one word for what is happening. What the customer can act on comes first."""
    if asked:
        return "confirmation"
    if current is not None and current.state == Run.State.RUNNING:
        return _at_work(current)
    if conversation.mode == Conversation.Mode.MANUAL:
        return "person_wanted" if conversation.person_wanted else "person"
    if current is None:
        return "failed" if latest is not None and _is_unanswered(latest) else "idle"
    return "queued" if current.state == Run.State.QUEUED else "checking"


def _is_unanswered(latest: Message) -> bool:
    """Whether the customer's last message has no answer and will not get one: its run ended without."""
    run = latest.run if latest.role == Message.Role.USER else None
    return run is not None and run.is_final and run.state != Run.State.SUCCEEDED


def _at_work(run: Run) -> str:
    calls = ToolExecution.objects.filter(run=run, state=ToolExecution.State.EXECUTING)
    consequential = calls.order_by("-consequential").values_list("consequential", flat=True).first()
    return {None: "working", False: "looking", True: "acting"}[consequential]
