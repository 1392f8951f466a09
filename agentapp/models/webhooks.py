"""Programs elsewhere that are told what happens here, and what they were told.

WebhookEndpoint is configuration, written through `approvals.configuration`; WebhookProgress and WebhookDelivery are
written by `agentapp/webhooks/`.
"""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator, URLValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from approvals.ids import uuid7

# What an endpoint can subscribe to, by the names of the ledger's events.
WEBHOOK_EVENTS = (
    "approval.requested",
    "approval.asked",
    "approval.answered",
    "approval.breached",
    "approval.reminded",
    "approval.escalated",
    "approval.approved",
    "approval.rejected",
    "approval.responded",
    "approval.undone",
    "approval.expired",
    "approval.withdrawn",
    "approval.superseded",
    "approval.used",
    "run.waiting",
    "run.succeeded",
    "run.failed",
    "run.stopped",
    "run.cancelled",
    "tool_call.outcome_unknown",
    "breaker.opened",
    "breaker.closed",
    "breaker.reset",
    "switch.engaged",
    "switch.released",
)
# What the button "Send a test" sends. No endpoint can subscribe to it, and none needs to.
TEST_EVENT = "webhook.test"

_is_credential = RegexValidator(
    r"^[A-Z][A-Z0-9_]{0,79}$", "A credential's name has only capital letters, digits and _."
)


def validate_events(value: Any) -> None:
    """A list of known events, each once."""
    if not isinstance(value, list) or not value:
        raise ValidationError("Name at least one event.")
    unknown = [one for one in value if one not in WEBHOOK_EVENTS]
    if unknown:
        raise ValidationError(f"There is no event {unknown[0]!r}. There are {', '.join(WEBHOOK_EVENTS)}.")
    if len(set(value)) != len(value):
        raise ValidationError("An event is named twice.")


class WebhookEndpoint(models.Model):
    """An address that is told about events, with a signature. Its secrets are named here and kept elsewhere."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    url = models.CharField(
        "address", max_length=500, validators=[URLValidator(["https", "http"])],
        help_text="Where events are posted. http and internal addresses must be in OUTBOUND_NETWORKS.",
    )  # fmt: skip
    events = models.JSONField(default=list, validators=[validate_events], help_text="The events it is told about.")
    credential = models.CharField(
        max_length=80, validators=[_is_credential],
        help_text="The name of the secret that events are signed with, for example SHOP_EVENTS: the variable "
        "CREDENTIAL_SHOP_EVENTS holds the secret, in the form whsec_….",
    )  # fmt: skip
    previous_credential = models.CharField(
        max_length=80, blank=True, validators=[_is_credential],
        help_text="The old secret while it is being replaced. Events then carry a signature with each.",
    )  # fmt: skip
    active = models.BooleanField(
        default=True, help_text="An inactive endpoint is sent nothing, and nothing is kept for it."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(credential=""),
                name="webhook_is_signed",
                violation_error_message="Every event is signed, so name a credential.",
            ),
            models.CheckConstraint(
                condition=~Q(credential=models.F("previous_credential")),
                name="webhook_two_secrets_differ",
                violation_error_message="The previous credential must differ from the current one.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class WebhookProgress(models.Model):
    """How far an endpoint has been told, and its health. What changes all the time is not configuration."""

    endpoint = models.OneToOneField(
        WebhookEndpoint, primary_key=True, on_delete=models.CASCADE, related_name="progress", editable=False
    )
    read_until = models.DateTimeField(help_text="Every event before this moment has its delivery.")
    failing_since = models.DateTimeField(null=True, help_text="The first failure since the last success.")
    failed_at = models.DateTimeField(null=True, help_text="The last failure.")
    sending_until = models.DateTimeField(null=True, help_text="Until then a worker sends to it.")
    problem = models.CharField(max_length=500, blank=True, help_text="Why it was switched off automatically.")

    def __str__(self) -> str:
        return str(self.endpoint)


class WebhookDelivery(models.Model):
    """One event for one endpoint: the text that is sent, and the outcome."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event_id = models.UUIDField(help_text="The event in the ledger; the same as the header webhook-id.")
    type = models.CharField(max_length=60)
    body = models.TextField(help_text="Exactly as it is sent, each time.")
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    status = models.PositiveSmallIntegerField(null=True, help_text="What the server last answered.")
    error = models.CharField(max_length=500, blank=True)
    next_at = models.DateTimeField(null=True, help_text="When it will next be sent.")
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "webhook deliveries"
        indexes = [
            models.Index(fields=["next_at"], condition=Q(state="queued"), name="webhook_delivery_due"),
            models.Index(fields=["endpoint", "-id"], name="webhook_delivery_latest"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint", "event_id"],
                name="webhook_delivery_once",
                violation_error_message="An endpoint is told about an event once.",
            ),
            models.CheckConstraint(
                condition=~Q(state="queued") | Q(next_at__isnull=False),
                name="webhook_queued_has_time",
                violation_error_message="A queued delivery must say when it is sent next.",
            ),
            models.CheckConstraint(
                condition=~Q(state="sent") | Q(sent_at__isnull=False),
                name="webhook_sent_has_time",
                violation_error_message="A sent delivery must say when it was sent.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} to {self.endpoint}"
