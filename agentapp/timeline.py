"""A run's rows on one time axis: what its page draws, and where its time and money went. Reads only.

A run can have thousands of steps. For the totals and the axis, plain values are read from all of them; the rows
themselves are made only for the steps that are shown.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Prefetch, QuerySet, UUIDField
from django.db.models.functions import Left

from agentapp.models import Run, ToolExecution
from agentapp.timescale import Axis, Span, partition
from agentapp.trace import said
from agentapp.trace_rows import NAME_CHARS, Bar, Call, CallFacts, Group, Row, StepFacts, Told
from approvals import entitlement, ledger
from approvals.models import Approval, Decision, Event
from approvals.prepared import Given

State = ToolExecution.State
_COLUMNS = {"place": "index"}


@dataclass(frozen=True)
class Totals:
    """Where time and money went. The seconds of model, tools, failed, waited and idle make up the whole."""

    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    failed_seconds: float = 0.0
    waited_seconds: float = 0.0
    idle_seconds: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    model_cost: Decimal = Decimal(0)
    tool_cost: Decimal = Decimal(0)
    cost_is_partial: bool = False
    errors: int = 0

    @property
    def cost(self) -> Decimal:
        return self.model_cost + self.tool_cost

    @property
    def worked_seconds(self) -> float:
        return self.model_seconds + self.tool_seconds + self.failed_seconds

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cached_share(self) -> float:
        """The part of the tokens read that came from the provider's cache, 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0


