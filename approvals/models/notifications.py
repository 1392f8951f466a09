"""How people are told that something waits, and what became of that. Outcomes are written by `notify`."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from approvals.ids import uuid7
from approvals.models.approvals import Approval
from approvals.models.people import Comment


class Channel(models.Model):
    """A way to tell people that something waits for them. Links lead to the signed-in page; they never decide."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    kind = models.CharField(max_length=20)
    config = models.JSONField(
        default=dict, blank=True, help_text="What the kind needs, for example {'to': ['a@b.example']}."
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text="It is told about requests these groups may decide. Empty means every request."
    )
    personal = models.BooleanField(
        default=False,
        help_text="For individual people: each gives their name there under Settings, Notifications. No group is told.",
    )
    follows_up = models.BooleanField(
        "follow-ups",
        default=True,
        help_text="If a message cannot be changed, a second one says what became of its request.",
    )
    active = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["personal"],
                condition=Q(personal=True, active=True),
                name="channel_one_for_people",
                violation_error_message="Only one channel can be for individual people. Switch the other off first.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Notification(models.Model):
    """One sending over one channel, or to one person, and its outcome.

    It reaches a person by mail, or over the channel for individual people. One that follows another says what has
    become of its request: it changes that message, or comes after it.
    """

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
        ESCALATED = "escalated", "My group may now decide, too"
        MENTIONED = "mentioned", "I was mentioned in a comment"
        FOLLOWED = "followed", "What became of a request"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="notifications")
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.WAITING)
    channel = models.ForeignKey(Channel, null=True, blank=True, on_delete=models.PROTECT, related_name="notifications")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="notifications",
        help_text="The person told, by mail or over the channel, as their own settings say.",
    )  # fmt: skip
    step = models.PositiveSmallIntegerField(
        default=0, help_text="The escalation step it belongs to. 0: it belongs to none."
    )
    comment = models.ForeignKey(
        Comment, null=True, blank=True, on_delete=models.PROTECT, related_name="notifications",
        help_text="The comment that mentions them, if one does.",
    )  # fmt: skip
    follows = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="follow_ups",
        help_text="The message it changes, or comes after.",
    )  # fmt: skip
    outcome = models.CharField(
        max_length=12,
        choices=Approval.State,
        blank=True,
        help_text="What became of the request, if the message tells that.",
    )
    version = models.PositiveIntegerField(default=0, help_text="The version of the request that had this outcome.")
    receipt = models.CharField(
        max_length=200, blank=True, help_text="The name by which the receiving service knows the message."
    )
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    sending_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then an attempt may be under way, and no other begins."
    )
    error = models.TextField(blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["state", "created_at"], name="notification_queue")]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "channel", "step"],
                condition=Q(user__isnull=True, follows__isnull=True),
                name="notification_once_per_channel",
                violation_error_message="A channel is told about a request once, and once about each step.",
            ),
            models.UniqueConstraint(
                fields=["approval", "user", "kind", "step"],
                condition=Q(comment__isnull=True, channel__isnull=True, follows__isnull=True),
                name="notification_once_per_person",
                violation_error_message="A person is mailed about one thing in a request only once.",
            ),
            models.UniqueConstraint(
                fields=["approval", "user", "channel", "kind", "step"],
                condition=Q(comment__isnull=True, follows__isnull=True),
                name="notification_once_per_chat",
                violation_error_message="A person is told about one thing in a request only once over a channel.",
            ),
            models.UniqueConstraint(
                fields=["comment", "user"],
                condition=Q(channel__isnull=True),
                name="notification_once_per_comment",
                violation_error_message="A person is mailed about a comment only once.",
            ),
            models.UniqueConstraint(
                fields=["comment", "user", "channel"],
                name="notification_once_per_comment_chat",
                violation_error_message="A person is told about a comment only once over a channel.",
            ),
            models.UniqueConstraint(
                fields=["follows", "version"],
                name="notification_once_per_outcome",
                violation_error_message="A message is followed only once for each outcome of its request.",
            ),
            models.CheckConstraint(
                condition=Q(kind="followed", follows__isnull=False) & ~Q(outcome="")
                | ~Q(kind="followed") & Q(follows__isnull=True, outcome=""),
                name="notification_follow_up_has_outcome",
                violation_error_message="A message that follows another must say what became of the request.",
            ),
            models.CheckConstraint(
                condition=Q(kind="mentioned", comment__isnull=False, user__isnull=False)
                | ~Q(kind="mentioned") & Q(comment__isnull=True),
                name="notification_mentions_by_comment",
                violation_error_message="A mention must name one person, in one comment.",
            ),
            models.CheckConstraint(
                condition=Q(channel__isnull=False) | Q(user__isnull=False),
                name="notification_is_for_somebody",
                violation_error_message="A notification must have a channel, a person, or both.",
            ),
        ]

    def __str__(self) -> str:
        over = f" over {self.channel}" if self.channel else ""
        to = f" to {self.user}" if self.user else ""
        return f"{self.approval}{to}{over}"


class Roundup(models.Model):
    """One mail to a person about everything that has waited since the last one. Written by `roundups`."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="roundup")
    period = models.DateTimeField(null=True, blank=True, help_text="When the last one was due.")
    sending_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then a worker is sending it, and no other begins."
    )

    def __str__(self) -> str:
        return f"Roundup of {self.user}"
