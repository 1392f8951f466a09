"""From deliveries to servers. An attempt is claimed by counting it, so that two workers do not make it together. If its
worker dies, the next attempt follows.
"""

import logging
import random
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from agentapp.models import WebhookDelivery, WebhookEndpoint, WebhookProgress
from agentapp.models.webhooks import TEST_EVENT
from agentapp.tools import credentials, outbound
from agentapp.webhooks import payloads, signing
from approvals import clock, configuration, ledger, outgoing
from approvals.clock import Now
from approvals.digest import storable
from approvals.ids import uuid7

logger = logging.getLogger(__name__)

State = WebhookDelivery.State

# How long after each attempt the next one is due. After the last attempt the delivery has failed.
NEXT_AFTER = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
ATTEMPTS = len(NEXT_AFTER) + 1
# An endpoint that accepts nothing for this long is switched off.
GIVEN_UP_AFTER = timedelta(days=5)
# After this long without an attempt, the endpoint's past failures say nothing: the count starts again.
UNTRIED_FOR = 2 * max(NEXT_AFTER)
ANSWERS_WITHIN_SECONDS = 10.0
# No attempt takes longer than this.
_AN_ATTEMPT_TAKES = timedelta(minutes=1)
_PASS_ENDS_WITHIN = timedelta(seconds=outgoing.PASS_SECONDS + 2 * ANSWERS_WITHIN_SECONDS)
MAX_ANSWER_BYTES = 2000
_MAX_ERROR_CHARS = 500
_GONE = 410
# What was sent is kept this long, to look at and to send again.
KEPT_FOR = timedelta(days=30)
_SENDER = "Countersign-Webhooks/1"


