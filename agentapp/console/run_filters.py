"""How the list of runs is narrowed and sorted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from agentapp import discretion
from agentapp.console import typed_text, words
from agentapp.models import Run, ToolExecution
from agentapp.reasons import StopReason
from approvals.digest import storable
from approvals.models import Approval

SINCE = {"1h": ("the last hour", timedelta(hours=1)), "24h": ("24 hours", timedelta(days=1)),
         "7d": ("7 days", timedelta(days=7)), "30d": ("30 days", timedelta(days=30))}  # fmt: skip
MAX_TEXT = 120
# When errors are masked, search only this many of the latest matches.
LOOKED_AT = 200
_NO_ERROR = ("", ToolExecution.ResultStatus.OK)
_NOT_ASKED = ("cost_typed", "cost_problem")


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to; empty means everything. `sort` is not a filter, but belongs with them."""

    state: str = ""
    agent: str = ""
    reason: str = ""
    tool: str = ""
    approval: str = ""
    error: str = ""
    cost: str = ""
    since: str = ""
    ongoing: str = ""
    wanted: str = ""
    mocked: str = ""
    """Mocked runs are a list of their own."""
    sort: str = ""
    cost_typed: str = ""
    cost_problem: str = ""
    """A typed cost that could not be read, and why. The list is then not narrowed by cost."""

    @classmethod
    def read(cls, request: HttpRequest) -> "Filters":
        names = [field.name for field in fields(cls) if field.name not in _NOT_ASKED]
        given = {name: storable(request.GET.get(name, "")).strip()[:MAX_TEXT] for name in names}
        known: dict[str, Sequence[str]] = {
            "state": Run.State.values,
            "reason": list(StopReason),
            "since": list(SINCE),
            "approval": ["1"],
            "ongoing": ["1"],
            "wanted": ["1"],
            "mocked": ["1"],
            "sort": ["activity"],
        }
        given |= {name: given[name] if given[name] in values else "" for name, values in known.items()}
        if given["cost"]:
            try:
                given["cost"] = _amount(given["cost"])
            except typed_text.Unreadable as problem:
                given |= {"cost": "", "cost_typed": given["cost"], "cost_problem": str(problem)}
        return cls(**given)

    @property
    def any(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self) if field.name not in ("sort", *_NOT_ASKED))

    @property
    def column(self) -> str:
        return "updated_at" if self.sort else "created_at"

    @property
    def shown(self) -> Iterable[tuple[str, str, str]]:
        """The chips: name in the address, what it is about, its value in words. Status and agent have their own."""
        worded = (
            ("reason", "Ended by", words.stop_reason(self.reason)),
            ("tool", "Used", self.tool),
            ("approval", "Asked people", "yes"),
            ("error", "Error", self.error),
            ("cost", "Cost over", f"${self.cost}"),
            ("since", "Within", SINCE[self.since][0] if self.since else ""),
            ("ongoing", "Still", "going on"),
            ("wanted", "Waits for", "a person to take over"),
            ("mocked", "Tools", "mocked"),
            ("sort", "Sorted by", "last activity"),
        )
        return [chip for chip in worded if getattr(self, chip[0])]

    def narrow(self, runs: QuerySet[Run]) -> QuerySet[Run]:
        runs = runs.filter(mocks__isnull=not self.mocked)
        if self.state:
            runs = runs.filter(state=self.state)
        if self.reason:
            runs = runs.filter(stop_reason=self.reason)
        if self.tool:
            runs = runs.filter(Exists(ToolExecution.objects.filter(run=OuterRef("pk"), name=self.tool)))
        if self.approval:
            runs = runs.filter(Exists(Approval.objects.filter(run_id=OuterRef("pk"))))
        if self.error:
            failed = ToolExecution.objects.filter(run=OuterRef("pk"), message__icontains=self.error)
            failed = failed.exclude(result_status__in=_NO_ERROR)
            said = Q(stop_message__icontains=self.error)
            runs = runs.filter(_legible(self.error) if discretion.hides() else said | Exists(failed))
        if self.cost:
            runs = runs.filter(cost__gt=Decimal(self.cost))
        if self.since:
            runs = runs.filter(created_at__gte=timezone.now() - SINCE[self.since][1])
        if self.ongoing:
            runs = runs.exclude(state__in=Run.FINAL)
        if self.wanted:
            # Only the last run of each conversation: its page shows which one to take over.
            later = Run.objects.filter(
                conversation=OuterRef("conversation"), parent__isnull=True, created_at__gt=OuterRef("created_at")
            )
            runs = runs.filter(~Exists(later), conversation__person_wanted_at__isnull=False)
        return runs.filter(agent__name=self.agent) if self.agent else runs


def _legible(words: str) -> Q:
    """The latest runs whose errors, as shown to this reader, contain the words."""
    calls = ToolExecution.objects.filter(message__icontains=words).exclude(result_status__in=_NO_ERROR)
    stopped = Run.objects.filter(stop_message__icontains=words).order_by("-created_at")
    said = [
        *calls.order_by("-proposed_at").values_list("run_id", "run_id", "message")[:LOOKED_AT],
        *stopped.values_list("pk", "pk", "stop_message")[:LOOKED_AT],
    ]
    return Q(pk__in=set(discretion.legible(words, said)))


def _amount(text: str) -> str:
    """An amount of dollars, however it was typed. Raises Unreadable."""
    amount = typed_text.decimal(text.strip(" $"))
    if not 0 <= amount < 10**9:
        raise typed_text.Unreadable("Enter an amount from 0 to 999,999,999.")
    return f"{amount:f}"
