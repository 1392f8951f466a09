"""From the ledger to deliveries.

Events of different chains do not commit in the order of their times, so collecting cannot continue from the last one
seen. Each endpoint is read from a moment before which no further event can appear. Later events are read again each
time, and the database accepts one delivery per endpoint and event.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Exists, OuterRef
from django.utils import timezone

from agentapp.models import Run, WebhookDelivery, WebhookEndpoint, WebhookProgress
from agentapp.webhooks import payloads
from approvals.clock import Now
from approvals.models import Event

BATCH = 200
# Events are timed by the clock of the process that writes them. Clocks may differ by this much.
CLOCKS_DIFFER = timedelta(seconds=60)


def collect() -> int:
    """Make a delivery of every event that an endpoint wants and does not have yet. Returns how many. One query if there
    are no endpoints.
    """
    endpoints = list(WebhookEndpoint.objects.select_related("progress"))
    if not endpoints:
        return 0
    # Taken before any event is read: whatever commits in between is read next time.
    settled = _settled_until()
    made = 0
    for endpoint in endpoints:
        progress = _progress(endpoint)
        if endpoint.active:
            for events in _untold(endpoint, progress.read_until):
                made += _queue(endpoint, events)
            WebhookProgress.objects.filter(pk=endpoint.pk, read_until__lt=settled).update(read_until=settled)
        elif progress.read_until < settled:
            # Nothing is queued for an inactive endpoint, and it has no failures when it is switched on again.
            WebhookProgress.objects.filter(pk=endpoint.pk).update(read_until=settled, failing_since=None)
    return made


def _progress(endpoint: WebhookEndpoint) -> WebhookProgress:
    if hasattr(endpoint, "progress"):
        return endpoint.progress
    first = {"read_until": endpoint.created_at}
    return WebhookProgress.objects.get_or_create(endpoint=endpoint, defaults=first)[0]


def _untold(endpoint: WebhookEndpoint, since: datetime) -> Iterator[list[Event]]:
    told = WebhookDelivery.objects.filter(endpoint=endpoint, event_id=OuterRef("pk"))
    mocked = Run.objects.filter(pk=OuterRef("run_id"), mocks__isnull=False)
    wanted = Event.objects.filter(at__gte=since, type__in=endpoint.events)
    untold = wanted.exclude(Exists(told)).exclude(Exists(mocked)).order_by("at", "id")
    while events := list(untold[:BATCH]):
        yield events
        if len(events) < BATCH:
            return


def _queue(endpoint: WebhookEndpoint, events: list[Event]) -> int:
    """Another worker may do the same at the same time. An event that it queued first is skipped."""
    made = {"next_at": Now(), "created_at": Now()}
    deliveries = [
        WebhookDelivery(endpoint=endpoint, event_id=event.pk, type=event.type, body=body, **made)
        for event, body in zip(events, payloads.of(events), strict=True)
    ]
    WebhookDelivery.objects.bulk_create(deliveries, ignore_conflicts=True)
    return len(deliveries)


def _settled_until() -> datetime:
    """A moment before which no further event can appear: before every transaction that is still writing began.

    A transaction times its events while it is open. SQLite has one writer at a time, so its events are in order.
    """
    if connection.vendor != "postgresql":
        return timezone.now() - CLOCKS_DIFFER
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT least(clock_timestamp(), min(xact_start)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()"
        )
        began: datetime = cursor.fetchone()[0]
    return began - CLOCKS_DIFFER