@dataclass
class Timeline:
    """A whole run. `approvals` holds the requests about each call by its id, the oldest first."""

    run: Run
    told: list[Told]
    axis: Axis
    totals: Totals
    approvals: dict[uuid.UUID, list[Approval]] = field(default_factory=dict, repr=False)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Every row, nothing folded."""
        return self.of_steps(1, len(self.told) + 1)

    def of_steps(self, first: int, last: int) -> tuple[Row, ...]:
        """The rows of the steps from first to last. The input belongs to the first step."""
        return tuple(row for number in range(first, last + 1) for row in self._of_step(number))

    def window(
        self,
        first: int,
        size: int,
        upto: int = 0,
        opened: Collection[int] = (),
        keep: tuple[int, int | None] = (0, None),
    ) -> tuple[list[Row], int]:
        """The rows of enough whole steps to make up `size` rows, and of those up to `upto`; and the last step's number.

        A step with many calls is folded unless it is in `opened`; the call in `keep` is always shown.
        """
        rows: list[Row] = []
        last = first - 1
        while last <= len(self.told) and (len(rows) < size or last < upto):
            last += 1
            kept = keep[1] if keep[0] == last else None
            rows += self._of_step(last, group="opened" if last in opened else "folded", keep=kept)
        return rows, min(last, max(len(self.told), first))

    def row(self, step: int, call: int | None) -> Row | None:
        """The row of the input, a step or a call; None: there is none."""
        if step > len(self.told):
            return None
        number = max(step, 1)
        rows = (row for row in self._of_step(number) if row.kind in ("message", "model", "call"))
        return next((row for row in rows if row.step == step and row.call == call), None)

    @cached_property
    def failures(self) -> list[tuple[int, int]]:
        """Step and position of each call that failed."""
        return [(one.step.number, call.call.place) for one in self.told for call in one.calls if call.failed]

    @property
    def first_failure(self) -> Row | None:
        return self.row(*self.failures[0]) if self.failures else None

    @property
    def stopped_midway(self) -> bool:
        """Whether its last step asked for calls: the run had more to say when it ended."""
        return bool(self.told and self.told[-1].calls)

    def calls_in(self, *states: str) -> list[Row]:
        """The rows of the calls in one of these states."""
        places = [
            (one.step.number, call.call.place) for one in self.told for call in one.calls if call.call.state in states
        ]
        return [row for place in places if (row := self.row(*place))]

    @property
    def requests(self) -> list[Row]:
        """The rows of the requests to people, in the order of their calls."""
        asked = (one for one in self.told if any(call.approvals for call in one.calls))
        return [row for one in asked for row in one.rows(self.axis, self.run) if row.kind == "approval"]

    @property
    def has_subruns(self) -> bool:
        return any(call.subrun for one in self.told for call in one.calls)

    @property
    def last_decision(self) -> Row | None:
        """The row of the last thing the model said, or of the input."""
        return self.row(len(self.told), None)

    def _of_step(self, number: int, group: Group = "whole", keep: int | None = None) -> Iterable[Row]:
        if number == 1:
            yield Row("message", 0, self.run.title, bars=(Bar("idle", self.axis.x(self.run.created_at)),))
        if 1 <= number <= len(self.told):
            yield from self.told[number - 1].rows(self.axis, self.run, group=group, keep=keep)
        elif number == len(self.told) + 1 and self._decides_next:
            yield Row("model", number, "Deciding the next step", planned=True)

    @property
    def _decides_next(self) -> bool:
        answered = (call.call.state in ToolExecution.ANSWERED for one in self.told for call in one.calls)
        return self.run.state == Run.State.RUNNING and all(answered)


def timeline(run: Run, now: datetime, viewer: User | None = None, *, waits_folded: bool = True) -> Timeline:
    """The whole run on one axis. Each approval says, as `openable`, whether `viewer` may open it.

    However long the run is: four queries, one more for the runs that answer its calls, and one more if the outcome of
    a call is or was unknown or a call was retried. Texts of arguments and results are not read.
    """
    steps = _steps(run)
    calls = _calls(run)
    approvals = _approvals(run, viewer)
    lost, failed_at = _from_the_ledger(run, calls)
    subruns = _subruns(calls)
    end = max(run.finished_at or now, run.created_at)
    of_step: dict[uuid.UUID, list[Call]] = defaultdict(list)
    for call in calls:
        seen = lost.get(call.pk), failed_at.get(call.pk, ())
        of_step[call.step_id].append(Call(call, approvals.get(call.pk, []), seen, subruns, end))
    told = [Told(step, of_step.get(step.pk, [])) for step in steps]
    parts = partition((span for one in told for span in one.spans), run.created_at, end)
    axis = Axis(parts, run.created_at, folded=waits_folded)
    return Timeline(run, told, axis, _totals(told, parts), approvals)


def _steps(run: Run) -> list[StepFacts]:
    own = ("error", "model", "input_tokens", "cached_tokens", "output_tokens", "cost", "started_at", "finished_at")
    # More than is shown: the cut must be visible, and leading blanks do not count.
    found = run.steps.order_by("number").values_list("pk", "number", Left("text", 2 * NAME_CHARS), *own)
    return [StepFacts._make(values) for values in found]


def _calls(run: Run) -> list[CallFacts]:
    columns = (_COLUMNS.get(name, name) for name in CallFacts._fields)
    found = run.executions.order_by("index").values_list(*columns)
    return [CallFacts._make(values) for values in found]


def _subruns(calls: Sequence[CallFacts]) -> dict[uuid.UUID, Run]:
    asked = [call.subrun_id for call in calls if call.subrun_id]
    if not asked:
        return {}
    what = ("agent__name", "state", "input_tokens", "output_tokens", "cost", "created_at", "finished_at")
    return Run.objects.select_related("agent").only(*what).in_bulk(asked)


def _approvals(run: Run, viewer: User | None) -> dict[uuid.UUID, list[Approval]]:
    """The requests about each call, the oldest first: a call asks again if the state it rests on has changed."""
    asked = _OPENABLE.rows(viewer, run=run.pk) if viewer else list(_requests(run.pk, Approval.objects.none()))
    found: dict[uuid.UUID, list[Approval]] = defaultdict(list)
    for approval in asked:
        found[approval.execution_id].append(approval)
    return found


def _requests(run: uuid.UUID | Given, openable: QuerySet[Approval]) -> QuerySet[Approval]:
    decisions = Decision.objects.select_related("user", "on_behalf_of").order_by("decided_at")
    return (
        Approval.objects.filter(run_id=run)
        .annotate(openable=Exists(openable.filter(pk=OuterRef("pk"))))
        .defer(
            "arguments_text",
            "arguments",
            "final_arguments_text",
            "snapshot_text",
            "preview_text",
            "final_preview_text",
            "evidence",
            "explanation",
        )
        .prefetch_related(Prefetch("decisions", queryset=decisions.defer("arguments_text")))
        .order_by("created_at", "pk")
    )


_OPENABLE = entitlement.Seen(
    lambda sight, reader: _requests(Given("run", UUIDField()), entitlement.seen(sight, reader)), sees_all_apart=True
)


def _from_the_ledger(
    run: Run, calls: Sequence[CallFacts]
) -> tuple[dict[uuid.UUID, datetime], dict[uuid.UUID, list[datetime]]]:
    """When the outcome of a call became unknown, and when attempts failed. The rows keep only the final state."""
    lost: dict[uuid.UUID, datetime] = {}
    failed: dict[uuid.UUID, list[datetime]] = defaultdict(list)
    kinds = {
        "tool_call.outcome_unknown": any(call.state == State.OUTCOME_UNKNOWN or call.outcome_note for call in calls),
        "tool_call.attempt_failed": any(call.attempts > 1 for call in calls),
    }
    if any(kinds.values()):
        wanted = [kind for kind, is_wanted in kinds.items() if is_wanted]
        for event in Event.objects.filter(chain=ledger.run_chain(run.pk), type__in=wanted).order_by("seq"):
            data = said(event)
            if data and event.type == "tool_call.outcome_unknown":
                lost[uuid.UUID(data["execution"])] = event.at
            elif data:
                failed[uuid.UUID(data["execution"])].append(datetime.fromisoformat(data["at"]))
    return lost, failed


def _totals(told: Sequence[Told], parts: Sequence[Span]) -> Totals:
    seconds: dict[str, float] = defaultdict(float)
    for part in parts:
        seconds[part.kind] += part.seconds
    calls = [call for one in told for call in one.calls]
    return Totals(
        model_seconds=seconds["model"],
        tool_seconds=seconds["tool"],
        failed_seconds=seconds["failed"],
        waited_seconds=seconds["people"],
        idle_seconds=seconds["idle"],
        input_tokens=sum(one.step.input_tokens for one in told),
        cached_tokens=sum(one.step.cached_tokens for one in told),
        output_tokens=sum(one.step.output_tokens for one in told),
        model_cost=sum((one.step.cost or Decimal(0) for one in told), Decimal(0)),
        tool_cost=sum((call.call.cost for call in calls), Decimal(0)),
        cost_is_partial=any(one.step.cost is None for one in told),
        errors=sum(call.failed for call in calls),
    )
