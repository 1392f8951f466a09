"""How decisions were judged afterwards. Written by `judgements`."""

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.ids import uuid7
from approvals.models.approvals import Approval
from approvals.models.decisions import Decision
from approvals.sealed import new_salt


class Judgement(models.Model):
    """What a manager says about a decision afterwards. A later judgement counts instead of an earlier; both stay."""

    class Mark(models.TextChoices):
        GOOD = "good", "Good"
        WRONG = "wrong", "Wrong"
        HARMFUL = "harmful", "Harmful"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="judgements")
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="judgements")
    number = models.PositiveIntegerField(help_text="From 1, for each decision. The highest counts.")
    mark = models.CharField(max_length=7, choices=Mark)
    reason = models.TextField()
    salt = models.CharField(
        max_length=32, blank=True, default=new_salt, editable=False, help_text="For the ledger's digest of its reason."
    )
    judge = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    event = models.UUIDField(null=True, db_index=True, help_text="The event that records the decision.")
    at = models.DateTimeField()

    class Meta:
        ordering = ["decision", "number"]
        permissions = [("judge_decision", "Can say afterwards whether a decision was good")]
        constraints = [
            models.UniqueConstraint(
                fields=["decision", "number"],
                name="judgement_one_counts",
                violation_error_message="Only one judgement of a decision can be the last.",
            ),
            models.CheckConstraint(
                condition=Q(mark__in=["good", "wrong", "harmful"]),
                name="judgement_mark_is_known",
                violation_error_message="A decision can be judged good, wrong or harmful.",
            ),
            models.CheckConstraint(
                condition=~Q(reason=""),
                name="judgement_has_reason",
                violation_error_message="A judgement must say why.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_mark_display()}: {self.decision}"

    @classmethod
    def that_count(cls) -> QuerySet["Judgement"]:
        """The last judgement of each judged decision."""
        later = cls._default_manager.filter(decision=OuterRef("decision"), number__gt=OuterRef("number"))
        return cls._default_manager.filter(~Exists(later))
