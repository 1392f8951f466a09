"""Runs, their steps and their tool executions. Written by `runs`."""

import json
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentapp.models.agents import Agent, ApiToken
from agentapp.models.conversations import Conversation
from agentapp.models.tools import Tool
from approvals.ids import uuid7
from approvals.models import Approval, EffectClass


class Run(models.Model):
    """One execution of an agent for one input. The row is the run: a worker only moves it on."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        WAITING = "waiting", "Waiting"
        PAUSED = "paused", "Paused"
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        STOPPED = "stopped", "Stopped"
        CANCELLED = "cancelled", "Cancelled"

    class WaitingFor(models.TextChoices):
        APPROVAL = "approval", "approval"
        OUTCOME = "outcome", "an outcome"
        BUDGET = "budget", "more budget"
        SUBAGENT = "subagent", "another agent"
        SWITCH = "switch", "a kill switch"

    FINAL = (State.SUCCEEDED, State.FAILED, State.STOPPED, State.CANCELLED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="runs")
    agent_snapshot = models.JSONField(help_text="The agent's configuration when the run was started.")
    route = models.CharField(max_length=80, blank=True)
    conversation = models.ForeignKey(Conversation, null=True, blank=True, on_delete=models.PROTECT, related_name="runs")
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="children",
        help_text="The run whose agent asked this one for help.",
    )  # fmt: skip
    retry_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="retries",
        help_text="The run that this one tries again.",
    )  # fmt: skip
    steps_kept = models.PositiveIntegerField(
        default=0, help_text="How many of that run's steps count as done: its calls are told of, never run again."
    )
    depth = models.PositiveSmallIntegerField(default=0, help_text="0 for a run that was started from outside.")
    customer = models.CharField(max_length=200, blank=True)
    title = models.CharField(max_length=200)
    input = models.TextField()
    metadata = models.JSONField(default=dict)
    script = models.JSONField(null=True, blank=True, help_text="Model replies to replay instead of asking a model.")
    starter = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="runs")
    token = models.ForeignKey(ApiToken, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    request_key = models.CharField(max_length=255, blank=True, help_text="The Idempotency-Key it was started with.")
    request_digest = models.CharField(max_length=64, blank=True)

    state = models.CharField(max_length=12, choices=State, default=State.QUEUED)
    waiting_for = models.CharField(max_length=12, choices=WaitingFor, blank=True)
    stop_reason = models.CharField(max_length=40, blank=True)
    stop_message = models.TextField(blank=True)
    stop_source = models.CharField(max_length=120, blank=True, help_text="What ended it: a limit, a hook, a person.")
    answer = models.TextField(blank=True)
    answer_is_partial = models.BooleanField(default=False, help_text="A limit was reached before the work was done.")
    had_tool_errors = models.BooleanField(default=False)
    wake_at = models.DateTimeField(null=True, blank=True, help_text="When a waiting or queued run is due.")
    lease_token = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    pause_requested_at = models.DateTimeField(null=True, blank=True)
    taken_over_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="The person who speaks in the agent's place until they hand back.",
    )  # fmt: skip
    taken_over_at = models.DateTimeField(null=True, blank=True)
    takers = models.JSONField(
        default=list,
        help_text="Keys of everybody who ever took it over, or a run above it, or started the run it tries again: "
        "none decides about it.",
    )
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When the worker that holds it took it.")
    worked_seconds = models.FloatField(default=0, help_text="Of workers that have held it; waiting does not count.")
    model_failures = models.PositiveSmallIntegerField(default=0, help_text="In a row, for the step being decided.")

    step_count = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=8, default=Decimal(0))
    budget_extra = models.DecimalField(
        max_digits=12, decimal_places=6, default=Decimal(0), help_text="What people have allowed beyond its limits."
    )
    cost_is_partial = models.BooleanField(default=False, help_text="The price of some model reply is unknown.")

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["-created_at"]
        permissions = [
            ("start_run", "Can start runs"),
            ("cancel_run", "Can cancel runs"),
            ("pause_run", "Can pause and resume runs"),
            ("raise_budget", "Can let a run cost more than its limits"),
            ("resolve_outcome", "Can say what became of a call whose outcome is unknown"),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="run_latest"),
            models.Index(fields=["-updated_at", "-id"], name="run_last_active"),
            models.Index(fields=["state", "-created_at", "-id"], name="run_by_state"),
            models.Index(fields=["starter", "-created_at", "-id"], name="run_by_starter"),
            models.Index(fields=["state", "wake_at"], name="run_due"),
            models.Index(fields=["conversation", "created_at"], name="run_of_conversation"),
            models.Index(fields=["state", "lease_until"], name="run_leases"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["starter", "request_key"],
                condition=~Q(request_key=""),
                name="run_once_per_request_key",
                violation_error_message="A person's Idempotency-Key starts one run.",
            ),
            models.CheckConstraint(
                condition=~Q(state="running") | Q(lease_token__isnull=False, lease_until__isnull=False),
                name="run_running_is_leased",
                violation_error_message="A running run is held by a lease.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["succeeded", "failed", "stopped", "cancelled"])
                | Q(finished_at__isnull=False, lease_token__isnull=True) & ~Q(stop_reason=""),
                name="run_finished_says_why",
                violation_error_message="A finished run says when and why it ended, and is held by nobody.",
            ),
            models.CheckConstraint(
                condition=~Q(state="waiting") | ~Q(waiting_for=""),
                name="run_waiting_says_for_what",
                violation_error_message="A waiting run says what it waits for.",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def reference(self) -> str:
        return f"run_{self.id.hex[-6:]}"

    @property
    def is_final(self) -> bool:
        return self.state in self.FINAL

    @property
    def is_told_to_stop(self) -> bool:
        """Whether a person wants it cancelled or put aside before its next model or tool call."""
        return self.cancel_requested_at is not None or self.pause_requested_at is not None


class Step(models.Model):
    """One decision of the model and the calls it asked for."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="steps")
    number = models.PositiveIntegerField()
    text = models.TextField(blank=True)
    reasoning = models.TextField(blank=True, help_text="What the model thought, where it says so apart from its text.")
    error = models.CharField(max_length=40, blank=True, help_text="Why no decision came of it.")
    model = models.CharField(max_length=120, blank=True)
    disclosed_tools = models.JSONField(default=list)
    provider_parts = models.JSONField(
        null=True, blank=True, help_text="What the provider wants back unchanged, such as signed reasoning."
    )
    finish_reason = models.CharField(max_length=40, blank=True)
    input_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=8, null=True)
    first_token_seconds = models.FloatField(
        null=True, help_text="How long the first of the reply took to come, where it came piece by piece."
    )
    asked = models.JSONField(
        default=list, help_text="What models were asked for in it, where that is more than one reply, and what it took."
    )
    more_looks = models.PositiveSmallIntegerField(
        default=0, help_text="How often guidelines were looked at again in it because a planner wanted to."
    )
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()

    class Meta:
        ordering = ["run", "number"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "number"],
                name="step_one_per_number",
                violation_error_message="A run has one step of each number.",
            )
        ]

    def __str__(self) -> str:
        return f"step {self.number}"


