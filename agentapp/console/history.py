"""What happened to one request, in words, from the ledger."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from approvals import ledger
from approvals.models import Approval, DecisionType, Event, Question
from approvals.sealed import opens
from approvals.step_up import SHOWN

MAX_LINES = 40
# How many events are read for these lines: some are folded into one line.
MAX_EVENTS = 200
_USER = re.compile(r"^user:(\d+):")
_TYPES = (
    "approval.requested", "approval.changed", "approval.approved", "approval.rejected", "approval.responded",
    "approval.undone", "approval.asked", "approval.answered", "approval.unanswered", "approval.revealed",
    "approval.breached", "approval.reminded", "approval.escalated", "approval.claimed", "approval.released",
    "approval.handed_over", "approval.judged",
    "approval.used", "approval.expired", "approval.withdrawn", "approval.superseded",
    "tool_call.started", "tool_call.completed", "tool_call.outcome_unknown", "tool_call.outcome_resolved",
    "tool_call.reopened", "tool_call.late_answer", "tool_call.compared", "tool_call.undo_asked",
)  # fmt: skip
_LOOKED_AFTER = ("approval.claimed", "approval.released")


@dataclass(frozen=True)
class Entry:
    """One line of a request's history."""

    icon: str
    words: str
    at: datetime


def history(approval: Approval, known: Iterable[User] = (), questions: Iterable[Question] = ()) -> list[Entry]:
    """The newest lines of one request, oldest first. `known` are people whose names are at hand. `questions` are the
    questions asked: the ledger does not contain people's words."""
    about = Q(approval_id=approval.pk) | Q(execution_id=approval.execution_id)
    events = Event.objects.filter(about, chain=ledger.run_chain(approval.run_id), type__in=_TYPES)
    newest = list(events.order_by("-seq")[: MAX_EVENTS + 1])
    found = newest[:MAX_EVENTS][::-1]
    given = approval.decisions.all()
    people = {user for each in given for user in (each.user, each.on_behalf_of) if user is not None} | {*known}
    told = ("on_behalf_of", "link_made_by")
    actors = (actor for event in found for actor in (event.actor, *(event.data.get(name, "") for name in told)))
    names = _names(actors, {user.pk: _name(user) for user in people})
    about_it = [event for event in found if event.data.get("approval") in (None, "", str(approval.pk))]
    asked, entries = {str(question.pk): question for question in questions}, []
    for _, alike in groupby(about_it, _looked_after):
        *earlier, event = alike
        who, lender = _who(event.actor, names), event.data.get("on_behalf_of", "")
        who = f"{who} for {_who(lender, names)}" if lender else who
        if maker := event.data.get("link_made_by"):
            made_at = event.data["link_made_at"][:16].replace("T", " ")
            who = f"{who}, by a link that {_who(maker, names)} made at {made_at} UTC,"
        question = asked.get(event.data.get("question", ""))
        entries.extend(_entries(event, event.data, who, question, folded=bool(earlier)))
    return _newest(entries, more=len(newest) > MAX_EVENTS)


def _newest(entries: list[Entry], more: bool) -> list[Entry]:
    """The lines that fit, and one that says how many earlier ones do not. `more`: too many to read them all."""
    if len(entries) <= MAX_LINES and not more:
        return entries
    kept = entries[1 - MAX_LINES :]
    left = len(entries) - len(kept)
    if more:
        words = f"More than {left} earlier lines are left out" if left else "Earlier lines are left out"
    else:
        words = f"{left} earlier lines are left out"  # at least two: this line takes the place of one
    return [Entry("clock", words, kept[0].at), *kept]


def _looked_after(event: Event) -> tuple[int, str]:
    """A key shared by one person's consecutive claims and releases, and by no other events."""
    return (0, event.actor) if event.type in _LOOKED_AFTER else (event.seq, "")


def _entries(
    event: Event, data: dict[str, Any], who: str, question: Question | None, folded: bool = False
) -> list[Entry]:
    icon, words = _words(event.type, data, who)
    if event.type == "approval.asked" and question and opens(question.text, question.salt, data.get("text")):
        words = f"{words}: {question.text}"
    if folded:
        words = f"{who} claimed it again" if event.type == "approval.claimed" else f"{who} claimed and released it"
    entries = [Entry(icon, words, event.at)]
    if event.type == "approval.requested" and data.get("told"):
        entries.append(Entry("bell", f"Told over {', '.join(data['told'])}", event.at))
    return entries


