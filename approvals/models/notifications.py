"""How people are told that something waits. Outcomes are written by `notify`."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from approvals.ids import uuid7
from approvals.models.approvals import Approval
from approvals.models.people import Comment


class Channel(models.Model):
    """A way to tell people that something waits for them. Links lead to the signed-in page, never decide."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    kind = models.CharField(max_length=20)
    config = models.JSONField(default=dict, blank=True, help_text="What the kind needs, as in {'to': ['a@b.example']}.")
    groups = models.ManyToManyField(
        Group, blank=True, help_text="Told about requests these groups may decide. Empty means every request."
    )
    active = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Notification(models.Model):
    """One sending over one channel, or to one person, and its outcome."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    class Kind(models.TextChoices):
        WAITING = "waiting", "A request waits"
        HANDED = "handed", "A request was handed to me"
        DUE_SOON = "due_soon", "A request of mine is due soon"
        FAILED = "call_failed", "A call that I approved failed"
        ANSWERED = "answered", "My question was answered"
        REMINDED = "reminded", "A request still waits"
        ESCALATED = "escalated", "My group may decide now, too"
        MENTIONED = "mentioned", "I was mentioned in a comment"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="notifications")
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.WAITING)
    channel = models.ForeignKey(Channel, null=True, blank=True, on_delete=models.PROTECT, related_name="notifications")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="notifications",
        help_text="Told by mail, as their own settings say.",
    )  # fmt: skip
    step = models.PositiveSmallIntegerField(
        default=0, help_text="The escalation step it belongs to. 0: it belongs to none."
    )
    comment = models.ForeignKey(
        Comment, null=True, blank=True, on_delete=models.PROTECT, related_name="notifications",
        help_text="Which comment mentions them, where one does.",
    )  # fmt: skip
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["state", "created_at"], name="notification_queue")]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "channel", "step"],
                name="notification_once_per_channel",
                violation_error_message="A channel is told once about a request, and once of each step.",
            ),
            models.UniqueConstraint(
                fields=["approval", "user", "kind", "step"],
                condition=Q(comment__isnull=True),
                name="notification_once_per_person",
                violation_error_message="A person is told once of one thing about a request.",
            ),
            models.UniqueConstraint(
                fields=["comment", "user"],
                name="notification_once_per_comment",
                violation_error_message="A person is told once of a comment.",
            ),
            models.CheckConstraint(
                condition=Q(kind="mentioned", comment__isnull=False, user__isnull=False)
                | ~Q(kind="mentioned") & Q(comment__isnull=True),
                name="notification_mentions_by_comment",
                violation_error_message="A mention is one person's, in one comment.",
            ),
            models.CheckConstraint(
                condition=Q(channel__isnull=False, user__isnull=True) | Q(channel__isnull=True, user__isnull=False),
                name="notification_is_for_somebody",
                violation_error_message="A notification goes over one channel or to one person.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.approval} over {self.channel}" if self.channel else f"{self.approval} to {self.user}"
