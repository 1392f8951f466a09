"""Adds up rows by hour: for the roll-ups to keep, and for pages to show the current hour. Reads only."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.db.models import Case, Count, Exists, F, OuterRef, Q, QuerySet, Sum, Value, When
from django.db.models.fields import BooleanField
from django.db.models.functions import Coalesce, TruncHour

from agentapp.messages import FAILED
from agentapp.models import CallFigures, ModelFigures, ModelUse, RequestFigures, Span, Step, ToolExecution
from approvals import questions
from approvals.models import HIGH_RISKS, Approval, ApprovalKind, Decision, DecisionType

HOUR = timedelta(hours=1)
# A person who decides faster than this after the console has shown them a request can hardly have read it.
FAST = timedelta(seconds=3)
ALL_TEAMS = 0
NOTHING = Decimal(0)

By = RequestFigures.By
# What waits for a customer is not work for people here.
FOR_PEOPLE = ~Q(kind=ApprovalKind.CONFIRMATION) & Q(mocked=False)


@dataclass(frozen=True)
class Counted:
    """The figures of some hours. Not stored."""

    requests: list[RequestFigures] = field(default_factory=list)
    calls: list[CallFigures] = field(default_factory=list)
    models: list[ModelFigures] = field(default_factory=list)


def count(begin: datetime, end: datetime) -> Counted:
    """The figures of the hours from begin up to end, counted from the rows. Hours and keys with no figures are left
    out.
    """
    return Counted(count_requests(begin, end), count_calls(begin, end), count_models(begin, end))


def hour_of(at: datetime) -> datetime:
    """The start of the hour that a moment is in."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def took(approval: Approval, until: datetime, stopped_at: datetime | None = None) -> int:
    """How many whole seconds a request had waited by a moment, not counting the time its clock was stopped by a
    question.
    """
    stood = questions.stood_by(until, approval.paused_seconds, stopped_at)
    return max(0, int((until - approval.created_at).total_seconds()) - stood)


class _Tally:
    """Collects figures: one row for each hour, team, and tool or person."""

    def __init__(self) -> None:
        self._rows: dict[tuple[datetime, int, str, str], RequestFigures] = {}

    def rows(self, hour: datetime, teams: Iterable[int], by: str, key: str = "") -> Iterator[RequestFigures]:
        for team in (ALL_TEAMS, *teams):
            place = (hour, team, by, key)
            if place not in self._rows:
                fresh = RequestFigures(span=Span.HOUR, at=hour, team=team, by=by, key=key)
                fresh.waits, fresh.claimed = Counter(), Counter()
                self._rows[place] = fresh
            yield self._rows[place]

    def each(self) -> list[RequestFigures]:
        return list(self._rows.values())


def count_requests(begin: datetime, end: datetime) -> list[RequestFigures]:
    """Three queries, and one more for every 500 requests."""
    tally = _Tally()
    found = list(_touched(begin, end))
    decisions = _decisions(begin, end)
    teams = _teams([row.pk for row in found], [row.approval_id for row in decisions])
    for approval in found:
        if begin <= approval.created_at < end:
            for by, key in ((By.ALL, ""), (By.TOOL, approval.tool)):
                for row in tally.rows(hour_of(approval.created_at), teams[approval.pk], by, key):
                    row.asked += 1
        if approval.ended_at is not None and begin <= approval.ended_at < end:
            _count_ending(tally, approval, teams[approval.pk])
    for decision in decisions:
        _count_decision(tally, decision, teams[decision.approval_id])
    return tally.each()


def _touched(begin: datetime, end: datetime) -> QuerySet[Approval]:
    """Requests that began or stopped waiting, each with the kind of decision that ended it."""
    began, ended = Q(created_at__gte=begin, created_at__lt=end), Q(ended_at__gte=begin, ended_at__lt=end)
    return (
        Approval.objects.filter(FOR_PEOPLE, began | ended)
        .order_by()
        .only("tool", "created_at", "expires_at", "ended_at", "ended_as", "paused_seconds")
        .annotate(
            is_changed=_is_changed(),
            is_rejected=_was_last(DecisionType.REJECT),
            is_responded=_was_last(DecisionType.RESPOND),
        )
    )


