"""The ledger's events. Written by `ledger`, once."""

from typing import Any

from django.db import models

from approvals.digest import load
from approvals.ids import uuid7


class Event(models.Model):
    """One fact in the ledger, chained to the one before. The database refuses update and delete."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chain = models.CharField(max_length=60)
    seq = models.PositiveIntegerField()
    type = models.CharField(max_length=60)
    run_id = models.UUIDField(null=True, blank=True)
    actor = models.CharField(max_length=200)
    at = models.DateTimeField()
    body = models.TextField(help_text="The canonical text that was hashed. The other columns repeat parts of it.")
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["chain", "seq"]
        indexes = [models.Index(fields=["-at", "-id"], name="event_latest")]
        constraints = [
            models.UniqueConstraint(
                fields=["chain", "seq"],
                name="event_one_per_place",
                violation_error_message="Two events cannot stand at one place of a chain.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.seq} {self.type}"

    @property
    def data(self) -> dict[str, Any]:
        """What the event says, read from the text that was hashed."""
        value: dict[str, Any] = load(self.body)["data"]
        return value
