"""What health is judged by, read in one query."""

import time
from datetime import timedelta
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    Func,
    IntegerField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from agentapp import continuity
from agentapp.due import due
from agentapp.models import Breaker, Heartbeat, KillSwitch, Run, Tool, WebhookEndpoint
from agentapp.models.runs import MOST_WORKERS_LOST
from agentapp.tools import python_source
from approvals.clock import Now, heard
from approvals.models import Anchor, Checkpoint, Notification, Verification
from approvals.proof import anchors, checkpoints, verifying

SWEEP, WORKER_CLOCK = "sweep", "worker_clock"
CLOCKS_MAY_DIFFER = timedelta(seconds=5)
STUCK = timedelta(minutes=10)
RECENT = timedelta(hours=1)
# No message is held back and tried for longer than this: the longest quiet hours, or the wait for a digest mail.
KEPT_BACK = timedelta(days=3)


def figures() -> dict[str, Any]:
    """Everything that is checked, in one query. The table it starts from is never empty."""
    now, asked_at = Now(), time.monotonic()
    failing = Q(active=True, progress__failing_since__lte=now - STUCK) | Q(active=False) & ~Q(progress__problem="")
    notifications = Notification.objects.filter(
        # A message whose reason is gone was correctly not sent.
        Q(state=Notification.State.FAILED, sending_until__gte=now - RECENT, created_at__gte=now - KEPT_BACK)
        & ~Q(error__startswith="Not sent:")
        # A message to a person in their quiet hours waits without an attempt.
        | Q(state=Notification.State.QUEUED, created_at__lte=now - STUCK) & (Q(attempts__gte=1) | Q(user__isnull=True))
    )
    broken = Breaker.objects.exclude(state=Breaker.State.CLOSED)
    verified = verifying.past().filter(state=Verification.State.DONE)
    # If none has ended yet, the start of the first one counts.
    begun = Subquery(verifying.past().order_by("started_at").values("started_at")[:1])
    yet_to_come = Verification.objects.filter(started_at__gt=timezone.now() + checkpoints.CLOCKS_DIFFER)
    other_code = _of_other_code()
    unanchored = Anchor.objects.filter(failing_since__lte=now - anchors.FAILING_LONG)
    asked: dict[str, Any] = {
        "now": now,
        "read_only": _is_read_only(),
        "swept_at": Subquery(Heartbeat.objects.filter(pk=SWEEP).values("at")),
        "worker_was_off_at": Subquery(Heartbeat.objects.filter(pk=WORKER_CLOCK).values("at")),
        "intact": continuity.intact(),
        "held": Exists(KillSwitch.objects.filter(scope=KillSwitch.Scope.ALL, engaged_by__isnull=True)),
        "due_since": _due_since(),
        "untold": _number_of(notifications),
        "broken": _number_of(broken),
        "first_broken": Subquery(broken.order_by("opened_at").values("key")[:1]),
        "paused": _number_of(losing_workers()),
        "first_paused": Subquery(losing_workers().order_by("updated_at").values("pk")[:1]),
        "unsynced": _number_of(other_code),
        "first_unsynced": Subquery(other_code.order_by("name").values("name")[:1]),
        "deaf": _number_of(WebhookEndpoint.objects.filter(failing)),
        "ledger_broken": Subquery(verified.values("broken")[:1]),
        "ledger_looked_at": Coalesce(Subquery(verified.values("finished_at")[:1]), begun),
        "ahead": Subquery(yet_to_come.order_by("-started_at").values("started_at")[:1]),
        "unanchored": Subquery(unanchored.order_by("failing_since").values("problem")[:1]),
        "signs": Exists(Checkpoint.objects.all()),
    }
    row: dict[str, Any] = ContentType.objects.order_by("pk").annotate(**asked).values(*asked)[0]
    heard(row["now"], asked_at)
    return row


def losing_workers() -> QuerySet[Run]:
    """The runs that were paused because worker after worker vanished while they had them."""
    return Run.objects.filter(state=Run.State.PAUSED, workers_lost__gte=MOST_WORKERS_LOST)


def _is_read_only() -> Any:
    if connection.vendor != "postgresql":
        return Value("off")
    return Func(Value("transaction_read_only"), function="current_setting", output_field=CharField())


def _of_other_code() -> QuerySet[Tool]:
    """The callable tools whose version in this process's code differs from the version on record."""
    try:
        versions = {tool.name: tool.version for tools in python_source.modules().values() for tool in tools}
    except ImproperlyConfigured:  # unknown here; the system checks say what is wrong
        versions = {}
    # A tool's version is a digest that includes its name.
    there = Tool.objects.filter(enabled=True, missing_since=None, source__kind="python", source__enabled=True)
    return there.filter(name__in=[*versions, ""]).exclude(version__in=[*versions.values(), ""])


def _due_since() -> Any:
    """Since when the longest-due run could have been taken. In a conversation, a run is not due before the one ahead of
    it has ended.
    """
    ahead = Run.objects.filter(conversation=OuterRef("conversation")).order_by().values("conversation")
    turn = Coalesce(Subquery(ahead.annotate(last=Max("finished_at")).values("last")), F("updated_at"))
    since = Case(
        When(state=Run.State.RUNNING, then=F("lease_until")),
        When(wake_at__isnull=False, then=F("wake_at")),
        default=Greatest(F("updated_at"), turn),
    )
    waiting = Run.objects.filter(due()).order_by().annotate(since=since, all=Value(1)).values("all")
    return Subquery(waiting.annotate(first=Min("since")).values("first"))


def _number_of(rows: QuerySet[Any]) -> Any:
    counted = rows.order_by().annotate(all=Value(1)).values("all").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counted), 0, output_field=IntegerField())
