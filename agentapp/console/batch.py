"""Several requests decided at once: only similar ones of low or medium risk, each by its own guarded decision.

The form freezes what is on the table: the id, version and digest of each request. A request that has changed
since, or that somebody else decided, is left out, and the page says so.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentapp import actions
from agentapp.console import card, card_rows, in_the_way, queue
from agentapp.console.fields import ABSENT
from agentapp.console.filters import Filters, read_query
from agentapp.console.parts import render_part
from agentapp.console.shell import signed_in
from agentapp.console.shown import show
from approvals import standing
from approvals.digest import canonical, load
from approvals.disguises import disguises
from approvals.models import Approval, Decision, DecisionType, EffectClass, Risk

MOST = 20
# What does not fit cannot be read, and so not be approved, side by side.
COLUMNS = 12
LONG = 400
SMALL = (Risk.LOW, Risk.MEDIUM)
VIA = "batch"
TYPES = (DecisionType.APPROVE, DecisionType.REJECT)


@dataclass(frozen=True)
class Item:
    """One request as it stands on the table, and the id of its decision."""

    approval_id: uuid.UUID
    version: int
    digest: str
    decision_id: uuid.UUID

    def __str__(self) -> str:
        return f"{self.approval_id}:{self.version}:{self.digest}:{self.decision_id}"


@require_safe
def bar(request: HttpRequest) -> HttpResponse:
    """What can be done with the ticked requests; if nothing, why."""
    user = signed_in(request)
    picked = _picked(user, request.GET.getlist("pick"))
    context = {"picked": picked, "objection": objection(user, picked), "alike": alike(picked)}
    return render(request, "console/batch.html#bar", context)


@require_http_methods(["GET", "HEAD", "POST"])
def batch(request: HttpRequest) -> HttpResponse:
    """The table of what differs; a post decides each of its rows."""
    user = signed_in(request)
    if request.method == "POST":
        return _decide(request, user)
    filters = Filters.read(request.GET)
    picked = _picked(user, request.GET.getlist("pick"))
    if not picked:
        return redirect(reverse("inbox") + filters.here)
    context = {"filters": filters, "picked": picked, "alike": alike(picked), "rejections": card.rejections()}
    if words := objection(user, picked):
        return render(request, "console/batch.html", context | {"objection": words}, status=422)
    items = [Item(row.pk, row.version, card.current_digest(row), uuid.uuid4()) for row in picked]
    return render(request, "console/batch.html", context | _table(picked, items))


@require_safe
def done(request: HttpRequest) -> HttpResponse:
    """The last batch again, as it stands now."""
    user = signed_in(request)
    return _done(request, user) if "batch" in request.session else redirect("inbox")


@require_POST
def undo(request: HttpRequest) -> HttpResponse:
    """Take back what can be taken back of the batch that the page showed, one decision at a time. A refusal is shown in
    its row. Nothing else is taken back than what was decided in a batch.
    """
    user = signed_in(request)
    offered = queue.read_ids(request.POST.getlist("held"))
    decided = Decision.objects.filter(user=user, approval__in=offered, via=VIA)
    kinds = dict(decided.order_by("decided_at").values_list("approval_id", "type"))
    shown = [key for key in offered if key in kinds]
    kept = request.session.get("batch", {"results": [], "query": ""})
    if not {str(key) for key in shown} <= {key for key, why in kept["results"] if not why}:
        # Another tab has decided a batch meanwhile, and this one is shown again in its place.
        kept = {"kind": kinds[shown[0]], "query": kept["query"], "results": [(str(key), "") for key in shown]}
    refused = {str(key): _undo_one(key, user) for key in shown}
    if "kind" not in kept:
        return redirect("inbox")
    request.session["batch"] = kept | {"not_undone": {key: why for key, why in refused.items() if why}}
    return redirect("batch_done")


def objection(user: User, picked: Sequence[Approval]) -> str:
    """Why these cannot be decided together. Empty if they can."""
    if words := too_much(picked):
        return words
    gone = sum(row.state not in Approval.UNDECIDED for row in picked)
    if gone:
        return f"{gone} no longer {'waits' if gone == 1 else 'wait'}: take {'it' if gone == 1 else 'them'} out."
    foreign = [refusal for row in picked if (refusal := standing.may_decide(user, row))]
    if foreign:
        return f"{len(foreign)} {'is' if len(foreign) == 1 else 'are'} not yours to decide."
    held = {claim.user for row in picked if (claim := queue.holder(row)) and claim.user not in (None, user)}
    if held:
        names = ", ".join(sorted(who.get_full_name() or who.get_username() for who in held if who))
        return f"Claimed by {names}: decide those one by one."
    return ""


def too_much(picked: Sequence[Approval]) -> str:
    """What rules out a batch for everybody, even if something has changed meanwhile."""
    if len(picked) > MOST:
        return f"{len(picked)} are selected: {MOST} at most."
    if any(row.is_plan for row in picked):
        return "A plan is read call by call: decide it on its own."
    blind = sum(bool(row.why_unseen) for row in picked)
    if blind:
        verb, them = ("rests", "it on its own") if blind == 1 else ("rest", "them one by one")
        return f"{blind} {verb} on what could not be looked up: decide {them}."
    disguised = sum(
        bool(disguises(load(row.final_arguments_text or row.arguments_text), row.secret_fields)) for row in picked
    )
    if disguised:
        verb, them = ("has", "it on its own") if disguised == 1 else ("have", "them one by one")
        return f"{disguised} {verb} a text that is not what it looks like: decide {them}."
    final = sum(row.effect_class == EffectClass.IRREVERSIBLE for row in picked)
    if final:
        return f"{final} cannot be taken back: decide {'it on its own' if final == 1 else 'them one by one'}."
    risky = [row for row in picked if row.risk not in SMALL]
    if risky:
        level = " or ".join(sorted({row.risk for row in risky}, reverse=True))
        verb, them = ("is", "it on its own") if len(risky) == 1 else ("are", "them one by one")
        return f"{len(risky)} {verb} {level} risk: decide {them}."
    shown = sum(bool(row.assurance_needed) for row in picked)
    if shown:
        verb, them = ("needs", "it on its own") if shown == 1 else ("need", "them one by one")
        return f"{shown} {verb} the approver to show who they are: decide {them}."
    tools = {row.tool for row in picked}
    if len(tools) > 1:
        return f"They are calls of {len(tools)} tools: select those of one."
    return ""


def alike(picked: Sequence[Approval]) -> str:
    """What makes a batch possible, in words."""
    risks = {row.risk for row in picked}
    if not picked:
        return ""
    risk = f"all {next(iter(risks))} risk" if len(risks) == 1 else "all low or medium risk"
    return f"{risk}, all {picked[0].tool}"


def _decide(request: HttpRequest, user: User) -> HttpResponse:
    """Decide each row by its own decision. A refusal of one does not affect the others."""
    filters, kind = Filters.read(request.POST), request.POST.get("type", "")
    items = [item for text in request.POST.getlist("item")[: MOST + 1] if (item := _read(text))]
    found = {row.pk: row for row in _visible(user).filter(pk__in=[item.approval_id for item in items])}
    items = [item for item in items if item.approval_id in found]
    picked = [found[item.approval_id] for item in items]
    reason, message = request.POST.get("reason", ""), request.POST.get("message", "").strip()
    words = card.in_words(reason, message)
    problem = too_much(picked)
    if not problem and (kind not in TYPES or not picked):
        problem = "Choose to approve or to reject them."
    if not problem and kind == DecisionType.REJECT and not words:
        problem = "Say why: the agents read it."
    context = {"filters": filters, "picked": picked, "alike": alike(picked), "rejections": card.rejections()}
    table = _table(picked, items) if problem or kind == DecisionType.APPROVE else {}
    problem = problem or table.get("unseen", "")
    if problem:
        context |= {
            "problem": problem,
            "reason": reason if kind == DecisionType.REJECT else "",
            "message": message,
        } | table
        return render(request, "console/batch.html", context, status=422)
    results = [(item.approval_id, _decide_one(item, kind, words, user)) for item in items]
    request.session["batch"] = {
        "kind": kind,
        "query": filters.here,
        "results": [(str(approval_id), refused.message if refused else "") for approval_id, refused in results],
    }
    return _done(request, user)


@dataclass(frozen=True)
class Outcome:
    """What came of one request of a batch. `refused` says why it was not decided; `counts`: its decision stands."""

    approval: Approval
    standing: str
    counts: bool
    refused: str
    not_undone: str
    stopped: Sequence[in_the_way.Stopped]

    @property
    def can_undo(self) -> bool:
        return self.counts and (self.standing == "held" or self.approval.state in Approval.UNDECIDED)


def _done(request: HttpRequest, user: User) -> HttpResponse:
    """What came of each request of the last batch, as it stands now."""
    kept = request.session["batch"]
    found = {str(row.pk): row for row in _picked(user, [key for key, _ in kept["results"]])}
    counting = Decision.objects.filter(user=user, approval__in=list(found), undone_at__isnull=True)
    decided = {str(key) for key in counting.values_list("approval_id", flat=True)}
    held = [row for row in found.values() if str(row.pk) in decided and row.runs_at and not row.used_at]
    stopped = in_the_way.of_each(held)
    not_undone = kept.get("not_undone", {})
    rows = [
        Outcome(
            found[key],
            card.standing_of(found[key]),
            not why and key in decided,
            why,
            not_undone.get(key, ""),
            stopped.get(found[key].pk, []),
        )
        for key, why in kept["results"]
        if key in found
    ]
    context = {
        "filters": read_query(kept["query"]),
        "done": rows,
        "counted": sum(row.counts for row in rows),
        "undoable": [row.approval.pk for row in rows if row.can_undo],
        "kind": kept["kind"],
        "back_to": "batch",
    }
    return render_part(request, "console/batch_done.html", "results", context)


def _decide_one(item: Item, kind: str, words: str, user: User) -> actions.Refused | None:
    new = actions.NewDecision(
        id=item.decision_id,
        type=kind,
        version=item.version,
        action_digest=item.digest,
        message=words if kind == DecisionType.REJECT else "",
        via=VIA,
    )
    try:
        actions.decide(item.approval_id, new, user)
    except actions.Refused as refused:
        return refused
    return None


def _undo_one(key: uuid.UUID, user: User) -> str:
    """Take a decision back. Returns why that was refused, or an empty text."""
    try:
        actions.undo_decision(key, user)
    except actions.Refused as refused:
        return refused.message
    return ""


def _visible(user: User) -> QuerySet[Approval]:
    related = "claim__user", "starter", "execution__tool", "execution__run__starter"
    return card_rows.visible(user).select_related(*related)


def _picked(user: User, texts: Sequence[str]) -> list[Approval]:
    """The ticked requests, in that order, that this person may see."""
    wanted = list(dict.fromkeys(queue.read_ids(texts)))
    found = {row.pk: row for row in _visible(user).filter(pk__in=wanted)}
    return [found[key] for key in wanted if key in found]


@dataclass(frozen=True)
class Fact:
    """One argument of a call: its name and value as the card shows them, and its whole value for comparing."""

    label: str
    words: str
    whole: str

    @property
    def short(self) -> str:
        return self.words if len(self.words) <= LONG else self.words[: LONG - 1] + "…"


def _table(picked: Sequence[Approval], items: Sequence[Item]) -> dict[str, Any]:
    """The arguments that differ as columns and the others as one line, worded as on the card."""
    rows = [_facts(approval) for approval in picked]
    labels = {path: fact.label for row in rows for path, fact in row.items()}
    # Two arguments with the same label are told apart by their paths.
    twice = {label for label, count in Counter(labels.values()).items() if count > 1}
    labels = {path: f"{label} ({'.'.join(path)})" if label in twice else label for path, label in labels.items()}
    differing = [path for path in labels if len({row[path].whole if path in row else None for row in rows}) > 1]
    return {
        "unseen": _unseen(rows, len(differing)),
        "columns": [labels[path] for path in differing[:COLUMNS]],
        "same": [(label, rows[0][path].short) for path, label in labels.items() if path not in differing],
        "rows": [
            (approval, item, [row[path].short if path in row else "" for path in differing[:COLUMNS]])
            for approval, item, row in zip(picked, items, rows, strict=True)
        ],
    }


def _unseen(rows: Sequence[Mapping[tuple[str, ...], Fact]], differing: int) -> str:
    """Why these cannot be approved together: the table does not show all of what would run. Empty if it does."""
    if differing > COLUMNS:
        return f"{differing} arguments differ, and {COLUMNS} fit here: open each request to approve it."
    if any(len(fact.words) > LONG for row in rows for fact in row.values()):
        return "Some values are too long to be shown whole here: open each request to approve it."
    return ""


def _facts(approval: Approval) -> dict[tuple[str, ...], Fact]:
    """A call's arguments by path. Secrets are masked in the words but compared whole."""
    form = show(approval, None).form
    facts = {
        item.path: Fact(item.label, item.words or "not given", _whole(item.original))
        for item in form.all_fields
        if item.kind not in ("group", "rows")
    }
    for fixed in form.fixed:
        facts[(fixed.name,)] = Fact(fixed.label, fixed.value, _whole(form.arguments.get(fixed.name, ABSENT)))
    return facts


def _whole(value: Any) -> str:
    return "" if value is ABSENT else canonical({"": value})


def _read(text: str) -> Item | None:
    """A row of the posted form. One that cannot be read decides nothing."""
    parts = text.split(":")
    try:
        approval_id, version, digest, decision_id = parts
        return Item(uuid.UUID(approval_id), int(version[:9]), digest[:64], uuid.UUID(decision_id))
    except ValueError:
        return None
