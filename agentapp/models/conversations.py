"""Conversations and their messages. Written by `conversations`."""

from django.conf import settings
from django.db import models

from agentapp.models.agents import Agent
from approvals.ids import uuid7


class Conversation(models.Model):
    """A dialogue with one customer, over any number of runs."""

    class Mode(models.TextChoices):
        AUTO = "auto", "The agent answers"
        MANUAL = "manual", "A person has taken over"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="conversations")
    key = models.CharField(max_length=200, help_text="The name the outside gives it, as in a ticket number.")
    customer = models.CharField(max_length=200, blank=True)
    mode = models.CharField(max_length=10, choices=Mode, default=Mode.AUTO)
    version = models.PositiveIntegerField(
        default=0, help_text="Grows with every message: who writes says which it saw."
    )
    summary = models.TextField(blank=True, help_text="Of the messages up to `summary_until`, for a model's eyes.")
    summary_until = models.PositiveIntegerField(default=0, help_text="The place of the last message in the summary.")
    forked_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="forks")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["agent", "key"], name="conversation_once_per_key")]

    def __str__(self) -> str:
        return self.key


class Message(models.Model):
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
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["conversation", "seq"]
        constraints = [models.UniqueConstraint(fields=["conversation", "seq"], name="message_one_per_place")]

    def __str__(self) -> str:
        return f"{self.role} {self.seq}"
