"""The rows of the audit trail in words: who did what, on what evidence, how long it took and what its run cost.

Everything that fifty events name is looked up with one query for each kind of thing.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F, Func, IntegerField, Prefetch, Q, QuerySet

from agentapp import auth
from agentapp.audit import vocabulary
from agentapp.audit.vocabulary import Deed
from agentapp.models import Run, ToolExecution
from approvals import changes, ledger
from approvals.digest import load
from approvals.models import Approval, Decision, Event

_USER = re.compile(r"^user:(\d+)")
# Decisions and ends: the events for which a run's cost matters.
_COSTS = frozenset({"approved", "changed", "rejected", "responded", "expired", "finished", "run-failed", "run-stopped"})
# Events at which people had a card in front of them.
_CARDS = frozenset({"stopped", "approved", "changed", "rejected", "responded", "undid", "asked"})
_DOERS = {"approval.requested": "Policy", "breaker": "Breaker"}
# Events that the system writes but the agent caused.
_OF_AGENTS = ("tool_call.", "step.", "subagent.", "decision.")
_RUNS_OF_AGENTS = frozenset({"run.waiting", "run.succeeded", "run.failed"})
_OF_APPROVALS = ("id", "title", "final_title", "rule", "arguments_text", "final_arguments_text")
_OF_CALLS = ("id", "title", "final_title")
MAX_EVIDENCE = 12


@dataclass(frozen=True)
class Who:
    """Who did it. `word` and `typed` make the query that finds them. A machine has no user."""

    name: str
    typed: str = ""
    user: User | None = None
    # How they came in, as in "token CI".
    via: str = ""
    word: str = "who"


@dataclass(frozen=True)
class About:
    """The rows that a list of events names, by key."""

    users: dict[int, User]
    approvals: dict[uuid.UUID, Approval]
    executions: dict[uuid.UUID, ToolExecution]
    runs: dict[uuid.UUID, Run]


@dataclass(frozen=True)
class Line:
    """One row. `folded`: this many consecutive events that the person may not see, and nothing about them."""

    event: Event
    folded: int = 0
    who: Who = Who("")
    deed: Deed = vocabulary.DEEDS[0]
    said: str = ""
    what: str = ""
    # It has its own page among the configuration changes.
    is_change: bool = False
    evidence: Sequence[int] = ()
    took: timedelta | None = None
    cost: Decimal | None = None
    # How the decision was judged afterwards.
    mark: str = ""


class _Length(Func):
    """How many items a JSON list has."""

    output_field = IntegerField()

    def as_sql(self, *args: Any, **kwargs: Any) -> Any:
        self.function = "jsonb_array_length" if connection.vendor == "postgresql" else "json_array_length"
        return super().as_sql(*args, **kwargs)


def lines(events: Sequence[Event], hidden: set[uuid.UUID], viewer: User) -> list[Line]:
    """A row for each event. Consecutive events that may not be seen fold into one row."""
    shown = [event for event in events if event.pk not in hidden]
    about, rows = look_up(shown, viewer), list[Line]()
    for event in events:
        if event.pk not in hidden:
            rows.append(line(event, about))
        elif rows and rows[-1].folded:
            rows[-1] = Line(rows[-1].event, rows[-1].folded + 1)
        else:
            rows.append(Line(event, 1))
    return rows


def look_up(events: Iterable[Event], viewer: User, *, whole: bool = False) -> About:
    """Everything these events name that this person may see, in at most four queries. `whole`: load complete rows,
    and requests with their decisions, oldest first.
    """
    events = list(events)
    people = {int(found[1]) for event in events if (found := _USER.match(event.actor_key))}
    asked = {event.approval_id for event in events if event.approval_id}
    calls = {event.execution_id for event in events if event.execution_id and not event.approval_id}
    began = {key for event in events if (key := _run_key(event))}
    approvals = auth.visible_approvals(viewer).annotate(pieces=_Length(F("evidence")))
    executions = ToolExecution.objects.filter(run__in=auth.visible_runs(viewer)).select_related("approval")
    runs = auth.visible_runs(viewer).select_related("agent").annotate(mocked=Q(mocks__isnull=False))
    if whole:
        given = Decision.objects.select_related("user", "on_behalf_of").order_by("decided_at")
        approvals = approvals.prefetch_related(Prefetch("decisions", given))
        executions = executions.select_related("approval", "tool").prefetch_related(
            Prefetch("approval__decisions", given)
        )
    else:
        approvals = approvals.only(*_OF_APPROVALS)
        executions = executions.only("id", *(f"approval__{name}" for name in _OF_CALLS))
        runs = runs.only("id", "title", "cost", "agent__name")
    return About(
        users=_by_key(User.objects.all(), people),
        approvals=_by_key(approvals, asked),
        executions=_by_key(executions, calls),
        runs=_by_key(runs, began),
    )


def _by_key(rows: QuerySet[Any], keys: set[Any]) -> dict[Any, Any]:
    return {row.pk: row for row in rows.filter(pk__in=keys)} if keys else {}


def line(event: Event, about: About) -> Line:
    data, deed = event.data, vocabulary.deed_of(event.type, event.body)
    approval = about.approvals.get(event.approval_id) if event.approval_id else None
    run = about.runs.get(event.run_id) if event.run_id else None
    edits = _changes(approval) if deed.word == "changed" and approval else 0
    pieces = getattr(approval, "pieces", None) or 0
    return Line(
        event,
        who=who(event, about),
        deed=deed,
        said=vocabulary.said(deed, event.type, data, edits),
        what=what(event, data, about),
        is_change=event.type in changes.TYPES,
        evidence=range(1, min(pieces, MAX_EVIDENCE) + 1) if deed.word in _CARDS else (),
        took=timedelta(milliseconds=event.took_ms) if event.took_ms is not None else None,
        cost=run.cost if run is not None and deed.word in _COSTS else None,
        mark=getattr(event, "mark", None) or "",
    )


def who(event: Event, about: About) -> Who:
    """A person by their current name, a machine by what it is."""
    found = _USER.match(event.actor_key)
    via = event.actor.rpartition(" (")[2].removesuffix(")") if event.actor.endswith(")") and " (" in event.actor else ""
    if found:
        user = about.users.get(int(found[1]))
        written = event.actor.split(":", 2)[-1].removesuffix(f" ({via})")
        return Who(auth.name_of(user) if user else written, user.username if user else event.actor_key, user, via)
    run = about.runs.get(event.run_id) if event.run_id else None
    if event.actor_key == ledger.MODEL:
        return Who(run.agent.name if run else "The model", ledger.MODEL)
    if event.actor_key.startswith("customer:"):
        return Who(f"Customer {event.actor_key.partition(':')[2]}", event.actor_key, via=via)
    if event.actor_key == ledger.SYSTEM:
        if run is not None and (event.type.startswith(_OF_AGENTS) or event.type in _RUNS_OF_AGENTS):
            return Who(run.agent.name, run.agent.name, via=via, word="agent")
        doer = _DOERS.get(event.type) or _DOERS.get(event.type.partition(".")[0]) or "System"
        return Who(doer, ledger.SYSTEM, via=via)
    return Who(event.actor_key, event.actor_key, via=via)


def what(event: Event, data: dict[str, Any], about: About) -> str:
    """What the act was done to, in people's words."""
    approval = about.approvals.get(event.approval_id) if event.approval_id else None
    if approval is not None:
        return approval.shown_title
    subject = event.type.partition(".")[0]
    said = _SUBJECTS.get(subject)
    if said is not None:
        return said(data)
    key = _run_key(event)
    run = about.runs.get(key) if key else None
    if event.tool:
        execution = about.executions.get(event.execution_id) if event.execution_id else None
        asked = execution.approval.shown_title if execution and execution.approval else run.title if run else ""
        return _as_it_was(run, f"{event.tool}, {asked}" if asked else event.tool)
    if run is not None:
        return _as_it_was(run, run.title)
    return next((word for name in ("name", "text", "user") if (word := _word(data.get(name)))), "")


