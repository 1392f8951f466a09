"""The calls of tools that a run's steps propose. Written by `executions`."""

import json
from decimal import Decimal
from typing import Any

from django.db import models
from django.db.models import Q

from agentapp.messages import ACTED, MAY_HAVE_ACTED
from agentapp.models.runs import Run, Step
from agentapp.models.tools import Tool
from approvals.ids import uuid7
from approvals.masking import secrets_in
from approvals.models import Approval, EffectClass, Grant
from approvals.models.noted import Noted
from approvals.sealed import new_salt

# A mocked call has keys of a kind of its own, so that it never blocks a real act.
MOCKED_KEY = "mock:"


class ToolExecution(Noted, models.Model):
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
    by_agent = False
    """Not a column: whether what ran instead of the proposal is the agent's own. Read with a run's steps."""
    taken_back = False
    """Not a column: whether another run has since taken it back. Read when a later run is told about earlier steps."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="executions", db_index=False)
    step = models.ForeignKey(Step, on_delete=models.PROTECT, related_name="executions", db_index=False)
    index = models.PositiveSmallIntegerField()
    call_id = models.CharField(max_length=200, help_text="The id the model gave the call.")
    name = models.CharField(max_length=200, help_text="The name as proposed, whether or not such a tool exists.")
    tool = models.ForeignKey(Tool, null=True, on_delete=models.PROTECT, related_name="executions")
    tool_version = models.CharField(max_length=64, blank=True)
    effect_class = models.CharField(max_length=20, choices=EffectClass, default=EffectClass.IRREVERSIBLE)
    consequential = models.BooleanField(default=True)
    arguments_text = models.TextField(help_text="Exactly as proposed, or as a hook changed it.")
    proposed_name = models.CharField(
        max_length=200, blank=True, help_text="The name the model gave, if a hook changed it."
    )
    proposed_text = models.TextField(blank=True, help_text="The model's arguments, if a hook changed the call.")
    arguments_digest = models.CharField(max_length=64, blank=True)
    executed_text = models.TextField(blank=True, help_text="The canonical arguments that ran, if it ran.")
    salt = models.CharField(
        max_length=32, blank=True, default=new_salt, editable=False, help_text="For the ledger's digests of its words."
    )
    secret_fields = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        help_text="Its tool's, or those of the calls of a plan, when it was proposed.",
    )
    pii_fields = models.JSONField(
        default=list, blank=True, help_text="Its tool's, or those of the calls of a plan, when it was proposed."
    )

    ruling = models.JSONField(default=dict)
    approval = models.OneToOneField(Approval, null=True, on_delete=models.PROTECT, related_name="execution")
    allowed_by = models.CharField(max_length=120, blank=True, help_text="What let it run without a person.")
    grant = models.ForeignKey(
        Grant, null=True, on_delete=models.PROTECT, related_name="executions", db_index=False,
        help_text="The grant it ran under.",
    )  # fmt: skip
    idempotency_key = models.CharField(max_length=64, null=True, unique=True)
    with_key = models.BooleanField(
        null=True, help_text="Whether its tool promised, when it began, to act once for the key. Null: not noted."
    )

    state = models.CharField(max_length=16, choices=State, default=State.PROPOSED)
    result_status = models.CharField(max_length=20, choices=ResultStatus, blank=True)
    reason = models.CharField(max_length=40, blank=True)
    message = models.TextField(blank=True, help_text="What the model is told in addition to the result.")
    result_text = models.TextField(blank=True, help_text="The result as JSON text.")
    metadata = models.JSONField(default=dict, help_text="For people only; never shown to the model.")
    artifact_text = models.TextField(blank=True, help_text="For the application, as JSON; never shown to the model.")
    raw_result_text = models.TextField(blank=True, help_text="What the tool gave, if a hook changed it.")
    control = models.JSONField(default=dict, help_text="What the tool asks of the loop.")
    comparison = models.JSONField(
        null=True, help_text="What a dry run predicted, next to what happened: {lines, unavailable}."
    )
    retry_after = models.FloatField(null=True, help_text="Seconds, if the tool says when to try again.")
    was_blocked = models.BooleanField(default=False, help_text="A hook blocked it.")
    cost = models.DecimalField(max_digits=12, decimal_places=6, default=Decimal(0))
    trust = models.CharField(max_length=20, choices=Tool.Trust, default=Tool.Trust.UNTRUSTED)
    evidence_ref = models.CharField(max_length=200, blank=True)
    evaluation = models.ForeignKey(
        "ToolEvaluation", null=True, on_delete=models.PROTECT, related_name="executions", db_index=False,
        help_text="Why it was proposed, if guidelines decide.",
    )  # fmt: skip
    variable = models.CharField(max_length=80, blank=True, help_text="The context variable whose value it read.")
    subrun = models.OneToOneField(
        Run, null=True, on_delete=models.PROTECT, related_name="asked_by", help_text="The run that answers this call."
    )
    mocked = models.BooleanField(default=False, help_text="Part of a mocked run: its tool is never called.")
    replay_of = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="replays", db_index=False)
    attempts = models.PositiveSmallIntegerField(default=0)
    times_asked = models.PositiveSmallIntegerField(default=0, help_text="How often people were asked about it.")
    outcome_note = models.TextField(blank=True)
    failures = models.JSONField(
        default=list, blank=True, help_text="What failed attempts said: [{attempt, status, reason, message, at}]."
    )
    erased_at = models.DateTimeField(null=True, blank=True)

    proposed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["step", "index"]
        indexes = [
            models.Index(fields=["run", "state"], name="execution_open"),
            models.Index(fields=["state", "proposed_at"], name="execution_unknown"),
            models.Index(fields=["name", "started_at"], name="execution_totals"),
            models.Index(fields=["finished_at"], condition=Q(finished_at__isnull=False), name="execution_finished"),
            # Each change of a call rewrites its place in every index. Most have none of these, so they are left out.
            models.Index(fields=["grant"], condition=Q(grant__isnull=False), name="execution_grant"),
            models.Index(fields=["evaluation"], condition=Q(evaluation__isnull=False), name="execution_evaluation"),
            models.Index(fields=["replay_of"], condition=Q(replay_of__isnull=False), name="execution_replay_of"),
            # With the status, so that calls and errors are counted from the index alone. Mocked calls do not count.
            models.Index(
                fields=["tool", "-proposed_at", "result_status"], condition=Q(mocked=False), name="execution_of_tool"
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["step", "index"],
                name="execution_one_per_place",
                violation_error_message="A step can have only one call at each place.",
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
                condition=Q(idempotency_key__isnull=True)
                | Q(mocked=True, grant__isnull=True, idempotency_key__startswith=MOCKED_KEY)
                | Q(mocked=False) & ~Q(idempotency_key__startswith=MOCKED_KEY),
                name="execution_mocked_takes_nothing",
                violation_error_message="A mocked call must take no key of a real act and use no grant.",
            ),
            models.CheckConstraint(
                condition=Q(grant__isnull=True) | Q(allowed_by__startswith="grant:"),
                name="execution_names_its_grant",
                violation_error_message="A call that ran under a grant must say so.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["executing", "outcome_unknown"]) | Q(started_at__isnull=False),
                name="execution_started_has_time",
                violation_error_message="A call that runs must say when it started.",
            ),
            models.CheckConstraint(
                condition=Q(consequential=False) | Q(started_at__isnull=True) | Q(idempotency_key__isnull=False),
                name="execution_consequential_has_key",
                violation_error_message="A consequential call starts only with an idempotency key.",
            ),
            models.CheckConstraint(
                condition=~Q(state="finished") | ~Q(result_status="") & Q(finished_at__isnull=False),
                name="execution_finished_has_result",
                violation_error_message="A finished call must have a result and a time.",
            ),
            models.CheckConstraint(
                condition=~Q(state="waiting") | Q(approval__isnull=False),
                name="execution_waiting_has_approval",
                violation_error_message="A waiting call must name the approval it waits for.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def all_secret_fields(self) -> list[str]:
        """Fields nobody reads: as marked when this was proposed, when people were asked, and now."""
        return self._marked("secret_fields")

    @property
    def secret_values(self) -> set[str]:
        """The values of its secret arguments as text, both as proposed and as run."""
        fields = self.all_secret_fields
        return secrets_in(self.arguments_text, fields) | secrets_in(self.executed_text, fields)

    @property
    def all_pii_fields(self) -> list[str]:
        """Fields only for people who may see personal data: as marked then, and now."""
        return self._marked("pii_fields")

    def _marked(self, column: str) -> list[str]:
        # People were asked with at least the marks of this row, so an approval that was not read need not be.
        asked = self._state.fields_cache.get("approval")
        marks = [
            getattr(self, column),
            *(row.__dict__.get(column, ()) for row in (asked, self.tool) if row is not None),
        ]
        return list(dict.fromkeys(name for fields in marks for name in fields))

    @property
    def is_answered(self) -> bool:
        return self.state in self.ANSWERED

    @property
    def took_effect(self) -> bool:
        """Whether it did what it was asked to do. What the tool said counts, whatever hooks made of that."""
        said = self.control.get("took_effect")
        if said is not None:
            return bool(said)
        return self.result_status == self.ResultStatus.OK or self.reason in ACTED

    @property
    def may_have_acted(self) -> bool:
        """Whether it failed and its tool does not say that nothing was done. It is not repeated without asking."""
        return bool(self.control.get(MAY_HAVE_ACTED)) and not self.took_effect

    @property
    def was_left_unknown(self) -> bool:
        """Whether nobody knew what it did, and it was to be tried again but was not: people did not want that."""
        tried_again = self.started_at is not None
        return self.is_answered and self.attempts > 0 and not tried_again and not self.took_effect

    @property
    def was_stopped_midway(self) -> bool:
        """Whether it asked an agent and did not wait for the answer. What that agent had done by then stays done."""
        return self.state == self.State.CANCELLED and self.subrun_id is not None and self.started_at is not None

    @property
    def broke_with(self) -> str:
        """What its tool said when it broke, if nobody knows what it had done by then. Empty: it said nothing."""
        lost = [failure for failure in self.failures if failure["reason"] == "outcome_unknown"]
        has_ended = bool(lost) and self.failures[-1]["attempt"] == self.attempts
        return str(lost[-1]["message"]) if has_ended else ""

    @property
    def is_in_doubt(self) -> bool:
        """Whether nobody knows if it happened: that is still to be found out, or never was."""
        return self.state == self.State.OUTCOME_UNKNOWN or self.was_left_unknown

    @property
    def args(self) -> Any:
        """The arguments that ran; for a call that did not run, as proposed. None if they cannot be read."""
        try:
            return json.loads(self.executed_text or self.arguments_text or "{}")
        except (ValueError, RecursionError):
            return None

    @property
    def has_error(self) -> bool:
        return self.is_answered and self.result_status != self.ResultStatus.OK

    @property
    def value(self) -> Any:
        """What the tool gave. None for a call that failed, or has no result yet."""
        ok = self.result_status == self.ResultStatus.OK and self.result_text
        return json.loads(self.result_text) if ok else None
