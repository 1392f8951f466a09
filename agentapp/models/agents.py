"""Agents, their routes, and the tokens programs use. Written by `configuration` and `auth`."""

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from agentapp.models.tools import Tool
from approvals import clock
from approvals.ids import uuid7


class Agent(models.Model):
    class OnLimit(models.TextChoices):
        FINAL_ANSWER = "final_answer", "Ask for a last answer without tools, marked partial"
        STOP = "stop", "Stop without an answer"

    class OnBudget(models.TextChoices):
        ASK = "ask", "Wait for a person to allow more"
        STOP = "stop", "Stop the run"

    class OnCallLimit(models.TextChoices):
        REFUSE = "refuse", "Refuse the calls beyond it; the others run"
        STOP = "stop", "Run no call of that reply, and stop the run"
        FAIL = "fail", "Run no call of that reply, and end the run as failed"

    class OnReject(models.TextChoices):
        CONTINUE = "continue", "Tell the model and go on"
        STOP = "stop", "Stop the run"

    class OnNewMessage(models.TextChoices):
        QUEUE = "queue", "Answer it after the current run"
        CANCEL = "cancel", "Cancel the current run, unless it is in the middle of an act"

    class HookContract(models.TextChoices):
        OFF = "off", "Off: a hook may change anything"
        DIAGNOSTICS = "diagnostics", "Diagnostics: forbidden changes are noted"
        STRICT = "strict", "Strict: a forbidden change ends the run"

    class Compiler(models.TextChoices):
        CURRENT_RUN = "current_run", "The conversation, and this run step by step"
        FULL_CONVERSATION = "full_conversation", "The conversation with every run in it step by step"
        SECTIONS = "sections", "Chosen sections: summary, conversation, run"
        LAST_OBSERVATIONS = "last_observations", "The last results in full, earlier ones as one line"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    description = models.TextField(blank=True, help_text="What it is for, in words for people who start runs.")
    instructions = models.TextField(blank=True, help_text="What the model is told first in every run.")
    driver = models.CharField(max_length=40, default="tool_calling")
    model = models.CharField(
        max_length=120,
        blank=True,
        help_text="provider:model, for example anthropic:claude-sonnet-5. Keys: environment.",
    )
    model_settings = models.JSONField(
        default=dict, blank=True, help_text='For example {"temperature": 0, "max_tokens": 800}.'
    )
    driver_settings = models.JSONField(
        default=dict,
        blank=True,
        help_text='For react, for example {"max_retries": 2}; for guided, for example {"max_iterations": 3}.',
    )
    tools = models.ManyToManyField(Tool, blank=True, related_name="agents")
    parallel_tool_calls = models.BooleanField(default=True, help_text="The model may ask for several calls at once.")
    tool_choice = models.CharField(
        max_length=120, default="auto", help_text="auto, required, none, or the name of the tool to call."
    )
    reset_tool_choice = models.BooleanField(
        default=True,
        help_text="After the first step with tools the choice is auto again; otherwise the run may never end.",
    )
    message_compiler = models.CharField(
        max_length=20,
        choices=Compiler,
        default=Compiler.CURRENT_RUN,
        help_text="How much of the past the model is sent.",
    )
    compiler_settings = models.JSONField(
        default=dict, blank=True, help_text='For example {"observations": 5} or {"sections": ["summary", "run"]}.'
    )
    on_new_message = models.CharField(
        max_length=10,
        choices=OnNewMessage,
        default=OnNewMessage.QUEUE,
        help_text="What a new message in the same conversation does to the current run.",
    )
    subagents = models.JSONField(
        default=list, blank=True, help_text='Agents it may ask for help, by name; ["*"] for all agents.'
    )
    denied_subagents = models.JSONField(default=list, blank=True, help_text="Agents it may never ask, by name.")
    max_depth = models.PositiveSmallIntegerField(
        default=3, help_text="How many levels deep agents may ask agents, counted from the run a person started."
    )
    hooks = models.JSONField(
        default=list,
        blank=True,
        help_text='Code at points of the loop, for example ["shop.hooks.keep_to_office_hours"].',
    )
    hook_contract = models.CharField(max_length=12, choices=HookContract, default=HookContract.DIAGNOSTICS)

    max_iterations = models.PositiveIntegerField(
        default=5, help_text="Rounds of calls and results before the model must answer with what it has."
    )
    on_limit = models.CharField(max_length=14, choices=OnLimit, default=OnLimit.FINAL_ANSWER)
    max_steps = models.PositiveIntegerField(
        default=20, help_text="How many decisions the model may make before the run is stopped."
    )
    max_tokens = models.PositiveIntegerField(
        null=True, blank=True, default=32_768, help_text="Tokens in and out over the whole run. Empty: no limit."
    )
    max_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        default=300,
        help_text="Seconds of work; waiting for people does not count. Empty: no limit.",
    )
    max_calls = models.PositiveIntegerField(null=True, blank=True, help_text="Tool calls in one run. Empty: no limit.")
    on_call_limit = models.CharField(
        max_length=6,
        choices=OnCallLimit,
        default=OnCallLimit.REFUSE,
        help_text="What happens when a call would pass this limit or its tool's limit.",
    )
    finish_reasons = models.JSONField(
        default=list, blank=True, help_text='Finish reasons of the model that stop the run, for example ["length"].'
    )
    max_cost = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="The most one run may cost, in US dollars. Empty: no limit.",
    )
    max_daily_cost = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="The most all its runs may cost in a day (UTC), in US dollars.",
    )
    on_budget = models.CharField(
        max_length=6,
        choices=OnBudget,
        default=OnBudget.STOP,
        help_text="What happens when a cost limit would be passed.",
    )
    on_reject = models.CharField(max_length=10, choices=OnReject, default=OnReject.CONTINUE)
    raise_on_tool_failure = models.BooleanField(
        default=False, help_text="A failed call ends the run as failed, at once."
    )
    fail_run_on_tool_error = models.BooleanField(
        default=False, help_text="A run in which any call failed ends as failed, even if the model answered."
    )
    stop_on_tool_block = models.BooleanField(default=False, help_text="A call that a hook blocks ends the run.")
    streams = models.BooleanField(
        default=True, help_text="People who watch a run see its answers while the model writes them."
    )
    input_schema = models.JSONField(
        default=dict, blank=True, help_text="JSON Schema of a run's input, for a form. Empty: one text field."
    )
    enabled = models.BooleanField(
        default=True,
        help_text="A disabled agent starts no runs. Runs that have started go on.",
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Route(models.Model):
    """A named kind of task. It discloses only part of the agent's tools."""

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
    issued_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        editable=False, help_text="Who made it, if somebody else did: they decide nothing about the runs it starts.",
    )  # fmt: skip
    scopes = models.JSONField(default=list)
    starts_runs = models.BooleanField(default=False, editable=False)
    decides = models.BooleanField(default=False, editable=False)
    prefix = models.CharField(max_length=12, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=clock.now, editable=False)
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
