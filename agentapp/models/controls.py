"""What stops a failing tool, what stops everything, and what a day has cost.

Breaker is written by `breakers`, KillSwitch by `switches`, Spending by `budgets`.
"""

from decimal import Decimal

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentapp.models.agents import Agent
from approvals.ids import uuid7


class Breaker(models.Model):
    """Shared by all workers: it opens after failures in a row, and lets one probe through once it has cooled down."""

    class Scope(models.TextChoices):
        TOOL = "tool", "Tool"
        SOURCE = "source", "Tool source"
        MODEL = "model", "Model"
        AGENT = "agent", "Agent"

    class State(models.TextChoices):
        CLOSED = "closed", "Closed"
        OPEN = "open", "Open"
        HALF_OPEN = "half_open", "Half open"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    scope = models.CharField(max_length=8, choices=Scope)
    key = models.CharField(max_length=200, help_text="The name of the tool, source, model or agent.")
    state = models.CharField(max_length=10, choices=State, default=State.CLOSED)
    threshold = models.PositiveSmallIntegerField(default=3, help_text="Failures in a row that open it.")
    cooldown_seconds = models.PositiveIntegerField(
        default=60, help_text="How many seconds pass before one call may probe."
    )
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    last_error = models.CharField(max_length=500, blank=True)
    last_run = models.UUIDField(
        null=True, blank=True, help_text="The run in which it last failed. If that run is erased, so is the error."
    )
    opened_at = models.DateTimeField(null=True, blank=True)
    probe_until = models.DateTimeField(null=True, blank=True, help_text="Set while a probe is under way.")

    class Meta:
        ordering = ["scope", "key"]
        constraints = [
            models.UniqueConstraint(fields=["scope", "key"], name="breaker_one_per_thing"),
            models.CheckConstraint(
                condition=Q(state="closed") | Q(opened_at__isnull=False),
                name="breaker_open_has_time",
                violation_error_message="An open breaker must say since when.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}"


class KillSwitch(models.Model):
    """An engaged switch: nothing it covers begins another model or tool call. Deleting the row releases it."""

    class Scope(models.TextChoices):
        ALL = "all", "Everything"
        AGENT = "agent", "Agent"
        TOOL = "tool", "Tool"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    scope = models.CharField(max_length=6, choices=Scope)
    key = models.CharField(max_length=200, blank=True, help_text="The name of the agent or tool; empty for everything.")
    reason = models.CharField(max_length=500, blank=True)
    engaged_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    engaged_at = models.DateTimeField()

    class Meta:
        ordering = ["scope", "key"]
        verbose_name_plural = "kill switches"
        permissions = [("engage_killswitch", "Can engage and release kill switches")]
        constraints = [
            models.UniqueConstraint(fields=["scope", "key"], name="killswitch_one_per_thing"),
            models.CheckConstraint(
                condition=Q(scope="all", key="") | ~Q(scope="all") & ~Q(key=""),
                name="killswitch_names_its_thing",
                violation_error_message="A switch must name its agent or tool; the one for everything must name none.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}".strip()


class Spending(models.Model):
    """What the runs of an agent have cost on one day, by UTC. Kept for agents with a daily limit."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="spending")
    day = models.DateField()
    cost = models.DecimalField(max_digits=20, decimal_places=8, default=Decimal(0))

    class Meta:
        ordering = ["agent", "-day"]
        verbose_name_plural = "spending"
        constraints = [models.UniqueConstraint(fields=["agent", "day"], name="spending_one_per_day")]

    def __str__(self) -> str:
        return f"{self.agent} {self.day}"
