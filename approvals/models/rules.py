"""Rules. Written in the admin and by the configuration file, through `configuration`."""

from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from approvals.ids import uuid7
from approvals.models.choices import AnsweredBy, EffectClass, Risk, Verdict, every_decision


class Rule(models.Model):
    """Which calls may run, must wait or are refused. The strictest matching verdict wins."""

    class OnExpiry(models.TextChoices):
        REJECT = "reject", "Reject it and tell the agent that no one decided"
        STOP = "stop", "Reject it and stop the run"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True, help_text="Shown to approvers, as in refunds-over-limit.")
    description = models.TextField(blank=True, help_text="Why this rule exists, in words an approver understands.")
    order = models.PositiveIntegerField(
        default=100, help_text="Among equally strict rules that match, the lowest number names the terms."
    )
    active = models.BooleanField(default=True)
    agent = models.CharField(max_length=80, blank=True, help_text="Name of one agent. Empty means every agent.")
    route = models.CharField(max_length=80, blank=True, help_text="Name of one route. Empty means every route.")
    tool = models.CharField(max_length=120, blank=True, help_text="Exact name of one tool. Empty means every tool.")
    effect_class = models.CharField(
        max_length=20, blank=True, choices=EffectClass, help_text="Empty means every effect class."
    )
    condition = models.TextField(
        blank=True,
        help_text="A CEL expression over args, tool, agent, run and customer, as in args.amount > 100.0. "
        "Empty means always. One that fails to evaluate asks a person.",
    )
    verdict = models.CharField(max_length=10, choices=Verdict)
    answered_by = models.CharField(
        max_length=10,
        choices=AnsweredBy,
        default=AnsweredBy.PEOPLE,
        help_text="Of a rule that asks. Where the customer cannot be asked, people are; at high and critical risk, and "
        "where another rule asks people, both are, the customer first.",
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text="Who may decide. Empty means everybody with the right to decide."
    )
    approvals_needed = models.PositiveSmallIntegerField(default=1, help_text="How many different people must approve.")
    starter_excluded = models.BooleanField(
        default=True, help_text="The person who started the run may not decide about its calls."
    )
    expires_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="How long people have. Empty means the installation's default."
    )
    on_expiry = models.CharField(max_length=10, choices=OnExpiry, default=OnExpiry.REJECT)
    allowed_decisions = models.JSONField(default=every_decision, help_text="Among approve, edit, reject, respond.")
    risk = models.CharField(max_length=10, choices=Risk, default=Risk.MEDIUM)
    hold_seconds = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="How long a decision can be undone before it takes effect. 0 runs at once."
    )
    version = models.PositiveIntegerField(default=1, editable=False)

    class Meta:
        ordering = ["order", "name"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(verdict=Verdict.ALLOW) | ~Q(tool="") | Q(effect_class=EffectClass.READ),
                name="rule_allow_is_exact",
                violation_error_message="A rule that allows must name one tool exactly, or only reads.",
            ),
            models.CheckConstraint(
                condition=Q(approvals_needed__gte=1),
                name="rule_needs_someone",
                violation_error_message="At least one person must approve.",
            ),
            models.CheckConstraint(
                condition=Q(hold_seconds__isnull=True) | Q(hold_seconds__lte=60),
                name="rule_hold_is_short",
                violation_error_message="A decision can be held for 60 seconds at most.",
            ),
        ]

    def __str__(self) -> str:
        return self.name
