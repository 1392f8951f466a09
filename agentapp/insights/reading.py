"""The figures of a period: those that are kept, and those counted since. Reads only."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any

from django.db.models import Aggregate, Case, Count, Min, Q, QuerySet, Subquery, Sum, TextField, Value, When
from django.db.models.functions import Cast, TruncDay

from agentapp.insights import adding
from agentapp.insights.adding import Waits
from agentapp.insights.counting import FOR_PEOPLE, HOUR, NOTHING, count_calls, count_models, count_requests, hour_of
from agentapp.insights.periods import DAY, Period
from agentapp.models import CallFigures, ModelFigures, RequestFigures, RollUp, Span
from approvals.models import Approval

By = RequestFigures.By

# At most this much is counted while the reader waits. Beyond it, figures end earlier and say so.
MOST_LIVE = 3 * HOUR
DUE_SOON = timedelta(minutes=15)

NUMBERS = (
    "asked", "approved", "changed", "rejected", "responded", "expired", "withdrawn", "superseded",
    "high_seen", "high_fast", "approvals_seen", "approvals_fast",
)  # fmt: skip


@dataclass
class Sums:
    """What became of requests, added up."""

    asked: int = 0
    approved: int = 0
    changed: int = 0
    rejected: int = 0
    responded: int = 0
    expired: int = 0
    withdrawn: int = 0
    superseded: int = 0
    high_seen: int = 0
    high_fast: int = 0
    approvals_seen: int = 0
    approvals_fast: int = 0
    waits: Waits = field(default_factory=Waits)
    claimed: Waits = field(default_factory=Waits)

    def add(self, numbers: Iterable[int], waits: Waits, claimed: Waits) -> None:
        for name, number in zip(NUMBERS, numbers, strict=True):
            if number:
                setattr(self, name, getattr(self, name) + number)
        self.waits.add(waits)
        self.claimed.add(claimed)

    def add_row(self, row: RequestFigures) -> None:
        """The same for a row that was counted just now."""
        self.add([getattr(row, name) for name in NUMBERS], Waits(row.waits), Waits(row.claimed))

    @property
    def decided(self) -> int:
        return self.approved + self.changed + self.rejected + self.responded

    @property
    def ended(self) -> int:
        return self.decided + self.expired + self.withdrawn + self.superseded

    @property
    def approved_share(self) -> float | None:
        yes = self.approved + self.changed
        return adding.share(yes, yes + self.rejected)

    @property
    def changed_share(self) -> float | None:
        return adding.share(self.changed, self.approved + self.changed)

    @property
    def expired_share(self) -> float | None:
        return adding.share(self.expired, self.ended)

    @property
    def fast_share(self) -> float | None:
        """Of their approvals of requests that the console had shown them, the share made within three seconds."""
        return adding.share(self.approvals_fast, self.approvals_seen)

    @property
    def median(self) -> int | None:
        return self.waits.median

    @property
    def p95(self) -> int | None:
        return self.waits.p95

    @property
    def timed(self) -> int:
        """How many waits the percentiles are based on."""
        return self.waits.number


@dataclass(frozen=True)
class Waiting:
    """What is waiting for people now."""

    number: int = 0
    due: int = 0
    oldest: Approval | None = None


@dataclass(frozen=True)
class Requests:
    """What became of requests to people in a period and in the one before it."""

    period: Period
    total: Sums
    before: Sums
    hours: dict[datetime, Sums] = field(default_factory=lambda: defaultdict(Sums))
    # Whole UTC days of the stored figures.
    days: dict[datetime, Sums] = field(default_factory=lambda: defaultdict(Sums))
    by_tool: dict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    by_person: dict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))


@dataclass
class Calls:
    """What became of the calls of one tool."""

    calls: int = 0
    failed: int = 0
    attempts: int = 0
    cost: Decimal = NOTHING

    @property
    def error_rate(self) -> float | None:
        return adding.share(self.failed, self.calls)


@dataclass
class Costs:
    """What was spent: by UTC day, as budgets count it, and by what it was spent on."""

    period: Period
    models_by_day: Counter[date] = field(default_factory=Counter)
    tools_by_day: Counter[date] = field(default_factory=Counter)
    by_model: Counter[str] = field(default_factory=Counter)
    by_tool: Counter[str] = field(default_factory=Counter)
    by_agent: Counter[str] = field(default_factory=Counter)
    replies: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    unpriced: int = 0
    before: Decimal = NOTHING
    """The total of the period before."""

    @property
    def total(self) -> Decimal:
        return Decimal(sum(self.by_model.values()) + sum(self.by_tool.values()))

    def on(self, day: date) -> Decimal:
        return Decimal(self.models_by_day[day]) + Decimal(self.tools_by_day[day])


@dataclass(frozen=True)
class Standing:
    """Up to when figures are stored, and up to when they can be shown: now, unless adding up is too far behind.

    Before anything has been added up, only the last few hours can be shown.
    """

    kept_until: datetime
    shown_until: datetime
    is_first: bool = False


def standing(now: datetime) -> Standing:
    state = RollUp.objects.first()
    if state is None:
        return Standing(hour_of(now) - MOST_LIVE + HOUR, now, is_first=True)
    return Standing(state.until, now if now - state.until <= MOST_LIVE else state.until)


def waiting(team: int, now: datetime) -> Waiting:
    """One query. Requests that wait for a customer are not work for people here."""
    found = _undecided(team)
    # With a starting point, the database does not read requests that were decided long ago.
    waits = found.filter(created_at__gte=Subquery(_over_all(found, Min("created_at")))).order_by("created_at")
    number = Subquery(_over_all(found, Count("pk")))
    due = Subquery(_over_all(found.filter(expires_at__lte=now + DUE_SOON), Count("pk")))
    oldest = waits.annotate(number=number, due=due).select_related("claim__user", "claim__group").first()
    return Waiting() if oldest is None else Waiting(oldest.number, oldest.due or 0, oldest)


def _over_all(rows: QuerySet[Approval], figure: Aggregate) -> QuerySet[Approval, Any]:
    """One aggregate over all these rows, for a subquery. NULL if there are no rows."""
    return rows.order_by().annotate(all=Value(1)).values("all").annotate(figure=figure).values("figure")


def waiting_at(team: int, moment: datetime) -> int:
    """How many requests were waiting at a past moment."""
    then = Q(created_at__lt=moment) & (Q(ended_at__isnull=True, state__in=Approval.UNDECIDED) | Q(ended_at__gte=moment))
    found = Approval.objects.filter(FOR_PEOPLE, then)
    return found.filter(groups=team).count() if team else found.count()


def requests(period: Period, team: int, kept_until: datetime, zone: tzinfo | None = None) -> Requests:
    """One query for stored figures, three for what was counted since.

    If told by whose days they are shown, it leaves out the waits of single hours where whole days cover them.
    """
    before, edge = period.before, _edge(period, kept_until)
    first, last = _days(period.begin, edge)
    hourly = Q(span=Span.HOUR, by=By.ALL, at__gte=period.begin, at__lt=edge)
    told_by_day = hourly & Q(at__gte=first, at__lt=last) if _tells_days(first, last, zone, period) else None
    kept = (
        RequestFigures.objects.filter(
            hourly
            | Q(by__in=By.values) & _spans(period.begin, edge)
            | Q(by=By.ALL) & _spans(before.begin, min(before.end, edge)),
            team=team,
        )
        .order_by()
        # As text: it is parsed only if a figure needs it.
        .annotate(waits_text=_text_of("waits", told_by_day), claimed_text=_text_of("claimed", told_by_day))
        .values_list("span", "at", "by", "key", "waits_text", "claimed_text", *NUMBERS)
    )
    found = Requests(period, Sums(), Sums())
    for span, at, by, key, waits, claimed, *numbers in kept:
        told = numbers, Waits(waits), Waits(claimed)
        if by != By.ALL:
            _of(found, by, key).add(*told)
            continue
        if at < period.begin:
            found.before.add(*told)
            continue
        if span == Span.HOUR:
            found.hours[at].add(*told)
        elif first <= at < last:
            found.days[at].add(*told)
        if span == Span.DAY or not first <= at < last:
            found.total.add(*told)
    for row in _since(count_requests, edge, period):
        if row.team == team and row.by == By.ALL:
            found.hours[row.at].add_row(row)
            found.total.add_row(row)
        elif row.team == team:
            _of(found, row.by, row.key).add_row(row)
    return found


def _tells_days(first: datetime, last: datetime, zone: tzinfo | None, period: Period) -> bool:
    """Whether every day in between is shown as a day and is also a UTC day, as the stored figures are."""
    if zone is None or period.by_hour:
        return False
    return all(_is_midnight(first + number * DAY, zone) for number in range((last - first) // DAY + 1))


def _text_of(column: str, left_out: Q | None) -> Cast | Case:
    text = Cast(column, TextField())
    return text if left_out is None else Case(When(left_out, then=Value("{}")), default=text, output_field=TextField())


def _of(found: Requests, by: str, key: str) -> Sums:
    return found.by_tool[key] if by == By.TOOL else found.by_person[key]


def waiting_by_hour(found: Requests, at_end: int) -> dict[datetime, int]:
    """How many requests waited at each full hour of a period, worked out backwards from the number at its end."""
    waited, number = {found.period.end: at_end}, at_end
    hour = hour_of(found.period.end)
    hour -= HOUR if hour == found.period.end else timedelta()
    while hour >= found.period.begin:
        sums = found.hours.get(hour)
        number += sums.ended - sums.asked if sums is not None else 0
        waited[hour] = number
        hour -= HOUR
    return dict(sorted(waited.items()))


def by_day(found: Requests, zone: tzinfo) -> dict[date, Sums]:
    """The same figures by the reader's days, without gaps."""
    days: dict[date, Sums] = {}
    day, last = found.period.begin.astimezone(zone).date(), found.period.last.astimezone(zone).date()
    while day <= last:
        days[day] = Sums()
        day += DAY
    whole = {at: sums for at, sums in found.days.items() if _is_midnight(at, zone) and _is_midnight(at + DAY, zone)}
    rest = [(at, sums) for at, sums in found.hours.items() if at.replace(hour=0) not in whole]
    for at, sums in [*whole.items(), *rest]:
        numbers = [getattr(sums, name) for name in NUMBERS]
        days[at.astimezone(zone).date()].add(numbers, sums.waits, sums.claimed)
    return days


