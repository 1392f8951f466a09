"""What one request shows a person: the frozen card, what they may do about it, what became of it."""

import json
import statistics
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Prefetch, Q, QuerySet
from django.http import Http404, QueryDict
from django.utils import timezone

from agentapp import auth, lineage
from agentapp.console import queue, schema_form
from agentapp.console.differences import Line, differences
from agentapp.console.history import history
from agentapp.console.schema_form import SchemaForm
from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools import sentences
from approvals.digest import canonical, parse
from approvals.models import Approval, Decision, DecisionType, Risk
from approvals.standing import Refusal, may_decide

ALIKE = 20
# The queue's neighbours are looked up among this many; beyond it a place in the queue says nothing.
NEIGHBOURS = 500
REJECTIONS = ("Wrong amount or details", "Not allowed", "Need more evidence", "Other")
REASONS_FOR_RISK = (Risk.HIGH, Risk.CRITICAL)


@dataclass(frozen=True)
class Draft:
    """What a person has typed about a request and not yet decided, with what they were shown."""

    decision_id: uuid.UUID
    version: int
    action_digest: str
    posted: QueryDict | None = None
    message: str = ""
    stop_run: bool = False


@dataclass(frozen=True)
class Place:
    """Where a request stands in the queue of the person who looks at it. 0: not in it."""

    number: int = 0
    total: int = 0
    previous: uuid.UUID | None = None
    next: uuid.UUID | None = None


@dataclass(frozen=True)
class Alike:
    """How the latest requests for the same tool ended."""

    states: list[str]
    words: str


@dataclass
class Shown:
    """The call as it waits now, or as the draft would have it."""

    form: SchemaForm
    text: str
    title: str
    sentence: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    button: str
    edited: bool
    lines: list[Line] = field(default_factory=list)


def visible(user: User) -> QuerySet[Approval]:
    """The requests a person may see, with all that a card shows. Three queries when read."""
    counting = Decision.objects.select_related("user").order_by("decided_at")
    return (
        auth.visible_approvals(user)
        .select_related("starter", "execution__tool", "execution__run__starter")
        .prefetch_related("groups", Prefetch("decisions", queryset=counting))
    )


def visible_or_404(user: User, approval_id: uuid.UUID) -> Approval:
    approval = visible(user).filter(pk=approval_id).first()
    if approval is None:
        raise Http404("There is no such request, or it is not for you to see.")
    return approval


def context(approval: Approval, user: User, draft: Draft | None = None) -> dict[str, Any]:
    """Everything a card's templates need."""
    standing = standing_of(approval)
    forbidden = may_decide(user, approval) if standing == "pending" else None
    given = [d for d in approval.decisions.all() if d.undone_at is None]
    mine = next((d for d in given if d.user_id == user.pk), None)
    if standing == "pending" and forbidden is None and mine is not None:
        forbidden = Refusal("decided_by_you", "You have approved. This request needs another person too.")
    draft = draft or Draft(uuid.uuid4(), approval.version, current_digest(approval))
    may_edit = DecisionType.EDIT in approval.allowed_decisions and tool_unchanged(approval)
    shown = show(approval, draft.posted if may_edit else None)
    path = path_of(approval)
    return {
        "approval": approval,
        "standing": standing,
        "standing_state": _state_shown(approval, standing),
        "forbidden": forbidden,
        "may_decide": standing == "pending" and forbidden is None,
        "may_edit": may_edit,
        "allowed": approval.allowed_decisions,
        "draft": draft,
        "stale": standing == "pending" and draft.version != approval.version,
        "shown": shown,
        "given": given,
        "mine": mine,
        "last": given[-1] if given else None,
        "approvals_given": sum(d.type in (DecisionType.APPROVE, DecisionType.EDIT) for d in given),
        "successor": approval.superseded_by.first() if standing == "superseded" else None,
        "can_undo": mine is not None and standing == "held",
        "executed": execution_of(approval),
        "path": path,
        "path_visible": bool(path) and auth.visible_runs(user).filter(pk=path[0].run).exists(),
        "outcome_text": outcome_text(approval),
        "arms": approval.risk in REASONS_FOR_RISK,
        "rejections": REJECTIONS,
        "tool_changed": standing == "pending" and not tool_unchanged(approval),
        "unsupported": bool(approval.explanation) and len(approval.evidence) < 2,
    }


