"""What Prometheus reads: the current state from the database, and what processes have counted.

The state is the same whichever process is asked: a handful of indexed queries, run once every few seconds however often
it is asked for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.core.cache import caches
from django.db import DatabaseError, InterfaceError
from django.db.models import Count, Min, Q
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentapp import health
from agentapp.health import Problem
from agentapp.health_figures import RECENT, figures
from agentapp.models import Breaker, KillSwitch, Run, ToolExecution, WebhookDelivery
from agentapp.telemetry import counting
from approvals.clock import Now
from approvals.models import Approval, Notification, Risk

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOKED_AT_FOR_SECONDS = 5
_GOING = (Run.State.QUEUED, Run.State.RUNNING, Run.State.WAITING, Run.State.PAUSED)


@dataclass(frozen=True)
class Standing:
    """The current state. Moments come from the database's clock."""

    now: datetime
    runs: dict[tuple[str, str], int]
    leases_lost: int
    requests: dict[str, int]
    oldest_request: datetime | None
    targets_missed: int
    unknown_outcomes: int
    breakers: dict[str, int]
    switches: int
    notifications_waiting: int
    notifications_failed: int
    webhooks_waiting: int
    due_since: datetime | None
    swept_at: datetime | None


def text() -> bytes:
    """All metrics, in Prometheus's text format."""
    standing = CollectorRegistry(auto_describe=False)
    standing.register(_Standing())
    return generate_latest(standing) + generate_latest(counting.registry())


def look() -> Standing:
    """Nine queries, however many rows there are."""
    now = Now()
    seen = figures()
    going = Run.objects.filter(state__in=_GOING, mocks__isnull=True).order_by().values_list("state", "waiting_for")
    undecided = Approval.objects.filter(state__in=Approval.UNDECIDED, mocked=False).order_by().values("risk")
    asked = list(undecided.annotate(number=Count("pk"), oldest=Min("created_at"), missed=Count("pk", filter=_MISSED)))
    recently = Q(state=Notification.State.FAILED, created_at__gte=now - RECENT)
    told = Notification.objects.filter(Q(state=Notification.State.QUEUED) | recently).order_by()
    by_state = dict(told.values_list("state").annotate(Count("pk")))
    return Standing(
        now=seen["now"],
        runs={(state, waits): number for state, waits, number in going.annotate(Count("pk"))},
        leases_lost=Run.objects.filter(state=Run.State.RUNNING, lease_until__lt=now).count(),
        requests={row["risk"]: row["number"] for row in asked},
        oldest_request=min((row["oldest"] for row in asked), default=None),
        targets_missed=sum(row["missed"] for row in asked),
        unknown_outcomes=ToolExecution.objects.filter(state=ToolExecution.State.OUTCOME_UNKNOWN, mocked=False).count(),
        breakers=dict(Breaker.objects.order_by().values_list("state").annotate(Count("pk"))),
        switches=KillSwitch.objects.count(),
        notifications_waiting=by_state.get(Notification.State.QUEUED, 0),
        notifications_failed=by_state.get(Notification.State.FAILED, 0),
        webhooks_waiting=WebhookDelivery.objects.filter(state=WebhookDelivery.State.QUEUED).count(),
        due_since=seen["due_since"],
        swept_at=seen["swept_at"],
    )


_MISSED = Q(breached_at__isnull=False)


def current() -> Standing:
    """The state within the last few seconds."""
    found: Standing | None = caches["process"].get("metrics")
    if found is None:
        found = look()
        caches["process"].set("metrics", found, LOOKED_AT_FOR_SECONDS)
    return found


class _Standing(Collector):
    """While the database is away, problems are still reported, including that one. The current state is left out."""

    def collect(self) -> Iterable[Metric]:
        problems = health.current()
        standing = None
        if not any(problem.fatal for problem in problems):
            try:
                standing = current()
            except (DatabaseError, InterfaceError):  # it has gone since
                problems = [*problems, health.AWAY]
        yield _wrong(problems)
        if standing is not None:
            yield from _families(standing)


def _wrong(problems: list[Problem]) -> Metric:
    wrong = GaugeMetricFamily("countersign_problem", "What is wrong, as /readyz/ says.", labels=["code"])
    for code in sorted({problem.code for problem in problems}):
        wrong.add_metric([code], 1)
    return wrong


def _families(at: Standing) -> Iterator[Metric]:
    runs = GaugeMetricFamily("countersign_runs", "Runs that have not ended.", labels=["state", "waiting_for"])
    nothing = {(state, ""): 0 for state in (Run.State.QUEUED, Run.State.RUNNING, Run.State.PAUSED)}
    waits = {(Run.State.WAITING, kind): 0 for kind in Run.WaitingFor}
    for (state, kind), number in sorted((nothing | waits | at.runs).items()):
        runs.add_metric([state, kind], number)
    yield runs
    requests = GaugeMetricFamily("countersign_requests_waiting", "Requests nobody has decided.", labels=["risk"])
    for risk in Risk.values:
        requests.add_metric([risk], at.requests.get(risk, 0))
    yield requests
    breakers = GaugeMetricFamily("countersign_breakers", "Circuit breakers.", labels=["state"])
    for state in Breaker.State.values:
        breakers.add_metric([state], at.breakers.get(state, 0))
    yield breakers
    for name, help, value in (
        ("requests_oldest_seconds", "How long the oldest request has waited.", _since(at, at.oldest_request)),
        ("requests_past_target", "Requests that passed their target undecided.", at.targets_missed),
        ("outcomes_unknown", "Calls whose outcome is unknown.", at.unknown_outcomes),
        ("leases_lost", "Runs whose worker shows no sign of life.", at.leases_lost),
        ("run_due_seconds", "How long the oldest due run has waited for a worker.", _since(at, at.due_since)),
        ("sweep_age_seconds", "Seconds since the last sweep.", _since(at, at.swept_at)),
        ("switches_engaged", "Kill switches that are engaged.", at.switches),
        ("notifications_waiting", "Messages to people waiting to be sent.", at.notifications_waiting),
        ("notifications_failed", "Messages to people that failed for good in the last hour.", at.notifications_failed),
        ("webhooks_waiting", "Messages to programs waiting to be sent.", at.webhooks_waiting),
    ):
        yield GaugeMetricFamily(f"countersign_{name}", help, value=value)


def _since(at: Standing, moment: datetime | None) -> float:
    return max(0.0, (at.now - moment).total_seconds()) if moment is not None else 0.0