def _is_midnight(at: datetime, zone: tzinfo) -> bool:
    return at.astimezone(zone).time() == time.min


def calls(period: Period, kept_until: datetime) -> dict[str, Calls]:
    """By tool. One query for stored figures, one for what was counted since."""
    edge, found = _edge(period, kept_until), defaultdict[str, Calls](Calls)
    kept = CallFigures.objects.filter(_spans(period.begin, edge)).order_by().values_list("tool")
    rows = list(kept.annotate(Sum("calls"), Sum("failed"), Sum("attempts"), Sum("cost")))
    rows += [(r.tool, r.calls, r.failed, r.attempts, r.cost) for r in _since(count_calls, edge, period)]
    for tool, made, failed, attempts, cost in rows:
        one = found[tool]
        one.calls, one.failed, one.attempts = one.calls + made, one.failed + failed, one.attempts + attempts
        one.cost += cost
    return found


def costs(period: Period, kept_until: datetime) -> Costs:
    """For a period that begins with a day. Two queries for stored figures, three for what was counted since."""
    edge, found = _edge(period, kept_until), Costs(period)
    kept = _spans(period.before.begin, edge)
    models = ModelFigures.objects.filter(kept).annotate(day=TruncDay("at", tzinfo=UTC)).order_by()
    modelled = list(
        models.values_list("day", "agent", "model").annotate(
            Sum("cost"), Sum("replies"), Sum("unpriced"), Sum("input_tokens"), Sum("output_tokens")
        )
    )
    modelled += [
        (row.at, row.agent, row.model, row.cost, row.replies, row.unpriced, row.input_tokens, row.output_tokens)
        for row in _since(count_models, edge, period)
    ]
    for at, agent, model, cost, replies, unpriced, taken, given in modelled:
        if at < period.begin:
            found.before += cost
            continue
        found.models_by_day[at.date()] += cost
        found.by_model[model] += cost
        found.by_agent[agent] += cost
        found.replies[model] += replies
        found.tokens[model] += taken + given
        found.unpriced += unpriced
    tools = CallFigures.objects.filter(kept).annotate(day=TruncDay("at", tzinfo=UTC)).order_by()
    called = list(tools.values_list("day", "agent", "tool").annotate(Sum("cost")))
    called += [(row.at, row.agent, row.tool, row.cost) for row in _since(count_calls, edge, period)]
    for at, agent, tool, cost in called:
        if at < period.begin:
            found.before += cost
        elif cost:
            found.tools_by_day[at.date()] += cost
            found.by_tool[tool] += cost
            found.by_agent[agent] += cost
    return found


