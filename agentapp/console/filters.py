"""The filters and the order of the inbox. They are in the URL, so a view can be kept and shared."""

import uuid
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Case, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.http import QueryDict
from django.utils import timezone

from agentapp import discretion
from agentapp.models import Run
from approvals import claims
from approvals.clock import Now
from approvals.digest import storable
from approvals.entitlement import Person, groups_of
from approvals.models import Approval, Decision, Risk, Snooze
from approvals.policy import RISK_ORDER

NEEDS, MINE, FREE, DECIDED = "needs", "mine", "free", "decided"
VIEWS = (MINE, NEEDS, FREE, DECIDED)
NOBODY = "nobody"
# When titles are masked, search only this many of the latest matches.
LOOKED_AT = 200
LATE = {"1": "Missed"}
AGES = {"15m": "15 minutes", "1h": "an hour", "4h": "4 hours", "1d": "a day"}
_AGE = {
    "15m": timedelta(minutes=15), "1h": timedelta(hours=1), "4h": timedelta(hours=4), "1d": timedelta(days=1),
}  # fmt: skip
SORTS = {"due": "Due first", "risk": "Riskiest first", "oldest": "Oldest first", "newest": "Newest first",
         "cost": "Costliest run first"}  # fmt: skip
# The sort keys, first to last; a minus reverses one. Ties: risk, then age.
ORDERS: dict[str, tuple[str, ...]] = {
    "due": ("expires_at", "-rank", "id"),
    "risk": ("-rank", "id"),
    "oldest": ("created_at", "-rank", "id"),
    "newest": ("-created_at", "-rank", "id"),
    "cost": ("-run_cost", "-rank", "id"),
}
DECIDED_ORDER = ("-decided_at", "-id")


