"""The calls of plans that people have approved. Written by `plans`."""

from django.db import models
from django.db.models import Q

from approvals.ids import uuid7
from approvals.models.approvals import Approval
from approvals.models.choices import EffectClass


class PlannedCall(models.Model):
    """One call that an approved plan allows: exactly this call, in its run, once, until a set time."""

    # What cannot be taken back is decided each time.
    EFFECT_CLASSES = (EffectClass.REVERSIBLE, EffectClass.COMPENSABLE)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(
        Approval, on_delete=models.PROTECT, related_name="planned_calls", help_text="The request for the whole plan."
    )
    run_id = models.UUIDField(db_index=True)
    position = models.PositiveSmallIntegerField(help_text="Its place in the plan, from 1.")
    tool = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=64, help_text="If the tool changes, people are asked about the call.")
    effect_class = models.CharField(max_length=20, choices=EffectClass)
    arguments_text = models.TextField(help_text="The exact arguments, in canonical form.")
    action_digest = models.CharField(max_length=64)
    snapshot_text = models.TextField(blank=True, help_text="The state of the world that people approved it on.")
    use_by = models.DateTimeField()
    used_by = models.UUIDField(null=True, blank=True, unique=True, help_text="The call that was made under it.")
    used_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_why = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["approval", "position"]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "position"],
                name="plannedcall_one_per_place",
                violation_error_message="A plan can have only one call at each place.",
            ),
            models.CheckConstraint(
                condition=Q(position__gte=1) & ~Q(tool="") & ~Q(tool_version="") & ~Q(action_digest=""),
                name="plannedcall_is_exact",
                violation_error_message="A planned call must have a place, a tool, its version and a digest.",
            ),
            models.CheckConstraint(
                condition=Q(effect_class__in=["reversible", "compensable"]),
                name="plannedcall_can_be_put_right",
                violation_error_message="Only calls that can be undone or made good can be planned.",
            ),
            models.CheckConstraint(
                condition=Q(used_by__isnull=True, used_at__isnull=True)
                | Q(used_by__isnull=False, used_at__isnull=False),
                name="plannedcall_used_has_time",
                violation_error_message="A planned call that was made must say by which call, and when.",
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, ended_why="") | Q(ended_at__isnull=False) & ~Q(ended_why=""),
                name="plannedcall_ended_says_why",
                violation_error_message="A planned call that was ended must say when and why.",
            ),
            models.CheckConstraint(
                condition=Q(used_at__isnull=True) | Q(ended_at__isnull=True),
                name="plannedcall_used_or_ended",
                violation_error_message="A planned call cannot be both made and ended.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool}, {self.position} of {self.approval.reference}"
