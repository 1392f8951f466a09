"""Conversations and their messages. Written by `conversations`."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentapp.models.agents import Agent, ApiToken
from approvals.ids import uuid7
from approvals.models.noted import Noted
from approvals.sealed import ERASED


class Conversation(models.Model):
    """A dialogue with one customer, over any number of runs."""

    class Mode(models.TextChoices):
        AUTO = "auto", "The agent answers"
        MANUAL = "manual", "A person has taken over"

    class Wants(models.TextChoices):
        AGENT = "agent", "The agent's work showed that a person is needed"
        CUSTOMER = "customer", "The customer asked for a person"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="conversations")
    key = models.CharField(max_length=200, help_text="The name it has outside, for example a ticket number.")
    customer = models.CharField(max_length=200, blank=True)
    mode = models.CharField(max_length=10, choices=Mode, default=Mode.AUTO)
    person_wanted = models.CharField(
        max_length=10, choices=Wants, blank=True, help_text="Why it is in manual mode although nobody has taken over."
    )
    person_wanted_at = models.DateTimeField(null=True, blank=True)
    has_channel = models.BooleanField(
        default=False, help_text="A program that talks to the customer opened it and can ask them."
    )
    version = models.PositiveIntegerField(
        default=0, help_text="Grows with every message. A writer says which version they saw."
    )
    summary = models.TextField(blank=True, help_text="A summary of the messages up to `summary_until`, for a model.")
    summary_until = models.PositiveIntegerField(
        default=0, help_text="The place of the last message that the summary covers."
    )
    summarised_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="Who wrote the summary: they decide nothing about runs that are sent it.",
    )  # fmt: skip
    summary_token = models.ForeignKey(
        ApiToken, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        help_text="The token it was written with: the maker of the token decides nothing about those runs either.",
    )  # fmt: skip
    forked_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="forks")
    created_at = models.DateTimeField(auto_now_add=True)
    erased_at = models.DateTimeField(null=True, blank=True, help_text="When its words were erased.")
    erased_by = models.CharField(max_length=200, blank=True, help_text="Who erased them, or that retention did.")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "key"], name="conversation_once_per_key"),
            models.CheckConstraint(
                condition=Q(person_wanted="", person_wanted_at__isnull=True)
                | ~Q(person_wanted="") & Q(person_wanted_at__isnull=False, mode="manual"),
                name="conversation_wanting_is_manual",
                violation_error_message="A conversation that waits for a person must be manual and say since when.",
            ),
        ]

    def __str__(self) -> str:
        return self.key


class CustomerLink(models.Model):
    """Lets one customer into one conversation without an account. Written by `customer_links`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.PROTECT, related_name="links")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    token = models.ForeignKey(
        ApiToken, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        help_text="The token that asked for it. Runs that begin through the link belong to that token, too.",
    )  # fmt: skip
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.conversation_id} until {self.expires_at}"


class Message(Noted, models.Model):
    class Role(models.TextChoices):
        USER = "user", "Customer"
        ASSISTANT = "assistant", "Agent"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="messages")
    run = models.ForeignKey("agentapp.Run", null=True, on_delete=models.PROTECT, related_name="messages")
    seq = models.PositiveIntegerField()
    role = models.CharField(max_length=10, choices=Role)
    content = models.TextField()
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="The person who wrote it in the agent's place.",
    )  # fmt: skip
    writer = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        help_text="Who sent it while a person had taken over, even in the customer's name. They decide nothing about "
        "what comes of it.",
    )  # fmt: skip
    token = models.ForeignKey(
        "agentapp.ApiToken", null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        help_text="The token it was sent with: the maker of the token decides nothing about that either.",
    )  # fmt: skip
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["conversation", "seq"]
        indexes = [
            # If messages are kept for a limited time, nearly all the old ones are erased: leave them out.
            models.Index(fields=["created_at"], condition=~Q(content=ERASED), name="message_kept"),
        ]
        constraints = [models.UniqueConstraint(fields=["conversation", "seq"], name="message_one_per_place")]

    def __str__(self) -> str:
        return f"{self.role} {self.seq}"
