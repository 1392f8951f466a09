"""The inbox's queue: which requests wait for a person, in what order, in which groups, page by page."""

import statistics
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, DateTimeField, Min, Prefetch, Q, QuerySet, UUIDField, Value
from django.utils import timezone

from agentapp import auth
from agentapp.console import filters as looking
from agentapp.console.filters import DECIDED, Filters
from agentapp.models import SavedView, ToolExecution
from approvals import entitlement, questions
from approvals.models import Approval, ApprovalKind, Claim, Decision
from approvals.places import moment
from approvals.prepared import Given

PAGE = 50
UNKNOWN_SHOWN = 20
LOOKED_THROUGH = 1000
# Above this a list can no longer be read row by row.
STORM = 200
STORM_GROUPS = 40
ENDED = (*Approval.DECIDED, Approval.State.USED, Approval.State.EXPIRED)
# Only the card shows these; a list of requests leaves them out.
_HEAVY = (
    "arguments",
    "sentence",
    "effects",
    "evidence",
    "explanation",
    "snapshot_text",
    "preview_text",
    "final_preview_text",
    "difference",
    "rule_values",
)


_FOR_PEOPLE = Q(kind__in=(ApprovalKind.AUTHORIZATION, ApprovalKind.PLAN))


@dataclass
class Group:
    """Rows that are due in the same period, or equal in what the list is ordered by."""

    title: str
    rows: list[Approval] = field(default_factory=list)


@dataclass(frozen=True)
class Queue:
    """One page of requests, how many are new since it was first shown, and where the next page begins."""

    groups: list[Group]
    rows: list[Approval]
    new: int = 0
    next_page: str = ""


@dataclass(frozen=True)
class Counts:
    """The figures of the tabs. `due`: how many are due within five minutes."""

    mine: int
    needs: int
    free: int
    decided: int
    snoozed: int
    due: int


def undecided(user: User) -> QuerySet[Approval]:
    """The requests that wait for people. Those that wait for a customer are on the page of their run."""
    return waiting_among(auth.visible_approvals(user))


def waiting_among(approvals: QuerySet[Approval]) -> QuerySet[Approval]:
    return approvals.filter(_FOR_PEOPLE, state__in=Approval.UNDECIDED)


def pending(user: User) -> QuerySet[Approval]:
    """What needs a decision and this person may see, those due first."""
    return undecided(user).filter(looking.tab(looking.NEEDS, user.pk)).order_by("expires_at", "id")


def pending_ids(user: User, most: int) -> list[uuid.UUID]:
    """The first of their ids."""
    return _pending_ids(most).rows(user)


@cache
def _pending_ids(most: int) -> entitlement.Seen[uuid.UUID]:
    def first(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval, uuid.UUID]:
        found = _of_tab(looking.NEEDS, sight, reader).order_by("expires_at", "id")
        return found.values_list("pk", flat=True)[:most]

    return entitlement.Seen(first)


def counts(user: User) -> Counts:
    """All figures in one query."""
    now = timezone.localtime()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    found = _COUNTS.first(user, midnight=midnight, soon=now + timedelta(minutes=5))
    return Counts(*found[1:]) if found is not None else Counts(0, 0, 0, 0, 0, 0)


def _counted(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval, tuple[Any, ...]]:
    """The figures as one row, after a constant column. No row: there is nothing to count."""
    waits = Q(state__in=Approval.UNDECIDED) & _FOR_PEOPLE
    today = Q(state__in=ENDED, decided_at__gte=Given("midnight", DateTimeField()))
    tabs = {name: waits & looking.tab(name, reader) for name in ("mine", "needs", "free", "snoozed")}
    conditions = tabs | {
        "decided": today,
        "due": tabs["needs"] & Q(expires_at__lte=Given("soon", DateTimeField())),
    }
    wanted = {f.name: Count("pk", filter=conditions[f.name]) for f in fields(Counts)}
    found = entitlement.seen(sight, reader).filter(waits | today).annotate(all=Value(1)).values("all")
    return found.annotate(**wanted).order_by().values_list("all", *wanted)


_COUNTS = entitlement.Seen(_counted)


def saved_views(user: User) -> list[tuple[SavedView, Filters, int | None]]:
    """A person's saved views, and how many requests wait in each. Two queries, however many views."""
    views = list(SavedView.objects.filter(user=user, page="inbox"))
    read = {str(view.pk): looking.read_query(view.query) for view in views}
    wanted = {
        f"v{number}": Count("pk", filter=looking.tab(filters.view, user.pk) & filters.condition(user))
        for number, filters in enumerate(read.values())
        if filters.view != DECIDED
    }
    found = undecided(user).aggregate(**wanted) if wanted else {}
    return [(view, read[str(view.pk)], found.get(f"v{number}")) for number, view in enumerate(views)]


