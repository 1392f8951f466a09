"""Requests to erase what is kept about people. Written by `erasing`."""

from django.conf import settings
from django.db import models

from approvals.ids import uuid7


class Erasure(models.Model):
    """One request to erase, and how far it has come. Its subject is erased too."""

    class Scope(models.TextChoices):
        RUN = "run", "One run"
        CONVERSATION = "conversation", "One conversation"
        CUSTOMER = "customer", "One customer"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    scope = models.CharField(max_length=12, choices=Scope)
    subject = models.CharField(max_length=200, blank=True, help_text="The id, or the customer. Empty once it is done.")
    reason = models.CharField(max_length=500)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    actor = models.CharField(max_length=200)
    asked_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True, blank=True)
    counts = models.JSONField(default=dict, help_text="How many rows of each kind have been erased.")

    class Meta:
        ordering = ["-asked_at"]
        indexes = [models.Index(fields=["done_at", "asked_at"], name="erasure_open")]

    def __str__(self) -> str:
        return f"{self.get_scope_display()}: {self.reason[:60]}"