def beside(approval: Approval, user: User) -> dict[str, Any]:
    """What stands in the right column: its place in the queue, its likes, its history. Three queries."""
    execution = execution_of(approval)
    run = execution.run if execution is not None else None
    place = place_of(approval, user)
    return {
        "place": place,
        "waiting_count": place.total,
        "run": run,
        "run_visible": run is not None and auth.visible_runs(user).filter(pk=run.pk).exists(),
        "alike": alike(approval, user),
        "history": history(approval),
        "elapsed_percent": elapsed_percent(approval, timezone.now()),
    }


def standing_of(approval: Approval) -> str:
    """Where a request stands, as people name it: the row's state, and after approval the call's."""
    state = approval.state
    if state == Approval.State.PENDING:
        return "pending" if approval.expires_at > timezone.now() else "expired"
    if state in Approval.DECIDED and approval.used_at is None:
        return "held" if approval.runs_at and approval.runs_at > timezone.now() else "taken"
    execution = execution_of(approval)
    if state != Approval.State.USED or execution is None:
        return state
    if execution.state == ToolExecution.State.FINISHED:
        return "succeeded" if execution.result_status == ToolExecution.ResultStatus.OK else "failed"
    return "running" if execution.state == ToolExecution.State.EXECUTING else execution.state


def _state_shown(approval: Approval, standing: str) -> str:
    """The glyph and word of a standing: a held or taken request shows what was decided."""
    return approval.state if standing in ("held", "taken") else standing


def show(approval: Approval, posted: QueryDict | None) -> Shown:
    """The call and its words. Words for changed arguments are made anew from the tool's own templates."""
    current_text = approval.final_arguments_text or approval.arguments_text
    proposed, current = _arguments(approval.arguments_text), _arguments(current_text)
    tool = tool_of(approval)
    form = schema_form.build(
        tool.input_schema if tool else {},
        proposed,
        current,
        approval.locked_fields,
        approval.secret_fields,
        posted,
    )
    text = canonical(form.arguments)
    edited = text != canonical(proposed)
    if not edited or tool is None or not tool_unchanged(approval):
        title = approval.title if not edited else approval.shown_title
        words = approval.sentence, approval.effects, approval.button
    else:
        snapshot = parse(approval.snapshot_text) if approval.snapshot_text else {}
        title = sentences.title(tool, form.arguments, snapshot)
        words = (
            sentences.sentence(tool, form.arguments, snapshot),
            sentences.effects(tool, form.arguments, snapshot),
            sentences.button(tool, form.arguments, snapshot),
        )
    lines = differences(approval.arguments_text, text, approval.secret_fields)
    return Shown(form, text, title, *words, edited=edited, lines=lines)


def current_digest(approval: Approval) -> str:
    return approval.final_digest or approval.action_digest


def execution_of(approval: Approval) -> ToolExecution | None:
    """The call a request is about. None when it has been set aside and asks anew under another request."""
    execution: ToolExecution | None = getattr(approval, "execution", None)
    return execution


def path_of(approval: Approval) -> tuple[lineage.Asker, ...]:
    """The agents from the one a person started to the one that asks here. Empty: they are the same."""
    execution = execution_of(approval)
    run = execution.run if execution is not None else Run.objects.filter(pk=approval.run_id).first()
    return lineage.path_of(run) if run is not None and run.parent_id is not None else ()