def spent(period: Period, kept_until: datetime) -> Decimal:
    """The total cost of a period. One query for stored figures, three for what was counted since."""
    edge = _edge(period, kept_until)
    models, calls = (
        table.objects.filter(_spans(period.begin, edge)).order_by().values_list("span").annotate(Sum("cost"))
        for table in (ModelFigures, CallFigures)
    )
    sums = [cost for _, cost in models.union(calls, all=True).order_by()]
    sums += [row.cost for row in _since(count_models, edge, period)]
    sums += [row.cost for row in _since(count_calls, edge, period)]
    return sum(sums, NOTHING)


def _undecided(team: int) -> QuerySet[Approval]:
    found = Approval.objects.filter(FOR_PEOPLE, state__in=Approval.UNDECIDED)
    return found.filter(groups=team) if team else found


def _edge(period: Period, kept_until: datetime) -> datetime:
    """The moment from which a period is counted from rows."""
    return max(period.begin, min(hour_of(period.end), kept_until))


def _since[R](count: Callable[[datetime, datetime], list[R]], edge: datetime, period: Period) -> list[R]:
    return count(edge, period.end) if edge < period.end else []


def _days(begin: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The start of the first whole day of a period and the end of the last. Without a whole day the two are equal."""
    first = begin.replace(hour=0)
    first += DAY if first < begin else timedelta()
    return first, max(first, end.replace(hour=0))


def _spans(begin: datetime, end: datetime) -> Q:
    """The stored rows that add up to a period: whole days, and the hours at its ends."""
    first, last = _days(begin, end)
    if first == last:
        return Q(span=Span.HOUR, at__gte=begin, at__lt=end)
    return (
        Q(span=Span.DAY, at__gte=first, at__lt=last)
        | Q(span=Span.HOUR, at__gte=begin, at__lt=first)
        | Q(span=Span.HOUR, at__gte=last, at__lt=end)
    )