def waiting(user: User, filters: Filters, after: str) -> Queue:
    """The waiting requests, in the order asked for. `after` is where the previous page ended."""
    if filters.narrow or after:
        found = looking.ordered(_in_view(user, filters), filters)
        rows = list(_beside(found, after, filters.order)[: PAGE + 1])
    else:  # the view that nearly everybody uses
        rows = _first_page(filters.view, filters.sort).rows(user)
    return Queue(_grouped(rows[:PAGE], filters), rows[:PAGE], next_page=_next_page(rows, filters.order))


def as_shown(user: User, filters: Filters, shown: Sequence[uuid.UUID], last: str) -> Queue:
    """The requests a page shows, as they stand now and in the same places, and how many came since.

    Decided ones stay, so that nothing moves under the cursor. `last` is where the page ended.
    """
    given = _filled_up(shown)
    by_id = {row.pk: row for row in _among(len(given)).rows(user, **given)} if shown else {}
    rows = [by_id[key] for key in shown if key in by_id]
    if last or filters.narrow:
        newer = looking.ordered(_in_view(user, filters), filters).exclude(pk__in=shown)
        new = (_beside(newer, last, filters.order, before=True) if last else newer).count()
    else:
        new = _others(filters.view, len(given)).first(user, **given) or 0
    return Queue(_grouped(rows, filters), rows, new=new, next_page=last)


# The last id is repeated up to one of these sizes, because each number of ids needs a statement of its own.
_SIZES = (0, 1, 10, 25, PAGE, 2 * PAGE)


def _filled_up(shown: Sequence[uuid.UUID]) -> dict[str, uuid.UUID]:
    size = next(size for size in _SIZES if len(shown) <= size)
    return {f"id{number}": shown[min(number, len(shown) - 1)] for number in range(size)}


def _ids(size: int) -> Any:
    return [Given(f"id{number}", UUIDField()) for number in range(size)]


@cache
def _among(size: int) -> entitlement.Seen[Approval]:
    def those(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval]:
        found = entitlement.seen(sight, reader).filter(pk__in=_ids(size))
        return _with_claims(found, reader).prefetch_related(_counting())

    return entitlement.Seen(those)


@cache
def _others(view: str, size: int) -> entitlement.Seen[int]:
    """How many other requests a tab shows without filters. No row: none."""

    def number(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval, int]:
        alike = _of_tab(view, sight, reader).exclude(pk__in=_ids(size)).annotate(all=Value(1)).values("all")
        return alike.annotate(number=Count("pk")).order_by().values_list("number", flat=True)

    return entitlement.Seen(number)


def decided(user: User, filters: Filters, after: str) -> Queue:
    """The requests that were decided or ended by themselves, latest first."""
    found = looking.ordered(_ended(user).filter(filters.condition(user)).defer(*_HEAVY), filters)
    found = found.select_related("execution").prefetch_related(_counting())
    rows = list(_beside(found, after, filters.order)[: PAGE + 1])
    return Queue(_by_day(rows[:PAGE]), rows[:PAGE], next_page=_next_page(rows, filters.order))


def last_decided(user: User) -> QuerySet[Approval]:
    """As many of those requests as can be looked through at once, the latest."""
    latest = _ended(user).order_by(*looking.DECIDED_ORDER).values("pk")[:LOOKED_THROUGH]
    return Approval.objects.filter(pk__in=latest)


def _ended(user: User) -> QuerySet[Approval]:
    return auth.visible_approvals(user).filter(state__in=ENDED, decided_at__isnull=False)


def storm(user: User) -> list[dict[str, Any]]:
    """Far more requests than anybody can read, counted by what they have in common, the largest group first."""
    alike = pending(user).order_by().values("agent", "tool", "rule")
    found = alike.annotate(n=Count("pk"), first=Min("expires_at")).order_by("-n", "first")
    return [dict(group) for group in found[:STORM_GROUPS]]


def unknown_outcomes(user: User) -> list[ToolExecution]:
    """Calls whose outcome is unknown, oldest first."""
    unknown = ToolExecution.objects.filter(
        state=ToolExecution.State.OUTCOME_UNKNOWN, mocked=False, run__in=auth.visible_runs(user)
    )
    return list(unknown.select_related("run", "approval", "tool").order_by("proposed_at")[:UNKNOWN_SHOWN])


def my_day(user: User) -> tuple[int, timedelta | None]:
    """How many decisions this person has made today, and how long a request typically waited for one."""
    start = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    mine = Decision.objects.filter(user=user, decided_at__gte=start, undone_at__isnull=True)
    waits = [
        (decided_at - created_at).total_seconds() - questions.stood_by(decided_at, paused, stopped_at)
        for decided_at, created_at, paused, stopped_at in mine.annotate(stopped_at=questions.stopped_at()).values_list(
            "decided_at", "approval__created_at", "approval__paused_seconds", "stopped_at"
        )
    ]
    return len(waits), timedelta(seconds=max(0.0, statistics.median(waits))) if waits else None