class Draft(models.Model):
    """What a model has said so far in a step that is not stored yet. For people who watch; nothing rests on it.

    Written by `drafts`.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="draft")
    step = models.PositiveIntegerField()
    text = models.TextField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.run_id} step {self.step}"


class ToolExecution(models.Model):
    """One proposed call and everything that became of it. It is a row before it is an act."""

    class State(models.TextChoices):
        PROPOSED = "proposed", "Proposed"
        WAITING = "waiting", "Waiting for approval"
        READY = "ready", "Ready"
        EXECUTING = "executing", "Running"
        FINISHED = "finished", "Finished"
        OUTCOME_UNKNOWN = "outcome_unknown", "Outcome unknown"
        CANCELLED = "cancelled", "Cancelled"

    class ResultStatus(models.TextChoices):
        OK = "ok", "OK"
        REFUSED = "refused", "Refused"
        RETRYABLE_ERROR = "retryable_error", "Error, may be tried again"
        FATAL_ERROR = "fatal_error", "Error"

    ANSWERED = (State.FINISHED, State.CANCELLED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="executions")
    step = models.ForeignKey(Step, on_delete=models.PROTECT, related_name="executions")
    index = models.PositiveSmallIntegerField()
    call_id = models.CharField(max_length=200, help_text="The id the model gave the call.")
    name = models.CharField(max_length=200, help_text="The name as proposed, whether or not there is such a tool.")
    tool = models.ForeignKey(Tool, null=True, on_delete=models.PROTECT, related_name="executions")
    tool_version = models.CharField(max_length=64, blank=True)
    effect_class = models.CharField(max_length=20, choices=EffectClass, default=EffectClass.IRREVERSIBLE)
    consequential = models.BooleanField(default=True)
    arguments_text = models.TextField(help_text="Exactly as proposed, or as a hook made it.")
    proposed_name = models.CharField(max_length=200, blank=True, help_text="The model's name, where a hook changed it.")
    proposed_text = models.TextField(blank=True, help_text="The model's arguments, where a hook changed the call.")
    arguments_digest = models.CharField(max_length=64, blank=True)
    executed_text = models.TextField(blank=True, help_text="The canonical arguments that ran, when it ran.")

    ruling = models.JSONField(default=dict)
    approval = models.OneToOneField(Approval, null=True, on_delete=models.PROTECT, related_name="execution")
    allowed_by = models.CharField(max_length=120, blank=True, help_text="What let it run without a person.")
    idempotency_key = models.CharField(max_length=64, null=True, unique=True)

    state = models.CharField(max_length=16, choices=State, default=State.PROPOSED)
    result_status = models.CharField(max_length=20, choices=ResultStatus, blank=True)
    reason = models.CharField(max_length=40, blank=True)
    message = models.TextField(blank=True, help_text="What the model is told beside the result.")
    result_text = models.TextField(blank=True, help_text="The result as JSON text.")
    metadata = models.JSONField(default=dict, help_text="For people only; never shown to the model.")
    artifact_text = models.TextField(blank=True, help_text="For the application, as JSON; never shown to the model.")
    raw_result_text = models.TextField(blank=True, help_text="What the tool gave, where a hook changed it.")
    control = models.JSONField(default=dict, help_text="What the tool asks of the loop.")
    retry_after = models.FloatField(null=True, help_text="Seconds, when the tool says when to try again.")
    was_blocked = models.BooleanField(default=False, help_text="A hook blocked it.")
    cost = models.DecimalField(max_digits=12, decimal_places=6, default=Decimal(0))
    trust = models.CharField(max_length=20, choices=Tool.Trust, default=Tool.Trust.UNTRUSTED)
    evidence_ref = models.CharField(max_length=200, blank=True)
    evaluation = models.ForeignKey(
        "ToolEvaluation", null=True, on_delete=models.PROTECT, related_name="executions",
        help_text="Why it was proposed, where guidelines decide.",
    )  # fmt: skip
    variable = models.CharField(max_length=80, blank=True, help_text="The context variable whose value it read.")
    subrun = models.OneToOneField(
        Run, null=True, on_delete=models.PROTECT, related_name="asked_by", help_text="The run that answers this call."
    )
    replay_of = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="replays")
    attempts = models.PositiveSmallIntegerField(default=0)
    times_asked = models.PositiveSmallIntegerField(default=0, help_text="How often people were asked about it.")
    outcome_note = models.TextField(blank=True)

    proposed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["step", "index"]
        indexes = [
            models.Index(fields=["run", "state"], name="execution_open"),
            models.Index(fields=["state", "proposed_at"], name="execution_unknown"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["step", "index"],
                name="execution_one_per_place",
                violation_error_message="A step has one call at each place.",
            ),
            models.CheckConstraint(
                condition=Q(consequential=False)
                | Q(started_at__isnull=True)
                | Q(approval__isnull=False)
                | ~Q(allowed_by=""),
                name="execution_is_authorised",
                violation_error_message="A consequential call starts only under an approval or an exact rule.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["executing", "outcome_unknown"]) | Q(started_at__isnull=False),
                name="execution_started_has_time",
                violation_error_message="A call that runs says when it started.",
            ),
            models.CheckConstraint(
                condition=Q(consequential=False) | Q(started_at__isnull=True) | Q(idempotency_key__isnull=False),
                name="execution_consequential_has_key",
                violation_error_message="A consequential call starts only with an idempotency key.",
            ),
            models.CheckConstraint(
                condition=~Q(state="finished") | ~Q(result_status="") & Q(finished_at__isnull=False),
                name="execution_finished_has_result",
                violation_error_message="A finished call has a result and a time.",
            ),
            models.CheckConstraint(
                condition=~Q(state="waiting") | Q(approval__isnull=False),
                name="execution_waiting_has_approval",
                violation_error_message="A waiting call waits for an approval.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_answered(self) -> bool:
        return self.state in self.ANSWERED

    @property
    def took_effect(self) -> bool:
        """Whether it did what it was asked for: what the tool said counts, whatever hooks made of that."""
        said = self.control.get("took_effect")
        if said is not None:
            return bool(said)
        return self.result_status == self.ResultStatus.OK or self.reason == "tool_result_invalid"

    @property
    def was_left_unknown(self) -> bool:
        """Whether nobody knew what it did, it was to be tried again, and then was not: people did not want that."""
        tried_again = self.started_at is not None
        return self.is_answered and self.attempts > 0 and not tried_again and not self.took_effect

    @property
    def args(self) -> Any:
        """The arguments that ran; for a call that did not run, as proposed. None: they cannot be read."""
        try:
            return json.loads(self.executed_text or self.arguments_text or "{}")
        except (ValueError, RecursionError):
            return None

    @property
    def has_error(self) -> bool:
        return self.is_answered and self.result_status != self.ResultStatus.OK

    @property
    def error_message(self) -> str:
        """Why there is no value; empty for a call that went well."""
        return (self.message or self.reason) if self.has_error else ""

    @property
    def value(self) -> Any:
        """What the tool gave. None for a call that failed, or has no result yet."""
        ok = self.result_status == self.ResultStatus.OK and self.result_text
        return json.loads(self.result_text) if ok else None
