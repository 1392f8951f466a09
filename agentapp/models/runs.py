"""Runs, their steps, and what models used outside a step."""

from decimal import Decimal

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentapp.models.agents import Agent, ApiToken
from agentapp.models.conversations import Conversation
from agentapp.trace_context import new_trace_id
from approvals.ids import uuid7
from approvals.models.noted import Noted
from approvals.sealed import new_salt

MOST_WORKERS_LOST = 6
"""With so many lost in a row for one step, a run is paused: it is probably what ends them."""


class Run(Noted, models.Model):
    """One execution of an agent for one input. The row is the run: a worker only moves it forward."""

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

    class Branch(models.TextChoices):
        FORK = "fork", "Fork"
        REPLAY = "replay", "Replay"

    column_of_run = "id"
    FINAL = (State.SUCCEEDED, State.FAILED, State.STOPPED, State.CANCELLED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="runs")
    agent_snapshot = models.JSONField(help_text="The agent's configuration when the run was started.")
    route = models.CharField(max_length=80, blank=True)
    conversation = models.ForeignKey(
        Conversation, null=True, blank=True, on_delete=models.PROTECT, related_name="runs", db_index=False
    )
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="children", db_index=False,
        help_text="The run whose agent asked this one for help.",
    )  # fmt: skip
    retry_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="retries", db_index=False,
        help_text="The run that this one tries again.",
    )  # fmt: skip
    undoes = models.ForeignKey(
        "ToolExecution", null=True, blank=True, on_delete=models.PROTECT, related_name="undone_in", db_index=False,
        help_text="The call that this run takes back. It makes one call to do so, and asks people about it.",
    )  # fmt: skip
    took_back_nothing = models.BooleanField(
        default=False, db_default=False,
        help_text="It ended without acting on the call it was to take back, and another run was begun for that.",
    )  # fmt: skip
    is_trial = models.BooleanField(default=False, help_text="Its starter filled in its one call on the page of a tool.")
    mocks = models.JSONField(
        null=True, blank=True,
        help_text="What answers its calls in place of tools, which it never reaches. Empty: a real run.",
    )  # fmt: skip
    steps_kept = models.PositiveIntegerField(
        default=0,
        help_text="How many of that run's steps count as done: its calls are told about, never run again.",
    )
    branch = models.CharField(
        max_length=8, choices=Branch, blank=True,
        help_text="How it relates to the run it comes from: that run with something changed, or that run once more as "
        "recorded. Empty: it tries that run again, or comes from none.",
    )  # fmt: skip
    calls_kept = models.PositiveSmallIntegerField(
        default=0, help_text="How many of the first calls of the step after those also count as done."
    )
    opening = models.JSONField(
        null=True, blank=True,
        help_text="The call it begins with instead of its model's first decision: {text, id, name, arguments, typed}.",
    )  # fmt: skip
    changed = models.JSONField(default=list, help_text="What its starter changed in it, by name.")
    asked_in = models.ForeignKey(
        Conversation, null=True, blank=True, on_delete=models.PROTECT, related_name="branches", db_index=False,
        help_text="The conversation in which its origin was asked. It is told about it, and says nothing there.",
    )  # fmt: skip
    depth = models.PositiveSmallIntegerField(default=0, help_text="0 for a run that was started from outside.")
    customer = models.CharField(max_length=200, blank=True)
    title = models.CharField(max_length=200)
    input = models.TextField()
    metadata = models.JSONField(default=dict)
    script = models.JSONField(null=True, blank=True, help_text="Model replies to replay instead of asking a model.")
    starter = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="runs", db_index=False
    )
    token = models.ForeignKey(
        ApiToken, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    request_key = models.CharField(max_length=255, blank=True, help_text="The Idempotency-Key it was started with.")
    request_digest = models.CharField(max_length=64, blank=True)
    trace_id = models.CharField(
        max_length=32, blank=True, default=new_trace_id, help_text="The W3C trace of the run and of those it asks."
    )
    traceparent = models.CharField(
        max_length=55, blank=True, help_text="The caller's place in their own trace, which ours links to."
    )

    state = models.CharField(max_length=12, choices=State, default=State.QUEUED)
    waiting_for = models.CharField(max_length=12, choices=WaitingFor, blank=True)
    stop_reason = models.CharField(max_length=40, blank=True)
    stop_message = models.TextField(blank=True)
    salt = models.CharField(
        max_length=32, blank=True, default=new_salt, editable=False, help_text="For the ledger's digests of its words."
    )
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
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        help_text="The person who speaks in the agent's place until they hand back.",
    )  # fmt: skip
    taken_over_at = models.DateTimeField(null=True, blank=True)
    # Named after the first of them, who took a run over. A request has a copy, `Approval.excluded`.
    takers = models.JSONField(
        default=list,
        help_text="Keys of people who may not decide about it: everybody who ever took over it or a run above it, "
        "started the run it tries again or one whose call it takes back, made for another the token it was started "
        "with, or had a part in what was said before in its conversation.",
    )
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When the worker that holds it took it.")
    worked_seconds = models.FloatField(default=0, help_text="By the workers that have held it; waiting does not count.")
    workers_lost = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="How many workers in a row vanished while they had it, for the same step."
    )
    model_failures = models.PositiveSmallIntegerField(
        default=0, help_text="Failures in a row, for the step being decided."
    )

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
    erased_at = models.DateTimeField(null=True, blank=True, help_text="When its words were erased.")
    erased_by = models.CharField(max_length=200, blank=True, help_text="Who erased them, or that retention did.")

    class Meta:
        ordering = ["-created_at"]
        permissions = [
            ("erase_content", "Can erase what runs and conversations hold of people"),
            ("start_run", "Can start runs"),
            ("run_eval", "Can run evals, with tools that are mocked"),
            ("cancel_run", "Can cancel runs"),
            ("pause_run", "Can pause and resume runs"),
            ("raise_budget", "Can let a run cost more than its limits"),
            ("undo_call", "Can ask for a call to be undone"),
            ("resolve_outcome", "Can say what became of a call whose outcome is unknown"),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="run_latest"),
            models.Index(fields=["-updated_at", "-id"], name="run_last_active"),
            models.Index(fields=["state", "-created_at", "-id"], name="run_by_state"),
            models.Index(fields=["starter", "-created_at", "-id"], name="run_by_starter"),
            models.Index(fields=["state", "wake_at"], name="run_due"),
            models.Index(fields=["cost"], name="run_by_cost"),
            models.Index(fields=["state", "lease_until"], name="run_leases"),
            # Each change of a run rewrites its place in every index. Most have none of these, so they are left out.
            models.Index(
                fields=["conversation", "created_at"],
                condition=Q(conversation__isnull=False),
                name="run_of_conversation",
            ),
            models.Index(fields=["parent"], condition=Q(parent__isnull=False), name="run_parent"),
            models.Index(fields=["retry_of"], condition=Q(retry_of__isnull=False), name="run_retry_of"),
            models.Index(fields=["asked_in"], condition=Q(asked_in__isnull=False), name="run_asked_in"),
            models.Index(fields=["undoes"], condition=Q(undoes__isnull=False), name="run_undoes"),
            models.Index(fields=["token"], condition=Q(token__isnull=False), name="run_token"),
            models.Index(fields=["taken_over_by"], condition=Q(taken_over_by__isnull=False), name="run_taken_over_by"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["starter", "request_key"],
                condition=~Q(request_key=""),
                name="run_once_per_request_key",
                violation_error_message="A person's Idempotency-Key starts one run.",
            ),
            models.UniqueConstraint(
                fields=["undoes"],
                condition=Q(undoes__isnull=False, took_back_nothing=False),
                name="run_one_undo_of_a_call",
                violation_error_message="Only one run can take back a call, unless that run ended without acting.",
            ),
            models.CheckConstraint(
                condition=Q(took_back_nothing=False) | Q(undoes__isnull=False, finished_at__isnull=False),
                name="run_took_back_nothing_has_ended",
                violation_error_message="Only an ended run that was to take back a call can have taken back nothing.",
            ),
            models.CheckConstraint(
                condition=Q(mocks__isnull=True)
                | Q(conversation__isnull=True, undoes__isnull=True, is_trial=False)
                & (Q(retry_of__isnull=True) | ~Q(branch="")),
                name="run_mocked_stands_alone",
                violation_error_message="A mocked run cannot be in a conversation, or try another run again.",
            ),
            models.CheckConstraint(
                condition=~Q(state="running") | Q(lease_token__isnull=False, lease_until__isnull=False),
                name="run_running_is_leased",
                violation_error_message="A running run must be held by a lease.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["succeeded", "failed", "stopped", "cancelled"])
                | Q(finished_at__isnull=False, lease_token__isnull=True) & ~Q(stop_reason=""),
                name="run_finished_says_why",
                violation_error_message="A finished run must say when and why it ended, and be held by nobody.",
            ),
            models.CheckConstraint(
                condition=~Q(state="waiting") | ~Q(waiting_for=""),
                name="run_waiting_says_for_what",
                violation_error_message="A waiting run must say what it waits for.",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def reference(self) -> str:
        return f"run_{self.id.hex[-6:]}"

    @property
    def origin_reference(self) -> str:
        """The reference of the run it comes from. Empty if it comes from none."""
        return f"run_{self.retry_of_id.hex[-6:]}" if self.retry_of_id is not None else ""

    @property
    def is_final(self) -> bool:
        return self.state in self.FINAL

    @property
    def is_aside(self) -> bool:
        """Whether it is paused, or about to be."""
        return self.state == self.State.PAUSED or (self.pause_requested_at is not None and not self.is_final)

    @property
    def loses_workers(self) -> bool:
        """Whether so many workers vanished while they had it that it is probably what ends them."""
        return self.workers_lost >= MOST_WORKERS_LOST

    @property
    def is_mocked(self) -> bool:
        """Whether mocks answer its calls: nothing it does reaches a tool or people."""
        return self.mocks is not None

    @property
    def is_told_to_stop(self) -> bool:
        """Whether a person wants it cancelled or paused before its next model or tool call."""
        return self.cancel_requested_at is not None or self.pause_requested_at is not None


class Step(Noted, models.Model):
    """One decision of the model and the calls it asked for."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="steps", db_index=False)
    number = models.PositiveIntegerField()
    text = models.TextField(blank=True)
    reasoning = models.TextField(blank=True, help_text="What the model thought, if it says so apart from its text.")
    error = models.CharField(max_length=40, blank=True, help_text="Why it led to no decision.")
    model = models.CharField(max_length=120, blank=True)
    disclosed_tools = models.JSONField(default=list)
    provider_parts = models.JSONField(
        null=True, blank=True, help_text="What the provider needs back unchanged, such as signed reasoning."
    )
    finish_reason = models.CharField(max_length=40, blank=True)
    input_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=8, null=True)
    first_token_seconds = models.FloatField(
        null=True, help_text="How long the first part of a streamed reply took to arrive."
    )
    asked = models.JSONField(
        default=list, help_text="What models were asked in it, if that was more than one reply, and what it used."
    )
    more_looks = models.PositiveSmallIntegerField(
        default=0, help_text="How often a planner had guidelines looked at again in it."
    )
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()

    class Meta:
        ordering = ["run", "number"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "number"],
                name="step_one_per_number",
                violation_error_message="A run can have only one step of each number.",
            )
        ]
        indexes = [models.Index(fields=["finished_at"], name="step_finished")]

    def __str__(self) -> str:
        return f"step {self.number}"


class ModelUse(models.Model):
    """What a model used outside a step: an answer to people, a second look, a reply that no step was made from."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="model_uses")
    at = models.DateTimeField()
    input_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=8, null=True)

    class Meta:
        ordering = ["at"]
        indexes = [models.Index(fields=["at"], name="modeluse_at")]

    def __str__(self) -> str:
        return f"{self.run_id} {self.cost}"


class Draft(models.Model):
    """What a model has said so far in a step that is not stored yet. For people who watch; nothing depends on it.

    Written by `drafts`.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="draft")
    step = models.PositiveIntegerField()
    text = models.TextField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.run_id} step {self.step}"
