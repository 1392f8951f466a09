"""The inbox's queue: which requests wait for a person, in what order, in which groups, page by page."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Prefetch, Q, QuerySet
from django.http import QueryDict
from django.utils import timezone

from agentapp import auth
from agentapp.models import ToolExecution
from approvals.digest import storable
from approvals.models import Approval, Decision, Risk

PAGE = 50
UNKNOWN_SHOWN = 20
NEEDS, DECIDED = "needs", "decided"
ENDED = (*Approval.DECIDED, Approval.State.USED, Approval.State.EXPIRED)


@dataclass(frozen=True)
class Filters:
    """What narrows the queue. They are the URL, so that a view can be kept and shared."""

    view: str = NEEDS
    text: str = ""
    risk: str = ""
    tool: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> "Filters":
        risk = query.get("risk", "")
        return cls(
            view=DECIDED if query.get("view") == DECIDED else NEEDS,
            text=storable(query.get("q", "").strip())[:100],
            risk=risk if risk in Risk.values else "",
            tool=storable(query.get("tool", ""))[:120],
        )

    @property
    def narrow(self) -> bool:
        return bool(self.text or self.risk or self.tool)

    def apply(self, approvals: QuerySet[Approval]) -> QuerySet[Approval]:
        if self.text:
            words = Q(title__icontains=self.text) | Q(final_title__icontains=self.text)
            approvals = approvals.filter(words | Q(tool__icontains=self.text) | Q(agent__icontains=self.text))
        if self.risk:
            approvals = approvals.filter(risk=self.risk)
        return approvals.filter(tool=self.tool) if self.tool else approvals

    def query(self, **changes: str) -> str:
        """The query string of this view with some parts changed; a part set to nothing is left out."""
        parts = {"view": self.view, "q": self.text, "risk": self.risk, "tool": self.tool, **changes}
        if parts["view"] == NEEDS:
            parts["view"] = ""
        return "?" + urlencode({name: value for name, value in parts.items() if value})

    @property
    def here(self) -> str:
        return self.query()

    @property
    def cleared(self) -> str:
        return self.query(q="", risk="", tool="")

    @property
    def chips(self) -> list[tuple[str, str, str]]:
        """What is narrowed by, and where it leads to take it away."""
        chips = [("Text", self.text, self.query(q=""))] if self.text else []
        if self.risk:
            chips.append(("Risk", str(Risk(self.risk).label), self.query(risk="")))
        return [*chips, ("Tool", self.tool, self.query(tool=""))] if self.tool else chips


@dataclass
class Group:
    """Rows that are due in the same stretch of time."""

    title: str
    rows: list[Approval] = field(default_factory=list)


@dataclass(frozen=True)
class Queue:
    """One page of requests, what is new since it was first shown, and where the next page begins."""

    groups: list[Group]
    rows: list[Approval]
    new: int = 0
    next_page: str = ""


def pending(user: User) -> QuerySet[Approval]:
    return auth.visible_approvals(user).filter(state=Approval.State.PENDING).order_by("expires_at", "id")


def decided_today(user: User) -> int:
    """How many were decided since midnight, by anybody."""
    start = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    return auth.visible_approvals(user).filter(state__in=ENDED, decided_at__gte=start).count()


def waiting(user: User, filters: Filters, after: str) -> Queue:
    """The requests that wait, those due first. `after` is where the page before ended."""
    rows = list(_after(filters.apply(pending(user)), after, newest_first=False)[: PAGE + 1])
    return Queue(_by_due(rows[:PAGE]), rows[:PAGE], next_page=_next_page(rows, "expires_at"))


def as_shown(user: User, filters: Filters, shown: Sequence[uuid.UUID], last: str) -> Queue:
    """The requests a page shows, as they stand now and in the same places, and how many came since.

    Decided ones stay, so that nothing moves under the cursor. `last` is where the page ended.
    """
    decisions = Decision.objects.select_related("user").filter(undone_at__isnull=True)
    found = auth.visible_approvals(user).filter(pk__in=shown).order_by("expires_at", "id")
    rows = list(found.prefetch_related(Prefetch("decisions", queryset=decisions)))
    newer = filters.apply(pending(user)).exclude(pk__in=shown)
    place = _place(last)
    if place:
        newer = newer.filter(Q(expires_at__lt=place[0]) | Q(expires_at=place[0], id__lt=place[1]))
    return Queue(_by_due(rows), rows, new=newer.count(), next_page=last)


def decided(user: User, filters: Filters, after: str) -> Queue:
    """The requests that have been decided or have ended by themselves, latest first."""
    ended = auth.visible_approvals(user).filter(state__in=ENDED, decided_at__isnull=False)
    rows_query = filters.apply(ended).order_by("-decided_at", "-id")
    decisions = Decision.objects.select_related("user").filter(undone_at__isnull=True)
    rows_query = rows_query.select_related("execution").prefetch_related(Prefetch("decisions", queryset=decisions))
    rows = list(_after(rows_query, after, newest_first=True)[: PAGE + 1])
    return Queue(_by_day(rows[:PAGE]), rows[:PAGE], next_page=_next_page(rows, "decided_at"))


def unknown_outcomes(user: User) -> list[ToolExecution]:
    """Calls of which nobody knows whether they happened, oldest first."""
    unknown = ToolExecution.objects.filter(state=ToolExecution.State.OUTCOME_UNKNOWN, run__in=auth.visible_runs(user))
    return list(unknown.select_related("run", "approval", "tool").order_by("proposed_at")[:UNKNOWN_SHOWN])


def read_ids(values: Iterable[str]) -> list[uuid.UUID]:
    """The ids among texts from a query string; what is not an id is passed over."""
    found = []
    for value in list(values)[: 2 * PAGE]:
        try:
            found.append(uuid.UUID(value))
        except ValueError:
            continue
    return found


def _by_due(rows: list[Approval]) -> list[Group]:
    now = timezone.now()
    midnight = timezone.localtime(now).replace(hour=23, minute=59, second=59)
    limits = [
        ("Due within 15 minutes", now + timedelta(minutes=15)),
        ("Due within an hour", now + timedelta(hours=1)),
        ("Later today", midnight),
    ]
    groups: dict[str, Group] = {}
    for row in rows:
        title = next((title for title, limit in limits if row.expires_at <= limit), "Later")
        groups.setdefault(title, Group(title)).rows.append(row)
    return list(groups.values())


def _by_day(rows: list[Approval]) -> list[Group]:
    today = timezone.localdate()
    groups: dict[str, Group] = {}
    for row in rows:
        day = timezone.localtime(row.decided_at).date()
        title = {0: "Today", 1: "Yesterday"}.get((today - day).days, day.strftime("%-d %B %Y"))
        groups.setdefault(title, Group(title)).rows.append(row)
    return list(groups.values())


def _after(rows: QuerySet[Approval], place: str, newest_first: bool) -> QuerySet[Approval]:
    found = _place(place)
    if found is None:
        return rows
    at, key = found
    if newest_first:
        return rows.filter(Q(decided_at__lt=at) | Q(decided_at=at, id__lt=key))
    return rows.filter(Q(expires_at__gt=at) | Q(expires_at=at, id__gt=key))


def _next_page(rows: list[Approval], name: str) -> str:
    if len(rows) <= PAGE:
        return ""
    last = rows[PAGE - 1]
    return f"{getattr(last, name).isoformat()}~{last.pk.hex}"


def _place(text: str) -> tuple[datetime, uuid.UUID] | None:
    """Where a page ended, as the pager's link says; None for anything else."""
    at, _, key = text.partition("~")
    try:
        moment = datetime.fromisoformat(at)
        return (moment.astimezone(UTC), uuid.UUID(key)) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