def _is_changed() -> Case:
    """The same as `Approval.is_edited`, without fetching the arguments."""
    here, erased = Q(erased_at__isnull=True), Q(erased_at__isnull=False)
    same = here & Q(final_arguments_text=F("arguments_text")) | erased & Q(final_digest=F("action_digest"))
    kept = Q(final_arguments_text="") | same
    return Case(When(kept, then=Value(False)), default=Value(True), output_field=BooleanField())


def _was_last(kind: str) -> Case:
    """Whether it was decided this way: by its state or, where the state does not say, by the decision that ended it."""
    states = {DecisionType.REJECT: Approval.State.REJECTED, DecisionType.RESPOND: Approval.State.RESPONDED}
    ending = Decision.objects.filter(
        approval=OuterRef("pk"), type=kind, decided_at=OuterRef("decided_at"), undone_at__isnull=True
    )
    closed = Q(state__in=[Approval.State.WITHDRAWN, Approval.State.SUPERSEDED])
    return Case(
        When(state=states[DecisionType(kind)], then=Value(True)),
        When(closed & Exists(ending), then=Value(True)),
        default=Value(False),
        output_field=BooleanField(),
    )


def _count_ending(tally: _Tally, approval: Approval, teams: Sequence[int]) -> None:
    assert approval.ended_at is not None
    name = _name_of(approval)
    for by, key in ((By.ALL, ""), (By.TOOL, approval.tool)):
        for row in tally.rows(hour_of(approval.ended_at), teams, by, key):
            setattr(row, name, getattr(row, name) + 1)
            if by == By.ALL and approval.ended_as == Approval.Ending.DECIDED:
                row.waits[took(approval, approval.ended_at)] += 1
            elif by == By.ALL and approval.ended_as == Approval.Ending.EXPIRED:
                row.waits[took(approval, approval.expires_at)] += 1


def _name_of(approval: Approval) -> str:
    """The column in which the end of a request is counted."""
    if approval.ended_as != Approval.Ending.DECIDED:
        return approval.ended_as
    if approval.is_rejected:  # type: ignore[attr-defined]
        return "rejected"
    if approval.is_responded:  # type: ignore[attr-defined]
        return "responded"
    return "changed" if approval.is_changed else "approved"  # type: ignore[attr-defined]


def _decisions(begin: datetime, end: datetime) -> list[Decision]:
    """Decisions by people that were not taken back."""
    return list(
        Decision.objects.filter(
            ~Q(approval__kind=ApprovalKind.CONFIRMATION),
            mocked=False,
            decided_at__gte=begin,
            decided_at__lt=end,
            undone_at__isnull=True,
            user__isnull=False,
        )
        .order_by()
        .select_related("approval")
        .annotate(stopped_at=questions.stopped_at())
        .only(
            "type", "user", "decided_at", "shown_at", "claimed_at",
            "approval__risk", "approval__created_at", "approval__paused_seconds",
        )
    )  # fmt: skip


_COLUMN = {
    DecisionType.APPROVE: "approved",
    DecisionType.EDIT: "changed",
    DecisionType.REJECT: "rejected",
    DecisionType.RESPOND: "responded",
}