class Undelivered(Exception):
    """An attempt failed. `status` is what the server answered, if it did."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def due_endpoints() -> list[uuid.UUID]:
    """The endpoints that have something due and to which no worker is sending now, in random order, so that none is
    always behind those that hang.
    """
    free = Q(endpoint__progress__sending_until__isnull=True) | Q(endpoint__progress__sending_until__lte=Now())
    found = list(_due().filter(free).order_by("endpoint").values_list("endpoint", flat=True).distinct())
    random.shuffle(found)
    return found


def send_due(endpoint_id: uuid.UUID) -> int:
    """Send what is due to one endpoint, oldest first, within one pass. Returns how many arrived.

    One worker at a time sends to an endpoint, and few of its threads send to all endpoints, so one that hangs holds up
    little other work. If it did not answer, the next pass continues.
    """
    with outgoing.turn(f"webhook {endpoint_id}") as mine:
        return _one_pass(endpoint_id) if mine else 0


def _one_pass(endpoint_id: uuid.UUID) -> int:
    progress = WebhookProgress.objects.filter(pk=endpoint_id)
    free = Q(sending_until__isnull=True) | Q(sending_until__lte=Now())
    if not progress.filter(free).update(sending_until=Now() + _PASS_ENDS_WITHIN):
        return 0
    arrived: list[uuid.UUID] = []

    def send(delivery: WebhookDelivery) -> bool:
        if _send(delivery):
            arrived.append(delivery.pk)
            return True
        return False

    try:
        outgoing.one_after_another(_each_due(endpoint_id), send)
    finally:
        progress.update(sending_until=None)
    return len(arrived)


def _each_due(endpoint_id: uuid.UUID) -> Iterator[WebhookDelivery]:
    due = _due().filter(endpoint=endpoint_id).order_by("next_at", "created_at").select_related("endpoint")
    while (delivery := due.first()) is not None:
        yield delivery


def give_up() -> int:
    """End deliveries whose last attempt died with its worker. Returns how many."""
    lost = WebhookDelivery.objects.filter(state=State.QUEUED, attempts__gte=ATTEMPTS, next_at__lte=Now())
    error = "It is not known whether the last attempt was sent: the worker died."
    return lost.update(state=State.FAILED, error=error)


def forget_old() -> int:
    """Delete deliveries that ended long ago. Returns how many. The ledger keeps what happened."""
    old = WebhookDelivery.objects.filter(created_at__lt=Now() - KEPT_FOR).exclude(state=State.QUEUED)
    return old.delete()[0]


def redeliver(delivery_id: uuid.UUID, user: User) -> bool:
    """Send a delivery again from the first attempt, under the same id. False: there is none, or it is queued."""
    with ledger.transaction():
        ended = WebhookDelivery.objects.filter(pk=delivery_id).exclude(state=State.QUEUED).exclude(type=TEST_EVENT)
        if not ended.update(state=State.QUEUED, attempts=0, next_at=Now(), sent_at=None):
            return False
        delivery = WebhookDelivery.objects.select_related("endpoint").get(pk=delivery_id)
        said = {"endpoint": delivery.endpoint.name, "event": str(delivery.event_id), "type": delivery.type}
        ledger.record(ledger.CONFIGURATION, "webhook.redelivered", said, ledger.actor_of(user))
    return True


def test(endpoint: WebhookEndpoint, user: User) -> WebhookDelivery:
    """Send a test now, even to an inactive endpoint, and only once. Returns the result."""
    delivery = WebhookDelivery.objects.create(
        endpoint=endpoint, event_id=uuid7(), type=TEST_EVENT, body=payloads.for_test(endpoint.name, clock.now()),
        state=State.FAILED, error="It is not known whether the test arrived.", attempts=1, created_at=Now(),
    )  # fmt: skip
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "webhook.tested", {"endpoint": endpoint.name}, ledger.actor_of(user))
    mine = WebhookDelivery.objects.filter(pk=delivery.pk)
    try:
        status = _post(delivery)
    except Undelivered as error:
        mine.update(status=error.status, error=_short(str(error)))
    else:
        mine.update(state=State.SENT, status=status, error="", sent_at=Now())
        _fares_well(WebhookProgress.objects.filter(pk=endpoint.pk, problem=""))
    delivery.refresh_from_db()
    return delivery


def _due() -> QuerySet[WebhookDelivery]:
    return WebhookDelivery.objects.filter(
        state=State.QUEUED, next_at__lte=Now(), attempts__lt=ATTEMPTS, endpoint__active=True
    )


def _send(delivery: WebhookDelivery) -> bool:
    """Make one attempt. False: another worker is making it, or it failed."""
    number = delivery.attempts + 1
    after = NEXT_AFTER[delivery.attempts] if number < ATTEMPTS else _AN_ATTEMPT_TAKES
    mine = WebhookDelivery.objects.filter(pk=delivery.pk, state=State.QUEUED, attempts=delivery.attempts)
    if not mine.filter(next_at__lte=Now()).update(attempts=number, next_at=Now() + max(after, timedelta(seconds=5))):
        return False
    mine = WebhookDelivery.objects.filter(pk=delivery.pk, state=State.QUEUED, attempts=number)
    try:
        status = _post(delivery)
    except Undelivered as error:
        logger.warning("%s was not delivered: %s", delivery, error)
        for_good = number >= ATTEMPTS or error.status == _GONE
        state = State.FAILED if for_good else State.QUEUED
        mine.update(state=state, status=error.status, error=_short(str(error)))
        _note_failure(delivery.endpoint, error)
        return False
    _fares_well(WebhookProgress.objects.filter(pk=delivery.endpoint_id))
    return bool(mine.update(state=State.SENT, status=status, error="", sent_at=Now()))


def _post(delivery: WebhookDelivery) -> int:
    """The status of a server that accepted it. Raises Undelivered."""
    endpoint, body = delivery.endpoint, delivery.body.encode()
    known: list[str] = []
    try:
        known = signing.secrets_named([endpoint.credential, endpoint.previous_credential])
        signed = signing.headers(known, str(delivery.event_id), int(time.time()), body)
        headers = {"Content-Type": "application/json", "User-Agent": _SENDER, **signed}
        outside = outbound.Outside(networks=tuple(settings.OUTBOUND_NETWORKS))
        answer = outbound.post(endpoint.url, outside, body, headers, MAX_ANSWER_BYTES, ANSWERS_WITHIN_SECONDS)
    except (signing.NoSecret, outbound.OutboundRefused) as error:
        raise Undelivered(str(error)) from error
    if 200 <= answer.status < 300:
        return answer.status
    parts = {part for secret in known for part in (secret, secret.removeprefix(signing.SECRET_BEGINS))}
    words = " ".join(str(credentials.redacted(answer.beginning, parts)).split())
    raise Undelivered(f"The server answered {answer.status}{': ' + words if words else '.'}", answer.status)


def _note_failure(endpoint: WebhookEndpoint, error: Undelivered) -> None:
    progress = WebhookProgress.objects.filter(pk=endpoint.pk)
    progress.filter(Q(failing_since=None) | Q(failed_at__lt=Now() - UNTRIED_FOR)).update(failing_since=Now())
    progress.update(failed_at=Now())
    if error.status == _GONE:
        _switch_off(endpoint, "Its server answered 410: the endpoint is gone for good.")
    elif progress.filter(failing_since__lte=Now() - GIVEN_UP_AFTER).exists():
        _switch_off(endpoint, f"It has accepted nothing for {GIVEN_UP_AFTER.days} days. {error}")


def _switch_off(endpoint: WebhookEndpoint, why: str) -> None:
    """What is queued stays, and is sent when a person switches the endpoint on again."""
    actor = ledger.actor_of(None, "webhooks")
    with configuration.transaction():
        row = WebhookEndpoint.objects.select_for_update().get(pk=endpoint.pk)
        if not row.active:
            return
        row.active = False
        configuration.save(row, actor)
        said = {"endpoint": row.name, "reason": _short(why)}
        ledger.record(ledger.CONFIGURATION, "webhook.switched_off", said, actor)
        WebhookProgress.objects.filter(pk=row.pk).update(problem=_short(why))


def see_to(endpoint_id: uuid.UUID) -> None:
    """A person has switched the endpoint on or off. Why it switched itself off is no longer a problem, and earlier
    failures no longer count.
    """
    _fares_well(WebhookProgress.objects.filter(pk=endpoint_id))


def _fares_well(progress: QuerySet[WebhookProgress]) -> None:
    progress.exclude(failing_since=None, problem="").update(failing_since=None, problem="")


def _short(text: str) -> str:
    return storable(text)[:_MAX_ERROR_CHARS]