def _words(type_: str, data: dict[str, Any], who: str) -> tuple[str, str]:
    changed = " with changes" if data.get("edited") else ""
    by = f", {how}" if (how := SHOWN.get(str(data.get("assurance", "")))) else ""
    status = str(data.get("status", ""))
    rule = data.get("rule") or "policy"
    ended = (
        ("check", "The call succeeded") if status == "ok" else ("alert", f"The call ended: {status.replace('_', ' ')}")
    )
    if type_ == "approval.changed" and data.get("type") == DecisionType.REJECT:
        return "x", f"{who} rejected it; more people are needed to end it"
    return {
        "approval.requested": ("flag", f"Stopped by {rule}"),
        "approval.changed": ("check", f"{who} approved{changed}{by}; another person is needed"),
        "approval.approved": ("check", f"{who} approved{changed}{by}"),
        "approval.rejected": ("x", f"{who} rejected it"),
        "approval.responded": ("msg", f"{who} answered in the tool's place"),
        "approval.undone": ("undo", f"{who} took the decision back"),
        "approval.asked": ("question", f"{who} asked the agent"),
        "approval.answered": ("msg", f"{who} answered"),
        "approval.unanswered": ("clock", "No answer came; the clock goes on"),
        "approval.revealed": ("eye", f"{who} looked at the masked {data.get('name', '')}"),
        "approval.breached": ("clock", "Nobody had decided by the target"),
        "approval.reminded": ("bell", "Those who may decide were reminded"),
        "approval.escalated": ("user", _escalated(data)),
        "approval.claimed": ("hand", f"{who} claimed it"),
        "approval.released": ("hand", f"{who} released it"),
        "approval.handed_over": ("user", f"{who} handed it to {data.get('to', '')}"),
        "approval.judged": ("flag", f"{who} judged a decision {data.get('mark', '')}"),
        "approval.used": ("zap", "A worker took it"),
        "approval.expired": ("timer", f"Expired: {data.get('reason', '')}"),
        "approval.withdrawn": ("stop", f"Withdrawn: {data.get('reason', '')}"),
        "approval.superseded": ("retry", f"Replaced: {data.get('reason', '')}"),
        "tool_call.started": ("play", "The call began"),
        "tool_call.completed": ended,
        "tool_call.outcome_unknown": ("question", "Outcome unknown: its worker or its answer was lost"),
        "tool_call.outcome_resolved": ("check", f"{who} said what became of it"),
        "tool_call.reopened": ("retry", f"{who} asked for it again"),
        "tool_call.compared": _compared(data),
        "tool_call.undo_asked": ("undo", f"{who} asked for the call to be undone"),
        "tool_call.late_answer": ("clock", "The tool's answer came late"),
    }[type_]  # fmt: skip


def _escalated(data: dict[str, Any]) -> str:
    group = data.get("group", "")
    if data.get("reason"):
        return f"{group} was meant to decide too, but {data['reason']}"
    return f"{group} may decide too" if data.get("added") else f"{group} was told too"


def _compared(data: dict[str, Any]) -> tuple[str, str]:
    """How the outcome of a call compares with its dry run."""
    drifted = data.get("drifted") or []
    if drifted:
        return "alert", f"The outcome differs from its dry run: {', '.join(map(str, drifted))}"
    return ("check", "The outcome is as its dry run predicted") if data.get("as_predicted") else (
        "question", "The outcome was not compared with its dry run"
    )  # fmt: skip


def _names(actors: Iterable[str], known: dict[int, str]) -> dict[int, str]:
    """The names of those who did something. Looks up those not known already."""
    found = (_USER.match(actor) for actor in actors)
    strangers = {int(match[1]) for match in found if match} - known.keys()
    if not strangers:
        return known
    return known | {user.pk: _name(user) for user in User.objects.filter(pk__in=strangers)}


def _who(actor: str, names: dict[int, str]) -> str:
    found = _USER.match(actor)
    if found is None and actor.startswith("customer:"):
        return "The customer"
    if found is None:
        return {"system": "The system", "model": "The model"}.get(actor, actor)
    return names.get(int(found[1])) or actor[found.end() :]


def _name(user: User) -> str:
    return user.get_full_name() or user.get_username()
