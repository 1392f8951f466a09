"""The ledger's events. Written by `ledger`, once."""

from typing import Any

from django.db import models
from django.db.models import Q

from approvals.digest import load
from approvals.ids import uuid7


class Event(models.Model):
    """One fact in the ledger, chained to the one before. The database refuses updates and deletes."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chain = models.CharField(max_length=60)
    seq = models.PositiveIntegerField()
    type = models.CharField(max_length=60)
    run_id = models.UUIDField(null=True, blank=True)
    actor = models.CharField(max_length=200)
    at = models.DateTimeField()
    # Events are found by these. They repeat what the body says: who it was, without name and channel, and what about.
    actor_key = models.CharField(max_length=200, default="", editable=False)
    approval_id = models.UUIDField(null=True, blank=True)
    execution_id = models.UUIDField(null=True, blank=True)
    tool = models.CharField(max_length=200, blank=True)
    risk = models.CharField(max_length=10, blank=True)
    took_ms = models.BigIntegerField(null=True, blank=True)
    body = models.TextField(help_text="The canonical text that was hashed. The other columns repeat parts of it.")
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["chain", "seq"]
        indexes = [
            models.Index(fields=["-at", "-id"], name="event_latest"),
            models.Index(fields=["actor_key", "-at", "-id"], name="event_of_actor"),
            models.Index(fields=["type", "-at", "-id"], name="event_of_type"),
            models.Index(fields=["tool", "-at", "-id"], condition=~Q(tool=""), name="event_of_tool"),
            models.Index(fields=["risk", "-at", "-id"], condition=~Q(risk=""), name="event_of_risk"),
            models.Index(fields=["-at", "-id"], condition=Q(took_ms__isnull=False), name="event_timed"),
            models.Index(fields=["took_ms"], condition=Q(took_ms__isnull=False), name="event_took"),
            models.Index(fields=["type", "took_ms"], condition=Q(took_ms__isnull=False), name="event_took_of_type"),
            models.Index(fields=["approval_id"], condition=Q(approval_id__isnull=False), name="event_of_approval"),
            models.Index(fields=["execution_id"], condition=Q(execution_id__isnull=False), name="event_of_execution"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["chain", "seq"],
                name="event_one_per_place",
                violation_error_message="Two events cannot have the same place in a chain.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.seq} {self.type}"

    @property
    def data(self) -> dict[str, Any]:
        """What the event says, read from the text that was hashed."""
        value: dict[str, Any] = load(self.body)["data"]
        return value
