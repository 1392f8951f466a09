"""A run's rows as spans, a few steps at a time. However long the run is, little of it is in memory."""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Prefetch

from agentapp.models import Run, ToolExecution
from agentapp.telemetry import content, spans
from agentapp.telemetry.spans import Called, Occurrence, Span, Taken
from agentapp.trace import said
from approvals import ledger
from approvals.models import Approval, Decision, Event

STEPS_AT_ONCE = 100
# Only this many of a run's moments are reported, the first ones.
MOST_OCCURRENCES = 200
_TEXTS_OF_CALL = (
    "arguments_text", "proposed_text", "executed_text", "ruling", "message", "result_text", "metadata", "artifact_text",
    "raw_result_text", "control", "comparison", "outcome_note",
)  # fmt: skip
_TEXTS_OF_STEP = ("text", "reasoning", "disclosed_tools", "provider_parts")
_OF_APPROVAL = (
    "run_id", "execution_id", "kind", "tool", "state", "risk", "rule", "title", "approvals_needed", "created_at",
    "expires_at", "decided_at",
)  # fmt: skip


def run_with_what_it_names(run_id: uuid.UUID) -> Run | None:
    """The run as `spans_of` reads it."""
    named = ("agent", "retry_of", "undoes__run", "asked_by", "starter")
    return Run.objects.select_related(*named).filter(pk=run_id).first()


def spans_of(run: Run, now: datetime, *, with_content: bool = False) -> Iterator[list[Span]]:
    """Everything a run did so far: its own span first, then a few steps at a time."""
    hidden = content.hidden_of_family(run) if with_content else frozenset()
    yield [root(run, now, hidden, with_content=with_content)]
    behind = 0
    while taken := steps_behind(run, behind, with_content=with_content):
        yield [span for one in taken for span in of_step(run, one, now, hidden, with_content=with_content)]
        behind = taken[-1].step.number


def root(run: Run, now: datetime, hidden: frozenset[str] = frozenset(), *, with_content: bool = False) -> Span:
    """The span of the run itself, with the moments at which it was claimed, waited and was released."""
    asking = getattr(run, "asked_by", None)
    events = Event.objects.filter(chain=ledger.run_chain(run.pk), type__startswith="run.").order_by("seq")
    happened = [_occurrence(event) for event in events[:MOST_OCCURRENCES]]
    span = spans.of_run(run, asking.pk if asking else None, happened, now)
    return content.of_run(span, run, hidden) if with_content else span


def of_step(
    run: Run, taken: Taken, now: datetime, hidden: frozenset[str] = frozenset(), *, with_content: bool = False
) -> list[Span]:
    made = spans.of_step(run, taken, now)
    return content.of_step(made, taken, hidden) if with_content else made


def steps_behind(run: Run, number: int, *, with_content: bool = False) -> list[Taken]:
    """The next steps with their calls. Four queries, and one more if attempts at a call failed."""
    steps = run.steps.filter(number__gt=number).order_by("number")
    found = list((steps if with_content else steps.defer(*_TEXTS_OF_STEP))[:STEPS_AT_ONCE])
    if not found:
        return []
    rows = run.executions.select_related("tool").filter(step__in=found).order_by("index")
    calls = list(rows if with_content else rows.defer(*_TEXTS_OF_CALL))
    approvals = _approvals(calls)
    failures = _failures(run, calls)
    of_step: dict[uuid.UUID, list[Called]] = defaultdict(list)
    for call in calls:
        of_step[call.step_id].append(Called(call, approvals.get(call.pk, []), failures.get(call.pk, [])))
    return [Taken(step, of_step.get(step.pk, [])) for step in found]


def _approvals(calls: list[ToolExecution]) -> dict[uuid.UUID, list[Approval]]:
    """The requests about each call, oldest first."""
    asked = [call.pk for call in calls if call.times_asked]
    if not asked:
        return {}
    decisions = Decision.objects.select_related("user", "on_behalf_of").order_by("decided_at")
    rows = Approval.objects.filter(run_id=calls[0].run_id, execution_id__in=asked).only(*_OF_APPROVAL)
    kept = decisions.defer("arguments_text", "signature")
    found: dict[uuid.UUID, list[Approval]] = defaultdict(list)
    for approval in rows.prefetch_related(Prefetch("decisions", queryset=kept)).order_by("created_at", "pk"):
        found[approval.execution_id].append(approval)
    return found


def _failures(run: Run, calls: list[ToolExecution]) -> dict[uuid.UUID, list[Mapping[str, Any]]]:
    """The errors of failed attempts: a call's row keeps only the last."""
    found: dict[uuid.UUID, list[Mapping[str, Any]]] = defaultdict(list)
    tried = [call.pk for call in calls if call.attempts > 1]
    if not tried:
        return found
    noted = Event.objects.filter(execution_id__in=tried, type="tool_call.attempt_failed")
    for event in noted.filter(chain=ledger.run_chain(run.pk)).order_by("seq"):
        if event.execution_id is not None and (data := said(event)):
            found[event.execution_id].append(data)
    return found


def _occurrence(event: Event) -> Occurrence:
    data = said(event) or {}
    told: dict[str, spans.Value] = {}
    for name in ("for", "delay_seconds", "reason"):
        value = data.get(name)
        # A sentence may quote a provider or a person. A code does not.
        if isinstance(value, int) or (isinstance(value, str) and value.isidentifier()):
            told[f"countersign.{name}"] = value
    return Occurrence(event.type, event.at, told)