@dataclass(frozen=True)
class Filters:
    """One way of looking at the queue. Each field is part of the address, under the name in `_PARTS`."""

    view: str = NEEDS
    text: str = ""
    team: str = ""
    risk: str = ""
    tool: str = ""
    agent: str = ""
    rule: str = ""
    starter: str = ""
    age: str = ""
    claimed: str = ""
    by: str = ""
    late: str = ""
    sort: str = "due"
    snoozed: str = ""
    flat: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> "Filters":
        """The filters of an address. Invalid values are left out."""
        found = {name: storable(query.get(_PARTS.get(name, name), "").strip())[:120] for name in _NAMES}
        found["text"] = found["text"][:100]
        for name, known in _KNOWN.items():
            if found[name] not in known:
                found[name] = _DEFAULTS[name]
        return cls(**found)

    @property
    def narrow(self) -> bool:
        return any(getattr(self, name) for name in _NARROWING)

    def condition(self, user: User) -> Q:
        """Which requests these filters let through, in any tab."""
        plain = {name: getattr(self, name) for name in ("risk", "tool", "agent", "rule") if getattr(self, name)}
        found = Q(**plain)
        if self.text:
            found &= _about(self.text)
        if self.starter:
            found &= Q(starter__username=self.starter)
        if self.team:
            links = Approval.groups.through.objects.filter(approval=OuterRef("pk"), group__name=self.team)
            found &= Q(Exists(links))
        if self.age:
            found &= Q(created_at__lte=timezone.now() - _AGE[self.age])
        if self.late:
            found &= Q(breached_at__isnull=False) | Q(target_at__lte=Now(), state__in=Approval.UNDECIDED)
        if self.claimed == NOBODY:
            found &= ~Q(Exists(claims.standing().filter(approval=OuterRef("pk"))))
        elif self.claimed:
            found &= Q(Exists(claims.standing().filter(approval=OuterRef("pk"), user__username=self.claimed)))
        if self.by:
            counting = Decision.objects.filter(approval=OuterRef("pk"), undone_at__isnull=True)
            found &= Q(Exists(counting.filter(user__username=self.by)))
        return found

    def query(self, **changes: str) -> str:
        """The query string of this view with some parts changed. A part set to an empty text is left out."""
        parts = {_PARTS.get(name, name): value for name, value in asdict(self).items()} | changes
        told = {name: value for name, value in parts.items() if value and value != _DEFAULTS.get(name)}
        return "?" + urlencode(told)

    @property
    def here(self) -> str:
        return self.query()

    @property
    def cleared(self) -> str:
        return self.query(**{_PARTS.get(name, name): "" for name in _NARROWING})

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The fields a form must post to come back here."""
        named = ((_PARTS.get(name, name), str(value)) for name, value in asdict(self).items())
        return [(name, value) for name, value in named if value and value != _DEFAULTS.get(name)]

    @property
    def chips(self) -> list[tuple[str, str, str]]:
        """The active filters, each with the address that removes it."""
        shown = {
            "risk": self.risk.capitalize(),
            "age": f"over {AGES.get(self.age, '')}",
            "snoozed": "by you",
            "late": "missed",
        }
        return [
            (_CHIPS[name], shown.get(name, getattr(self, name)), self.query(**{_PARTS.get(name, name): ""}))
            for name in _NARROWING
            if getattr(self, name)
        ]

    @property
    def sorts(self) -> list[tuple[str, str, bool]]:
        """Every order: its words, its address, and whether it is the current one."""
        return [(words, self.query(sort=name), name == self.sort) for name, words in SORTS.items()]

    @property
    def sort_words(self) -> str:
        return "Latest first" if self.view == DECIDED else SORTS[self.sort]

    @property
    def order(self) -> tuple[str, ...]:
        return DECIDED_ORDER if self.view == DECIDED else ORDERS[self.sort]


_NAMES = tuple(field.name for field in fields(Filters))
_DEFAULTS: dict[str, str] = {field.name: str(field.default) for field in fields(Filters)}
_PARTS = {"text": "q", "flat": "all"}
_KNOWN: dict[str, Any] = {
    "view": VIEWS, "risk": Risk.values, "age": AGES, "sort": SORTS, "late": LATE, "snoozed": ("1",),
    "flat": ("1",),
}  # fmt: skip
_CHIPS = {
    "text": "Text", "team": "Team", "risk": "Risk", "tool": "Tool", "agent": "Agent", "rule": "Policy",
    "starter": "Requester", "age": "Waiting", "claimed": "Claimed by", "by": "Decided by", "late": "Target",
    "snoozed": "Snoozed",
}  # fmt: skip
_NARROWING = tuple(_CHIPS)
_COST = Run._meta.get_field("cost")


def tab(name: str, person: Person) -> Q:
    """Which waiting requests a tab shows to this person."""
    asleep = Q(Exists(Snooze.objects.filter(approval=OuterRef("pk"), user=person, until__gt=Now())))
    held = claims.standing().filter(approval=OuterRef("pk"))
    if name == MINE:
        return Q(Exists(held.filter(user=person)))
    if name == "snoozed":
        return asleep
    if name == FREE:
        # A request handed to one of my groups is mine to take.
        return ~asleep & ~Q(Exists(held.exclude(group__in=groups_of(person))))
    return ~asleep


def ordered(approvals: QuerySet[Approval], filters: Filters) -> QuerySet[Approval]:
    """In the requested order, annotated with what that order needs."""
    if filters.view == DECIDED:
        return approvals.order_by(*filters.order)
    levels = [When(risk=level, then=Value(number)) for number, level in enumerate(RISK_ORDER)]
    approvals = approvals.annotate(rank=Case(*levels, default=Value(0), output_field=IntegerField()))
    if filters.sort == "cost":
        cost = Run.objects.filter(pk=OuterRef("run_id")).values("cost")
        approvals = approvals.annotate(run_cost=Coalesce(Subquery(cost), Value(0), output_field=_COST))
    return approvals.order_by(*filters.order)


def _about(text: str) -> Q:
    """The requests that match typed text: words, a tool, an agent, or a reference such as APR-7F3K2A."""
    ending = text.upper().removeprefix("APR-")
    if text.upper().startswith("APR-") and len(ending) == 6:
        return Q(pk__iendswith=ending)
    words = Q(title__icontains=text) | Q(final_title__icontains=text)
    if discretion.hides():
        words = Q(pk__in=_legible(words, text))
    return words | Q(tool__icontains=text) | Q(agent__icontains=text)


def _legible(named: Q, text: str) -> list[uuid.UUID]:
    """The latest requests whose titles, as shown to this reader, contain the text."""
    found = Approval.objects.filter(named).order_by("-id").values_list("pk", "run_id", "title", "final_title")
    latest = found[:LOOKED_AT]
    return discretion.legible(text, ((key, run, final or title) for key, run, title, final in latest))


def read_query(text: str) -> Filters:
    """The filters of a saved query string."""
    return Filters.read(QueryDict(text.removeprefix("?")))
