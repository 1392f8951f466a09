"""What people said about requests: their decisions and their questions. Written by `decisions`."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from approvals.ids import uuid7
from approvals.models.approvals import Approval
from approvals.models.choices import Assurance, DecisionType
from approvals.sealed import new_salt

# The origin of a decision in a replay: it is repeated as recorded.
BY_RECORD = "record"


class Decision(models.Model):
    """What one person said to an approval, or the customer to a confirmation.

    The client chooses its key, so that a repeat is harmless.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    on_behalf_of = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="Whose right was lent. Empty: it was the person's own.",
    )  # fmt: skip
    customer = models.CharField(max_length=200, blank=True, help_text="The customer who confirmed or declined.")
    mocked = models.BooleanField(default=False, help_text="An eval decided, about a call that reaches nothing.")
    type = models.CharField(max_length=10, choices=DecisionType)
    arguments_text = models.TextField(blank=True)
    message = models.TextField(blank=True)
    salt = models.CharField(
        max_length=32, blank=True, default=new_salt, editable=False, help_text="For the ledger's digests of its words."
    )
    stop_run = models.BooleanField(default=False)
    approval_version = models.PositiveIntegerField()
    action_digest = models.CharField(max_length=64)
    view_digest = models.CharField(max_length=64)
    via = models.CharField(max_length=20)
    assurance = models.CharField(
        max_length=20, blank=True, choices=Assurance, help_text="How the person had just proved who they are."
    )
    signature = models.JSONField(
        null=True, blank=True,
        help_text="If signed: {statement, credential_id, authenticator_data, client_data, signature, public_key, "
        "rp_id}. Written once.",
    )  # fmt: skip
    decided_at = models.DateTimeField()
    undone_at = models.DateTimeField(null=True, blank=True)
    shown_at = models.DateTimeField(
        null=True, blank=True, help_text="When the console first showed them the request. Empty: it did not show it."
    )
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When they claimed it. Empty: they had not.")

    class Meta:
        ordering = ["decided_at"]
        indexes = [
            models.Index(fields=["decided_at"], name="decision_latest"),
            models.Index(fields=["undone_at"], condition=Q(undone_at__isnull=False), name="decision_undone"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "user"],
                condition=Q(undone_at__isnull=True),
                name="decision_one_per_person",
                violation_error_message="A person can decide only once about a request.",
            ),
            # A right counts once, whoever uses it.
            models.UniqueConstraint(
                "approval",
                Coalesce("on_behalf_of", "user"),
                condition=Q(undone_at__isnull=True),
                name="decision_one_per_right",
                violation_error_message="A person and the one who decides for them count as one.",
            ),
            models.CheckConstraint(
                condition=Q(on_behalf_of__isnull=True) | Q(user__isnull=False) & ~Q(user=F("on_behalf_of")),
                name="decision_for_another",
                violation_error_message="A decision on somebody's behalf must be made by another person.",
            ),
            models.UniqueConstraint(
                fields=["approval"],
                condition=Q(undone_at__isnull=True, user__isnull=True, mocked=False),
                name="decision_one_of_customer",
                violation_error_message="A customer can answer only once.",
            ),
            models.CheckConstraint(
                condition=Q(user__isnull=False, customer="", mocked=False)
                | Q(user__isnull=True, mocked=False) & ~Q(customer="")
                | Q(mocked=True, user__isnull=True, on_behalf_of__isnull=True, customer="", assurance=""),
                name="decision_has_somebody",
                violation_error_message="A decision must be a person's, a customer's, or an eval's.",
            ),
            models.CheckConstraint(
                condition=Q(assurance="") | Q(assurance__in=Assurance.values, user__isnull=False),
                name="decision_assurance_is_known",
                violation_error_message="A person's assurance must be a known level; a customer has none.",
            ),
            models.CheckConstraint(
                condition=Q(assurance="signed", signature__isnull=False, type__in=["approve", "edit"])
                | ~Q(assurance="signed") & Q(signature__isnull=True),
                name="decision_signed_has_signature",
                violation_error_message="A signed decision must approve and hold its signature; no other may hold one.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_type_display()} by {self.who}"

    @property
    def who(self) -> str:
        """The name of the person who decided, as everybody reads it, and the lender's name if the right was lent."""
        return f"{self.name} for {self.lender}" if self.on_behalf_of is not None else self.name

    @property
    def name(self) -> str:
        """Only the name of the person who decided."""
        if self.mocked:
            return "The record" if self.via == BY_RECORD else "An eval"
        return "The customer" if self.user is None else self.user.get_full_name() or self.user.get_username()

    @property
    def lender(self) -> str:
        """The name of the person whose right it was. Empty: it was their own."""
        lender = self.on_behalf_of
        return "" if lender is None else lender.get_full_name() or lender.get_username()


class Question(models.Model):
    """What a person wants to know before deciding, and what the agent, or the person who started its run, said."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="questions")
    asker = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    text = models.TextField()
    asked_at = models.DateTimeField()
    answer_by = models.DateTimeField(help_text="When the clock goes on even without an answer.")
    answer = models.TextField(blank=True)
    answerer = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="The person who answered. Empty: the agent did.",
    )  # fmt: skip
    salt = models.CharField(
        max_length=32, blank=True, default=new_salt, editable=False, help_text="For the ledger's digests of its words."
    )
    proposed_text = models.TextField(
        blank=True,
        help_text="The arguments the agent proposes instead, in canonical form; a new request has them.",
    )
    closed_at = models.DateTimeField(null=True, blank=True, help_text="When it was answered or its time was up.")

    class Meta:
        ordering = ["asked_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["approval"],
                condition=Q(closed_at__isnull=True),
                name="question_one_open_per_approval",
                violation_error_message="Only one question about a request can be open at a time.",
            ),
            models.CheckConstraint(
                condition=Q(answer="") | Q(closed_at__isnull=False),
                name="question_answered_is_closed",
                violation_error_message="An answered question must be closed.",
            ),
        ]

    def __str__(self) -> str:
        return self.text[:80]