def _run_key(event: Event) -> uuid.UUID | None:
    """The run an event belongs to. An act on a conversation names the run from which it was done."""
    if event.run_id is not None or not event.type.startswith("conversation."):
        return event.run_id
    try:
        return uuid.UUID(event.data["run"])
    except (KeyError, TypeError, ValueError, AttributeError):  # it names no run, or was changed by hand
        return None


def _as_it_was(run: Run | None, said: str) -> str:
    """What was done, marked if it was only mocked."""
    return f"{said} (mocked)" if run is not None and run.mocked else said  # type: ignore[attr-defined]


def _changes(approval: Approval) -> int:
    """How many arguments differ from those proposed."""
    was, now = _members(approval.arguments_text), _members(approval.final_arguments_text or approval.arguments_text)
    return sum(was.get(name, _NOTHING) != now.get(name, _NOTHING) for name in {*was, *now})


_NOTHING = object()


def _members(text: str) -> dict[str, Any]:
    value = load(text)
    return value if isinstance(value, dict) else {}


def _configured(data: dict[str, Any]) -> str:
    before, after = data.get("before") or {}, data.get("after") or {}
    was, now = before.get("version"), after.get("version")
    versions = f" v{was} to v{now}" if was and now and was != now else ""
    return f"{data.get('name', '')}{versions}"


def _breaker(data: dict[str, Any]) -> str:
    why = data.get("trigger") or data.get("reason") or ""
    return f"{data.get('name', '')}, {why}" if why else str(data.get("name", ""))


def _sign_in(data: dict[str, Any]) -> str:
    by = data.get("by") or data.get("kind") or ""
    how = ", ".join(map(str, by)) if isinstance(by, list) else str(by)
    return ", ".join(filter(None, (str(data.get("user") or ""), how.replace("_", " "))))


def _named(data: dict[str, Any]) -> str:
    words = (_word(data.get(name)) for name in ("name", "scope", "tool", "endpoint", "deputy", "user", "reason"))
    return ", ".join(list(filter(None, words))[:2])


def _word(value: Any) -> str:
    """A value as a row shows it. An event holds only a digest of what people wrote; that is not shown."""
    return "" if isinstance(value, dict | list) else str(value or "")


def _of_eval(data: dict[str, Any]) -> str:
    """The suite, and the case or the verdict where there is one."""
    return ", ".join(word for name in ("suite", "case", "agent", "verdict") if (word := _word(data.get(name))))


_SUBJECTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "configuration": _configured,
    "breaker": _breaker,
    "signin": _sign_in,
    "signout": _sign_in,
    **dict.fromkeys(
        ("switch", "token", "webhook", "absence", "delegation", "setup", "user", "grant", "plan", "erasure"), _named
    ),
    "eval": _of_eval,
}  # fmt: skip