def _count_decision(tally: _Tally, decision: Decision, teams: Sequence[int]) -> None:
    hour, approval = hour_of(decision.decided_at), decision.approval
    since_claim = None
    if decision.claimed_at is not None:
        since_claim = max(0, int((decision.decided_at - decision.claimed_at).total_seconds()))
    fast = None if decision.shown_at is None else decision.decided_at - decision.shown_at < FAST
    approves = decision.type in (DecisionType.APPROVE, DecisionType.EDIT)
    for by, key in ((By.ALL, ""), (By.PERSON, str(decision.user_id))):
        for row in tally.rows(hour, teams, by, key):
            if by == By.PERSON:
                name = _COLUMN[DecisionType(decision.type)]
                setattr(row, name, getattr(row, name) + 1)
                row.waits[took(approval, decision.decided_at, decision.stopped_at)] += 1  # type: ignore[attr-defined]
            if since_claim is not None:
                row.claimed[since_claim] += 1
            if fast is not None and approval.risk in HIGH_RISKS:
                row.high_seen += 1
                row.high_fast += fast
            if fast is not None and approves:
                row.approvals_seen += 1
                row.approvals_fast += fast


def _teams(*approvals: Iterable[uuid.UUID]) -> defaultdict[uuid.UUID, list[int]]:
    """The groups that each of these requests was put to."""
    found: defaultdict[uuid.UUID, list[int]] = defaultdict(list)
    keys = sorted({pk for some in approvals for pk in some})
    links = Approval.groups.through.objects
    for at in range(0, len(keys), 500):
        for pk, group in links.filter(approval__in=keys[at : at + 500]).values_list("approval_id", "group_id"):
            found[pk].append(group)
    return found


def count_calls(begin: datetime, end: datetime) -> list[CallFigures]:
    """Calls that were carried out, and what tools cost for calls that were begun and abandoned."""
    ran = Q(attempts__gt=0, state=ToolExecution.State.FINISHED)
    rows = (
        ToolExecution.objects.filter(
            Q(attempts__gt=0) | ~Q(cost=0), mocked=False, finished_at__gte=begin, finished_at__lt=end
        )
        .order_by()
        .annotate(hour=TruncHour("finished_at", tzinfo=UTC))
        .values_list("hour", "run__agent__name", "name")
        .annotate(
            made=Count("pk", filter=ran),
            failed=Count("pk", filter=ran & Q(result_status__in=FAILED)),
            tried=Coalesce(Sum("attempts", filter=ran), 0),
            took=Coalesce(Sum("cost"), NOTHING),
        )
    )
    return [
        CallFigures(
            span=Span.HOUR, at=at, agent=agent, tool=tool, calls=calls, failed=failed, attempts=attempts, cost=cost
        )
        for at, agent, tool, calls, failed, attempts, cost in rows
    ]


def count_models(begin: datetime, end: datetime) -> list[ModelFigures]:
    """What models used, within steps and outside them."""
    real = {"run__mocks__isnull": True}
    steps = Step.objects.filter(finished_at__gte=begin, finished_at__lt=end, **real).exclude(model="", cost=0)
    uses = ModelUse.objects.filter(at__gte=begin, at__lt=end, **real).annotate(model=Value(""))
    return [*_of_models(steps, "finished_at"), *_of_models(uses, "at", outside=True)]


def _of_models(rows: QuerySet[Step] | QuerySet[ModelUse], moment: str, *, outside: bool = False) -> list[ModelFigures]:
    """A step that cost something but names no model is counted with what was asked outside steps."""
    sums = (
        rows.order_by()
        .annotate(hour=TruncHour(moment, tzinfo=UTC))
        .values_list("hour", "run__agent__name", "model")
        .annotate(
            replies=Count("pk"),
            unpriced=Count("pk", filter=Q(cost__isnull=True)),
            taken=Sum("input_tokens"),
            given=Sum("output_tokens"),
            paid=Coalesce(Sum("cost"), NOTHING),
        )
    )
    return [
        ModelFigures(
            span=Span.HOUR, at=at, agent=agent, model=model or ("" if outside else UNNAMED), replies=replies,
            unpriced=unpriced, input_tokens=taken, output_tokens=given, cost=cost,
        )
        for at, agent, model, replies, unpriced, taken, given, cost in sums
    ]  # fmt: skip


# Steps whose provider did not say which model answered.
UNNAMED = "(not named)"
