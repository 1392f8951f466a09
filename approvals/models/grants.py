"""What people have allowed for a while. Written by `grants`."""

from decimal import Decimal

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from approvals.ids import uuid7
from approvals.models.approvals import Approval
from approvals.models.choices import EffectClass, Risk


class Grant(models.Model):
    """A person's "allow calls like this for a while": one tool, one agent, bounds on the arguments, an end.

    It takes the place of a person who would be asked. It never overrides a rule that forbids.
    """

    # Only what can be put right. What cannot be taken back is decided each time.
    EFFECT_CLASSES = (EffectClass.REVERSIBLE, EffectClass.COMPENSABLE)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(
        Approval, on_delete=models.PROTECT, related_name="grants", help_text="The request that it was made from."
    )
    tool = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=64, help_text="If the tool changes, the grant is void.")
    effect_class = models.CharField(
        max_length=20, choices=EffectClass, help_text="If an admin changes the tool's effect class, the grant is void."
    )
    agent = models.CharField(max_length=80)
    risk = models.CharField(max_length=10, choices=Risk, help_text="A call of higher risk asks.")
    constraints = models.JSONField(
        default=list, help_text="What each argument may be: [{name, rule: is, at_most or any, value}]."
    )
    reason = models.CharField(max_length=500)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    max_hits = models.PositiveIntegerField(null=True, blank=True, help_text="How many calls. Empty: no limit.")
    hits = models.PositiveIntegerField(default=0)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    revoked_why = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["agent", "expires_at"], name="grant_of_agent")]
        constraints = [
            models.CheckConstraint(
                condition=Q(effect_class__in=["reversible", "compensable"]),
                name="grant_can_be_put_right",
                violation_error_message="Only calls that can be undone or made good can be granted.",
            ),
            models.CheckConstraint(
                condition=~Q(risk="critical"),
                name="grant_is_not_critical",
                violation_error_message="A critical call must be decided each time.",
            ),
            models.CheckConstraint(
                condition=~Q(tool="") & ~Q(tool_version="") & ~Q(agent="") & ~Q(reason=""),
                name="grant_is_exact",
                violation_error_message="A grant must name one tool, its version, one agent and a reason.",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("made_at")),
                name="grant_ends",
                violation_error_message="A grant must end after it was made.",
            ),
            models.CheckConstraint(
                condition=Q(max_hits__isnull=True) | Q(max_hits__gte=1, hits__lte=F("max_hits")),
                name="grant_within_its_hits",
                violation_error_message="A grant cannot allow more calls than it says.",
            ),
            models.CheckConstraint(
                condition=Q(revoked_at__isnull=True, revoked_by__isnull=True, revoked_why="")
                | Q(revoked_at__isnull=False, revoked_by__isnull=False) & ~Q(revoked_why=""),
                name="grant_revoked_by_somebody",
                violation_error_message="A revoked grant must say who revoked it, when and why.",
            ),
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def reference(self) -> str:
        """A short name for people, such as GRT-7F3K2A, taken from the random end of the key."""
        return f"GRT-{self.id.hex[-6:].upper()}"


class GrantLimit(models.Model):
    """The most that all calls under a grant may add up to, and what they have added up to so far."""

    class Kind(models.TextChoices):
        SUM = "sum", "Sum of an argument"
        COUNT = "count", "What the tool counts"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    grant = models.ForeignKey(Grant, on_delete=models.CASCADE, related_name="limits")
    kind = models.CharField(max_length=5, choices=Kind)
    name = models.CharField(max_length=120, help_text="The argument, or what the tool counts, for example recipients.")
    most = models.DecimalField(max_digits=18, decimal_places=4)
    used = models.DecimalField(max_digits=18, decimal_places=4, default=Decimal(0))

    class Meta:
        ordering = ["kind", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["grant", "kind", "name"],
                name="grantlimit_one_per_thing",
                violation_error_message="A grant can limit each thing only once.",
            ),
            models.CheckConstraint(
                condition=Q(most__gt=0, used__gte=0, used__lte=F("most")),
                name="grantlimit_is_kept",
                violation_error_message="Calls under a grant cannot add up to more than it says.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.name}"

    @property
    def left(self) -> Decimal:
        return self.most - self.used