def read_ids(values: Iterable[str]) -> list[uuid.UUID]:
    """The ids among texts from a query string. Anything else is skipped."""
    found = []
    for value in list(values)[: 2 * PAGE]:
        try:
            found.append(uuid.UUID(value))
        except ValueError:
            continue
    return found


def _in_view(user: User, filters: Filters) -> QuerySet[Approval]:
    """The waiting requests that a tab shows, narrowed by the filters."""
    tab = "snoozed" if filters.snoozed else filters.view
    return _with_claims(undecided(user).filter(looking.tab(tab, user.pk), filters.condition(user)), user.pk)


@cache
def _first_page(view: str, sort: str) -> entitlement.Seen[Approval]:
    """The first page of a tab without filters. There are twenty of them."""

    def first(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval]:
        shown = _with_claims(_of_tab(view, sight, reader), reader)
        return looking.ordered(shown, Filters(view=view, sort=sort))[: PAGE + 1]

    return entitlement.Seen(first)


def _of_tab(view: str, sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval]:
    return waiting_among(entitlement.seen(sight, reader)).filter(looking.tab(view, reader))


def _with_claims(approvals: QuerySet[Approval], person: entitlement.Person) -> QuerySet[Approval]:
    """Add who looks after each request, and for whom this person would decide."""
    shown = approvals.defer(*_HEAVY).select_related("claim__user", "claim__group")
    return shown.annotate(for_whom=entitlement.lender_shown(person))


def _counting() -> Any:
    return Prefetch(
        "decisions", queryset=Decision.objects.select_related("user", "on_behalf_of").filter(undone_at__isnull=True)
    )


def _grouped(rows: list[Approval], filters: Filters) -> list[Group]:
    if filters.sort == "due":
        return _by_due(rows)
    if filters.sort == "risk":
        return _by(rows, [f"{row.get_risk_display()} risk" for row in rows])
    return [Group(filters.sort_words, rows)] if rows else []


def _by_due(rows: list[Approval]) -> list[Group]:
    now = timezone.now()
    midnight = timezone.localtime(now).replace(hour=23, minute=59, second=59)
    limits = [
        ("Due within 15 minutes", now + timedelta(minutes=15)),
        ("Due within an hour", now + timedelta(hours=1)),
        ("Later today", midnight),
    ]
    return _by(rows, [next((title for title, limit in limits if row.expires_at <= limit), "Later") for row in rows])


def _by_day(rows: list[Approval]) -> list[Group]:
    today = timezone.localdate()
    days = [timezone.localtime(row.decided_at).date() for row in rows]
    titles = [{0: "Today", 1: "Yesterday"}.get((today - day).days, day.strftime("%-d %B %Y")) for day in days]
    return _by(rows, titles)


def _by(rows: list[Approval], titles: list[str]) -> list[Group]:
    groups: dict[str, Group] = {}
    for row, title in zip(rows, titles, strict=True):
        groups.setdefault(title, Group(title)).rows.append(row)
    return list(groups.values())


# ---- pages: a place is the last row's value for each part of the order, so that pages neither miss nor repeat rows


def _beside(rows: QuerySet[Approval], place: str, order: tuple[str, ...], before: bool = False) -> QuerySet[Approval]:
    """The rows after a place, or before it. A place that cannot be read means the beginning."""
    values = _place(place, order)
    if values is None:
        return rows
    found, same = Q(), Q()
    for key, value in zip(order, values, strict=True):
        name, falling = key.removeprefix("-"), key.startswith("-")
        found |= same & Q(**{f"{name}__{'lt' if falling != before else 'gt'}": value})
        same &= Q(**{name: value})
    return rows.filter(found)


def _next_page(rows: list[Approval], order: tuple[str, ...]) -> str:
    if len(rows) <= PAGE:
        return ""
    values = [getattr(rows[PAGE - 1], key.removeprefix("-")) for key in order]
    return "~".join(value.isoformat() if isinstance(value, datetime) else str(value) for value in values)


def _place(text: str, order: tuple[str, ...]) -> list[Any] | None:
    parts = text.split("~")
    if len(parts) != len(order):
        return None
    try:
        return [_READ[key.removeprefix("-")](part) for key, part in zip(order, parts, strict=True)]
    except (ValueError, OverflowError, InvalidOperation):
        return None


def _amount(text: str) -> Decimal:
    amount = Decimal(text)
    if not amount.is_finite() or abs(amount) > 10**12:
        raise ValueError("Not a cost.")
    return amount


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise ValueError("Not a risk.")
    return int(text)


_READ: dict[str, Any] = {
    "expires_at": moment, "created_at": moment, "decided_at": moment, "id": uuid.UUID, "rank": _rank,
    "run_cost": _amount,
}  # fmt: skip


def holder(row: Approval) -> Claim | None:
    """The claim shown with a row of the list, already read with it."""
    if row.state not in Approval.UNDECIDED:
        return None
    claim: Claim | None = getattr(row, "claim", None)
    lapsed = claim is not None and claim.until is not None and claim.until <= timezone.now()
    return None if lapsed else claim