def tool_of(approval: Approval) -> Tool | None:
    execution = execution_of(approval)
    if execution is not None and execution.tool is not None:
        return execution.tool
    return Tool.objects.filter(name=approval.tool).first()


def tool_unchanged(approval: Approval) -> bool:
    execution = execution_of(approval)
    return execution is not None and execution.tool is not None and execution.tool.version == approval.tool_version


def outcome_text(approval: Approval) -> str:
    """What came of the call, as text for people; shortened."""
    execution = execution_of(approval)
    if execution is None or execution.state != ToolExecution.State.FINISHED:
        return ""
    if execution.message:
        return execution.message
    value = json.loads(execution.result_text) if execution.result_text else None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return "" if value is None else text[:2000]


def held_by(user: User, approval_id: uuid.UUID) -> dict[str, Any] | None:
    """For the toast after a decision: what was decided, and until when it can be undone. None: it cannot."""
    mine = (
        Decision.objects.select_related("approval")
        .filter(approval_id=approval_id, user=user, undone_at__isnull=True)
        .order_by("decided_at")
        .last()
    )
    if mine is None:
        return None
    approval = mine.approval
    word = {"reject": "Rejected", "respond": "Answered"}.get(mine.type, "Approved")
    if approval.state == Approval.State.PENDING:
        return {"approval": approval, "word": "Approved, one more person is needed:", "until": None, "mine": mine}
    until = approval.runs_at if approval.used_at is None else None
    held = until is not None and until > timezone.now()
    return {"approval": approval, "word": word, "until": until if held else None, "mine": mine}


def place_of(approval: Approval, user: User) -> Place:
    ids = list(queue.pending(user).values_list("pk", flat=True)[:NEIGHBOURS])
    if approval.pk not in ids:
        return Place(total=len(ids), next=ids[0] if ids else None)
    at = ids.index(approval.pk)
    return Place(
        number=at + 1,
        total=len(ids),
        previous=ids[at - 1] if at else None,
        next=ids[at + 1] if at + 1 < len(ids) else None,
    )


def alike(approval: Approval, user: User) -> Alike | None:
    """The last requests for the same tool that have ended, oldest first."""
    ended = Q(state__in=queue.ENDED, decided_at__isnull=False) | Q(state=Approval.State.EXPIRED)
    rows = list(
        auth.visible_approvals(user)
        .filter(ended, tool=approval.tool)
        .exclude(pk=approval.pk)
        .order_by("-created_at")
        .only("state", "arguments_text", "final_arguments_text", "created_at", "decided_at")[:ALIKE]
    )
    if not rows:
        return None
    states = [_ended_as(row) for row in reversed(rows)]
    names = (
        ("approved", "approved"), ("edited", "with changes"), ("rejected", "rejected"),
        ("responded", "answered"), ("expired", "expired"),
    )  # fmt: skip
    counted = [f"{states.count(state)} {name}" for state, name in names if state in states]
    took = [row.decided_at - row.created_at for row in rows if row.decided_at]
    words = ", ".join(counted) + "."
    if took:
        words += f" Median {_in_words(timedelta(seconds=statistics.median(t.total_seconds() for t in took)))}."
    return Alike(states, words)


def elapsed_percent(approval: Approval, now: datetime) -> int:
    """How much of the time to decide has gone, for the bar under the countdown."""
    whole = (approval.expires_at - approval.created_at).total_seconds()
    gone = (now - approval.created_at).total_seconds()
    return max(0, min(100, round(100 * gone / whole))) if whole > 0 else 100


def _ended_as(row: Approval) -> str:
    if row.state in (Approval.State.APPROVED, Approval.State.USED):
        return "edited" if row.is_edited else "approved"
    return row.state


def _in_words(took: timedelta) -> str:
    seconds = int(took.total_seconds())
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def _arguments(text: str) -> dict[str, Any]:
    value = parse(text)
    return value if isinstance(value, dict) else {}
