"""Figures for hours and days, added up from other rows. Written by `insights.rollups`.

All of them can be computed again from those rows; none holds anything of its own.
"""

from decimal import Decimal

from django.db import models
from django.db.models import Q


class Span(models.TextChoices):
    HOUR = "hour", "Hour"
    DAY = "day", "Day, by UTC"


class RequestFigures(models.Model):
    """What became of requests to people: of all, of one tool's, or of those that one person decided."""

    class By(models.TextChoices):
        ALL = "all", "All"
        TOOL = "tool", "Tool"
        PERSON = "person", "Person"

    span = models.CharField(max_length=4, choices=Span)
    at = models.DateTimeField(help_text="When the hour or the day begins.")
    # A plain id: a group that has been deleted was still asked.
    team = models.PositiveIntegerField(default=0, help_text="The group that was asked. 0: whichever group was asked.")
    by = models.CharField(max_length=6, choices=By)
    key = models.CharField(max_length=200, blank=True, help_text="The tool's name, or the person's id.")
    asked = models.PositiveIntegerField(default=0, help_text="Requests that began to wait.")
    approved = models.PositiveIntegerField(default=0, help_text="As they were proposed.")
    changed = models.PositiveIntegerField(default=0, help_text="Approved with changes.")
    rejected = models.PositiveIntegerField(default=0)
    responded = models.PositiveIntegerField(default=0)
    expired = models.PositiveIntegerField(default=0)
    withdrawn = models.PositiveIntegerField(default=0)
    superseded = models.PositiveIntegerField(default=0)
    high_seen = models.PositiveIntegerField(
        default=0,
        help_text="Decisions about high or critical risk by people to whom the console had shown the request.",
    )
    high_fast = models.PositiveIntegerField(default=0, help_text="How many of them came within three seconds.")
    approvals_seen = models.PositiveIntegerField(default=0, help_text="The same for approvals of any risk.")
    approvals_fast = models.PositiveIntegerField(default=0)
    waits = models.JSONField(default=dict, help_text="Counts by whole seconds from asking to the decision or expiry.")
    claimed = models.JSONField(default=dict, help_text="Counts by whole seconds from claiming to the decision.")

    class Meta:
        ordering = ["at"]
        verbose_name_plural = "request figures"
        constraints = [
            models.UniqueConstraint(fields=["span", "by", "team", "at", "key"], name="requestfigures_once"),
        ]

    def __str__(self) -> str:
        return f"{self.span} {self.at:%Y-%m-%d %H:%M} {self.by} {self.key}".strip()


class CallFigures(models.Model):
    """What became of the calls of one tool that were carried out for one agent."""

    span = models.CharField(max_length=4, choices=Span)
    at = models.DateTimeField()
    agent = models.CharField(max_length=80)
    tool = models.CharField(max_length=200)
    calls = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=8, default=Decimal(0))

    class Meta:
        ordering = ["at"]
        verbose_name_plural = "call figures"
        constraints = [models.UniqueConstraint(fields=["span", "at", "agent", "tool"], name="callfigures_once")]

    def __str__(self) -> str:
        return f"{self.span} {self.at:%Y-%m-%d %H:%M} {self.tool}"


class ModelFigures(models.Model):
    """What one model used for one agent, at the prices of that time."""

    span = models.CharField(max_length=4, choices=Span)
    at = models.DateTimeField()
    agent = models.CharField(max_length=80)
    model = models.CharField(max_length=120, blank=True, help_text="Empty: what was asked outside of a step.")
    replies = models.PositiveIntegerField(default=0)
    unpriced = models.PositiveIntegerField(default=0, help_text="Replies whose price is unknown.")
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=8, default=Decimal(0))

    class Meta:
        ordering = ["at"]
        verbose_name_plural = "model figures"
        constraints = [models.UniqueConstraint(fields=["span", "at", "agent", "model"], name="modelfigures_once")]

    def __str__(self) -> str:
        return f"{self.span} {self.at:%Y-%m-%d %H:%M} {self.model}"


class RollUp(models.Model):
    """How far the figures have been added up. One row."""

    ONLY = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY)
    until = models.DateTimeField(help_text="Hours before this moment have their figures.")
    looked_at = models.DateTimeField(help_text="When later changes were last looked for.")

    class Meta:
        permissions = [("view_insights", "Can see the figures of Insights")]
        constraints = [
            models.CheckConstraint(
                condition=Q(id=1), name="rollup_is_one", violation_error_message="There is one state of the figures."
            )
        ]

    def __str__(self) -> str:
        return f"until {self.until:%Y-%m-%d %H:%M}"
