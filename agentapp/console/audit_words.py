"""People's words, of which an event holds only a digest: found in the rows that keep them, if the digest matches."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentapp.models import Run, ToolExecution
from approvals.models import Approval, Claim, Comment, Event, Grant, Judgement, Question
from approvals.sealed import opens

GONE = "no longer kept"
_SEAL = frozenset({"digest", "characters"})


@dataclass(frozen=True)
class Said:
    """One text that an event names. `is_kept`: these are the words themselves, not what became of them."""

    name: str
    text: str
    is_kept: bool = True


def is_sealed(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == _SEAL


def said(event: Event, data: dict[str, Any], approval: Approval | None, run: Run | None) -> list[Said]:
    """What was said, for every text the event has a digest of. Words with a different digest are not shown."""
    names = [name for name, value in data.items() if is_sealed(value)]
    if not names:
        return []
    found, instead = dict[str, str](), _erased(approval, run)
    for text, salt in _kept(event, data, approval, run):
        found |= {name: text for name in names if name not in found and opens(text, salt, data[name])}
        if len(found) == len(names):  # no need to read the other rows
            break
    return [Said(name, found[name]) if name in found else Said(name, instead, is_kept=False) for name in names]


def _kept(event: Event, data: dict[str, Any], approval: Approval | None, run: Run | None) -> Iterator[tuple[str, str]]:
    """The texts of the rows that an event is about and this person may see, each with its salt."""
    if run is not None:
        yield run.title, run.salt
        yield run.stop_message, run.salt
    if approval is not None:
        for decision in approval.decisions.all():
            yield decision.message, decision.salt
        for question in Question.objects.filter(approval=approval, pk__in=_named(data, "question")):
            yield question.text, question.salt
            yield question.answer, question.salt
        for comment in Comment.objects.filter(approval=approval, pk__in=_named(data, "comment")):
            yield comment.text, comment.salt
        for judgement in Judgement.objects.filter(approval=approval, pk__in=_named(data, "judgement")):
            yield judgement.reason, judgement.salt
        for claim in Claim.objects.filter(approval=approval).exclude(note=""):
            yield claim.note, approval.salt
        for grant in Grant.objects.filter(approval=approval, pk__in=_named(data, "grant")):
            yield grant.reason, approval.salt
            yield grant.revoked_why, approval.salt
        for why in approval.planned_calls.exclude(ended_why="").values_list("ended_why", flat=True).distinct():
            yield why, approval.salt
    if run is not None:
        for call in ToolExecution.objects.filter(run=run, pk__in=[event.execution_id] if event.execution_id else []):
            yield call.message, call.salt
            for attempt in call.failures:
                yield str(attempt.get("message", "")), call.salt


def _named(data: dict[str, Any], name: str) -> list[str]:
    return [str(data[name])] if data.get(name) else []


def _erased(approval: Approval | None, run: Run | None) -> str:
    """Why words are no longer there."""
    for row in (approval, run):
        if row is not None and row.erased_at is not None:
            return f"{'deleted by retention' if row.erased_by == 'retention' else 'erased'} on {_day(row.erased_at)}"
    return GONE


def _day(moment: datetime) -> str:
    return moment.date().isoformat()
