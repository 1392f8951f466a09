"""Agents, their routes, and the tokens programs use. Written by `configuration` and `auth`."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentapp.models.tools import Tool
from approvals.ids import uuid7


class Agent(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    description = models.TextField(blank=True, help_text="What it is for, as people who start runs read it.")
    instructions = models.TextField(blank=True, help_text="What the model is told first, in every run.")
    driver = models.CharField(max_length=40, default="tool_calling")
    model = models.CharField(
        max_length=120, blank=True, help_text="provider:model, as in anthropic:claude-sonnet-5. Keys: environment."
    )
    model_settings = models.JSONField(
        default=dict, blank=True, help_text='As in {"temperature": 0, "max_tokens": 800}.'
    )
    tools = models.ManyToManyField(Tool, blank=True, related_name="agents")
    parallel_tool_calls = models.BooleanField(default=True, help_text="The model may ask for several calls at once.")
    max_steps = models.PositiveIntegerField(default=20, help_text="Decisions of the model before the run is stopped.")
    max_tokens = models.PositiveIntegerField(null=True, blank=True, help_text="Tokens in and out, over the whole run.")
    max_cost = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True, help_text="In US dollars.")
    enabled = models.BooleanField(
        default=True,
        help_text="A disabled agent starts no runs. Those under way go on.",
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Route(models.Model):
    """A named kind of task. It discloses a part of the agent's tools."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="routes")
    name = models.SlugField(max_length=80)
    description = models.TextField(blank=True)
    tools = models.ManyToManyField(Tool, blank=True, related_name="routes")

    class Meta:
        ordering = ["agent", "name"]
        constraints = [models.UniqueConstraint(fields=["agent", "name"], name="route_once_per_agent")]

    def __str__(self) -> str:
        return f"{self.agent}/{self.name}"


class ApiToken(models.Model):
    """A program's key to the API, acting as one person within its scopes. Only its digest is stored."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=80)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="api_tokens")
    scopes = models.JSONField(default=list)
    starts_runs = models.BooleanField(default=False, editable=False)
    decides = models.BooleanField(default=False, editable=False)
    prefix = models.CharField(max_length=12, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "API token"
        constraints = [
            models.CheckConstraint(
                condition=~Q(starts_runs=True, decides=True),
                name="token_starts_or_decides",
                violation_error_message="A token that starts runs cannot decide.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
