"""From a query to its events: looks up names, builds conditions, pages by key, and counts up to a limit."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from agentapp import auth, discretion
from agentapp.audit import about, moments, names, query, vocabulary
from agentapp.audit.query import TEXT, Malformed, Query, Term
from agentapp.models import Agent, Run
from approvals import judgements, ledger, text_search
from approvals.models import Approval, Decision, Event, Judgement
from approvals.places import Place

PAGE = 50
# How many are counted; beyond that, the answer is only that there are more.
MOST_COUNTED = 10_000
MOST_NEWS = 99
# Where words are masked, how many of the latest matches are looked at.
_LOOKED_AT = 200
COUNT_MS = 1000
_LOOKUPS = {"<": "__lt", "<=": "__lte", ">": "__gt", ">=": "__gte", "=": ""}
_TIMES = ("since", "until")
# A century: nobody looks at a request for longer, and databases can count this far.
_LONGEST_MS = 100 * 365 * 86_400_000


@dataclass(frozen=True)
class Page:
    """A page of what was found. `newer` and `older` are where the adjacent pages begin, if there are any."""

    events: list[Event]
    newer: Place | None = None
    older: Place | None = None
    news: int = 0

    @property
    def first(self) -> Place | None:
        return Place.of(self.events[0]) if self.events else None


@dataclass(frozen=True)
class Count:
    """How many were found. If they cannot be counted quickly, all that is known is that there are many."""

    number: int
    is_more: bool = False
    is_known: bool = True


@dataclass(frozen=True)
class Asking:
    """Who asks what, and when."""

    asked: Query
    viewer: User
    now: datetime

    def types(self) -> set[str] | None:
        """The types that found events can have. None: any."""
        said = [term for term in self.asked.of("did") if not term.negated]
        kinds = [
            {type for word in term.values for deed in vocabulary.deeds(word) for type in deed.types} for term in said
        ]
        return set.intersection(*kinds) if kinds else None


def find(asked: Query, viewer: User, now: datetime | None = None) -> QuerySet[Event]:
    """The events that match, not yet ordered. Raises Malformed for a name that nothing has."""
    condition = Q()
    asking = Asking(asked, viewer, now or timezone.now())
    for term in asked.terms:
        try:
            one = _CONDITIONS[term.word](term, asking)
        except names.Unknown as error:
            raise Malformed([query.unknown(term.word, error.value, error.known, asked)]) from error
        condition &= ~one if term.negated else one
    found = Event.objects.filter(condition)
    return seen(found, viewer) if _looks_inside(asked) else found


def seen(found: QuerySet[Event], viewer: User) -> QuerySet[Event]:
    """Of these events, those of runs that this person may see, and those of no run."""
    return found if sees_all(viewer) else found.filter(_visible(viewer))


def page(found: QuerySet[Event], start: Place | None = None) -> Page:
    """One page, newest first. `start` is the place of its first event, even if that is gone."""
    stretch = found.filter(start.here_and_older) if start else found
    shown = list(judgements.marked(stretch).order_by("-at", "-id")[: PAGE + 1])
    older = Place.of(shown[PAGE]) if len(shown) > PAGE else None
    if start is None:
        return Page(shown[:PAGE], None, older)
    above = list(found.filter(start.newer).order_by("at", "id").only("at", "id")[: MOST_NEWS + 1])
    newer = Place.of(above[min(PAGE, len(above)) - 1]) if above else None
    return Page(shown[:PAGE], newer, older, len(above))


def count(found: QuerySet[Event]) -> Count:
    """How many there are, up to a limit, and for no longer than somebody would wait for a number."""
    few = found.order_by()[: MOST_COUNTED + 1]
    if connection.vendor != "postgresql":
        number = few.count()
        return Count(min(number, MOST_COUNTED), number > MOST_COUNTED)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {COUNT_MS}")
            number = few.count()
            cursor.execute("SET LOCAL statement_timeout = DEFAULT")
    except OperationalError:
        return Count(0, is_more=True, is_known=False)
    return Count(min(number, MOST_COUNTED), number > MOST_COUNTED)


# ---- who may see what


def sees_all(viewer: User) -> bool:
    """Whether somebody who may read the ledger may see every run that its events belong to."""
    return viewer.has_perm("agentapp.view_run")


def hidden(viewer: User, events: Sequence[Event]) -> set[uuid.UUID]:
    """Which of these events belong to runs that this person may not see. One query, or none if they see all."""
    if sees_all(viewer):
        return set()
    runs = {event.run_id for event in events if event.run_id is not None}
    seen = set(auth.visible_runs(viewer).filter(pk__in=runs).values_list("pk", flat=True))
    return {event.pk for event in events if event.run_id is not None and event.run_id not in seen}


def _looks_inside(asked: Query) -> bool:
    """Whether a query asks for more than a time: its answer must not reveal what the person may not see."""
    return any(term.word not in _TIMES for term in asked.terms)


def _visible(viewer: User) -> Q:
    return Q(run_id__isnull=True) | Q(Exists(auth.visible_runs(viewer).filter(pk=OuterRef("run_id"))))


# ---- what each word looks at


def _who(term: Term, asking: Asking) -> Q:
    keys, condition = list[str](), Q(pk__in=[])
    for value in term.values:
        if value.lower() == "customer":
            condition |= Q(actor_key__startswith="customer:")
        else:
            keys += names.actors(value, asking.viewer)
    return condition | Q(actor_key__in=keys)


def _did(term: Term, asking: Asking) -> Q:
    condition, plain = Q(pk__in=[]), list[str]()
    for word in term.values:
        for deed in vocabulary.deeds(word):
            if word != vocabulary.MONEY and not deed.says and not deed.silent_on:
                plain += deed.types
                continue
            one = Q(type__in=deed.types)
            if deed.says:
                says = Q(pk__in=[])
                for part in deed.says:
                    says |= Q(body__contains=part)
                one &= says
            for part in deed.silent_on:
                one &= ~Q(body__contains=part)
            condition |= one & Q(tool__in=names.money_tools()) if word == vocabulary.MONEY else one
    return condition | Q(type__in=plain)


def _tool(term: Term, asking: Asking) -> Q:
    return Q(tool__in=[names.tool(value) for value in term.values])


def _risk(term: Term, asking: Asking) -> Q:
    return Q(risk__in=term.values)


def _took(term: Term, asking: Asking) -> Q:
    condition = Q(pk__in=[])
    for value in term.values:
        bound = query.span_ms(value)
        condition |= Q(**{f"took_ms{_LOOKUPS[bound.operator]}": int(bound.number)})
    condition &= Q(took_ms__isnull=False)
    # Most calls are quick and most decisions are not, so what is rare among decisions is not rare among all events.
    types = asking.types()
    timed = Event.objects.filter(condition, **({} if types is None else {"type__in": types}))
    few = list(timed.order_by().values_list("pk", flat=True)[: about.FEW + 1])
    return Q(pk__in=few) if len(few) <= about.FEW else condition


def _cost(term: Term, asking: Asking) -> Q:
    condition = Q(pk__in=[])
    for value in term.values:
        bound = query.amount(value)
        condition |= Q(**{f"cost{_LOOKUPS[bound.operator]}": bound.number})
    return about.of_runs(Run.objects.filter(condition))


def _since(term: Term, asking: Asking) -> Q:
    zone, condition = timezone.get_current_timezone(), Q(pk__in=[])
    for span in filter(None, map(moments.read, term.values)):
        one = Q(at__gte=span.begins(asking.now, zone))
        condition |= one & Q(at__lt=span.ends(asking.now, zone)) if span.is_range else one
    return condition


def _until(term: Term, asking: Asking) -> Q:
    zone, condition = timezone.get_current_timezone(), Q(pk__in=[])
    for span in filter(None, map(moments.read, term.values)):
        condition |= Q(at__lt=span.ends(asking.now, zone))
    return condition


def _run(term: Term, asking: Asking) -> Q:
    return about.in_chains([key for value in term.values for key in names.keys(Run.objects.all(), "run", value)])


def _approval(term: Term, asking: Asking) -> Q:
    found = [key for value in term.values for key in names.keys(Approval.objects.all(), "approval", value)]
    return Q(approval_id__in=found)


def _agent(term: Term, asking: Asking) -> Q:
    agents = [names.named(Agent.objects.values_list("name", flat=True), value) for value in term.values]
    return about.of_runs(Run.objects.filter(agent__name__in=agents))


def _team(term: Term, asking: Asking) -> Q:
    groups = [names.team(value) for value in term.values]
    links = Approval.groups.through.objects.filter(group__in=groups)
    few = list(links.order_by().values_list("approval_id", flat=True)[: about.FEW + 1])
    if len(few) <= about.FEW:
        return Q(approval_id__in=few)
    return about.one_by_one(links.filter(approval=OuterRef("approval_id")))


def _rule(term: Term, asking: Asking) -> Q:
    rules = [names.rule(value) for value in term.values]
    condition = about.of_approvals(Approval.objects.filter(rule__in=rules))
    # Changes to a rule are about the rule too.
    changed = Q(type__in=vocabulary.BY_WORD["changed-rule"].types)
    for rule in rules:
        condition |= changed & names.named_in(rule)
    return condition


def _via(term: Term, asking: Asking) -> Q:
    condition = Q(pk__in=[])
    for value in term.values:
        condition |= {
            "console": Q(actor_key__startswith="user:") & ~Q(actor__contains=" ("),
            "token": Q(actor__contains=" (token ") | Q(actor__contains=" (api "),
            "customer": Q(actor_key__startswith="customer:"),
            "system": Q(actor_key=ledger.SYSTEM),
            "model": Q(actor_key=ledger.MODEL),
        }[value]
    return condition


def _seen(term: Term, asking: Asking) -> Q:
    """Decisions in force, by how long they came after the console first showed the request to the decider."""
    condition = Q(pk__in=[])
    for value in term.values:
        bound = query.span_ms(value)
        condition |= Q(
            **{f"seen{_LOOKUPS[bound.operator]}": timedelta(milliseconds=min(int(bound.number), _LONGEST_MS))}
        )
    standing = Decision.objects.filter(undone_at__isnull=True, user__isnull=False)
    return about.of_decisions(standing.annotate(seen=F("decided_at") - F("shown_at")).filter(condition))


def _judged(term: Term, asking: Asking) -> Q:
    """The decisions with this judgement, by the one that counts now."""
    return Q(pk__in=Judgement.that_count().filter(mark__in=term.values, event__isnull=False).order_by().values("event"))


def _text(term: Term, asking: Asking) -> Q:
    [text] = term.values
    titled = Approval.objects.filter(text_search.title_says(text))
    if discretion.hides():
        latest = titled.order_by("-id").values_list("pk", "run_id", "title", "final_title")[:_LOOKED_AT]
        titled = Approval.objects.filter(pk__in=_legible(text, latest))
    condition = text_search.event_says(text, about.FEW) | about.of_approvals(titled)
    for written in text_search.WRITTEN:
        rows = written.saying(text)
        if discretion.hides():
            latest = rows.order_by("-pk").values_list("approval_id", "approval__run_id", *written.texts)[:_LOOKED_AT]
            rows = rows.filter(approval_id__in=_legible(text, latest))
        condition |= _told_of(rows, written.told_by)
    return condition


def _legible(text: str, rows: Iterable[Sequence[Any]]) -> list[uuid.UUID]:
    """From rows of (request, run, texts), the requests whose texts contain these words as the viewer sees them."""
    return discretion.legible(text, ((key, run, " ".join(said)) for key, run, *said in rows))


def _told_of(rows: QuerySet[Any], types: Sequence[str]) -> Q:
    """The events of these types about the requests of some rows."""
    few = list(rows.values_list("approval_id", flat=True)[: about.FEW + 1])
    if len(few) <= about.FEW:
        return about.events_of(few, type__in=types)
    return about.one_by_one(rows.filter(approval=OuterRef("approval_id")), type__in=types)


_CONDITIONS: dict[str, Callable[[Term, Asking], Q]] = {
    TEXT: _text,
    "who": _who,
    "did": _did,
    "tool": _tool,
    "risk": _risk,
    "took": _took,
    "cost": _cost,
    "since": _since,
    "until": _until,
    "run": _run,
    "approval": _approval,
    "agent": _agent,
    "team": _team,
    "rule": _rule,
    "via": _via,
    "seen": _seen,
    "judged": _judged,
}
