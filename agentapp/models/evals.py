"""Evals: suites of cases and the results of running them. Written by `evals.suites` and `evals.results`."""

from pathlib import Path

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from agentapp.models.runs import Run
from approvals import supposing
from approvals.ids import uuid7
from approvals.models import Judgement


class EvalSuite(models.Model):
    """Cases that belong together."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    description = models.TextField(blank=True)
    directory = models.CharField(
        max_length=500, blank=True, help_text="Where the files of its cases are. Empty: they are written here."
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> str:
        """Where its files are, for people to read: inside the product's own folder, the path relative to it."""
        path = Path(self.directory)
        inside = bool(self.directory) and path.is_relative_to(settings.BASE_DIR)
        return str(path.relative_to(settings.BASE_DIR)) if inside else self.directory


class EvalCase(models.Model):
    """One situation. `document` says all of it; the other columns are for lists."""

    class Kind(models.TextChoices):
        POSITIVE = "positive", "Positive"
        NO_TOOL = "no_tool", "Calls no tool"
        ASK = "ask", "Asks"
        REFUSE = "refuse", "Refuses"
        ESCALATE = "escalate", "Calls a person"
        FORBIDDEN_TOOL = "forbidden_tool", "Forbidden tool"
        MALFORMED = "malformed", "Malformed result"
        TIMEOUT = "timeout", "No answer in time"
        RETRYABLE_ERROR = "retryable_error", "Error, may be tried again"
        FATAL_ERROR = "fatal_error", "Error for good"
        INJECTION = "injection", "Instructions from outside"

    class Severity(models.TextChoices):
        GATE = "gate", "Gate"
        SOFT = "soft", "Soft"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    suite = models.ForeignKey(EvalSuite, on_delete=models.CASCADE, related_name="cases")
    name = models.SlugField(max_length=80)
    kind = models.CharField(max_length=16, choices=Kind)
    severity = models.CharField(max_length=4, choices=Severity, default=Severity.GATE)
    description = models.TextField(blank=True)
    agent = models.CharField(max_length=80)
    document = models.JSONField(help_text="The whole case, in the form of `evals.cases`.")
    digest = models.CharField(max_length=64)
    file = models.CharField(max_length=500, blank=True, help_text="The file and the line it comes from.")
    made_of = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="The run it was made from."
    )
    decision = models.UUIDField(
        null=True, blank=True, db_index=True, help_text="The decision it was made for, if somebody judged one."
    )
    judged = models.CharField(
        max_length=7,
        blank=True,
        db_default="",
        choices=Judgement.Mark,
        help_text="How that decision had been judged.",
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["suite", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["suite", "name"],
                name="evalcase_one_per_name",
                violation_error_message="A suite can have only one case of each name.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class EvalRun(models.Model):
    """One execution of a suite, or of some of its cases: with which agent and model, and with what result."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        FINISHED = "finished", "Finished"
        CANCELLED = "cancelled", "Cancelled"

    class Verdict(models.TextChoices):
        PASSED = "passed", "Passed"
        FAILED = "failed", "Failed"

    FINAL = (State.FINISHED, State.CANCELLED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    suite = models.ForeignKey(EvalSuite, on_delete=models.CASCADE, related_name="runs")
    agent = models.CharField(
        max_length=170,
        blank=True,
        help_text="Runs cases in place of their own agent: all of them, or those of one agent, as in old=new.",
    )
    model = models.CharField(max_length=120, blank=True, help_text="Is asked in place of scripts and other models.")
    rules = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        help_text="Drafts it takes to be in force, and rules it leaves out: `approvals.supposing`.",
    )
    baseline = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    starter = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    verdict = models.CharField(max_length=6, choices=Verdict, blank=True)
    planned = models.JSONField(
        default=list, help_text="What is run, in order: [{case, repeats}], with each case in full."
    )
    total = models.PositiveIntegerField(default=0, help_text="How many results there will be.")
    done = models.PositiveIntegerField(default=0)
    versions = models.JSONField(default=dict, help_text="Of agents, models, prompts, guidelines, tools and rules.")
    metrics = models.JSONField(default=dict, help_text="In the form of `evals.metrics`.")
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["suite", "-created_at"], name="evalrun_of_suite")]
        constraints = [
            models.CheckConstraint(
                condition=~Q(state="finished") | ~Q(verdict="") & Q(finished_at__isnull=False),
                name="evalrun_finished_has_verdict",
                violation_error_message="A finished eval must have passed or failed.",
            ),
            models.CheckConstraint(
                condition=Q(done__lte=F("total")),
                name="evalrun_done_of_total",
                violation_error_message="No more can be done than there is.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.suite_id} {self.created_at:%Y-%m-%d %H:%M}"

    def agent_for(self, own: str) -> str:
        """Who runs a case of this agent."""
        old, _, new = self.agent.rpartition("=")
        return (new if old in ("", own) else own) or own

    @property
    def supposes(self) -> str:
        """Under which rules other than those in force it ran, in words. Empty: under those in force."""
        return ", ".join(supposing.words(self.rules))

    @property
    def reference(self) -> str:
        return f"eval_{self.id.hex[-6:]}"

    @property
    def is_final(self) -> bool:
        return self.state in self.FINAL


class EvalResult(models.Model):
    """The result of running one case once."""

    class Verdict(models.TextChoices):
        PASSED = "passed", "Passed"
        FAILED = "failed", "Failed"
        SKIPPED = "skipped", "Skipped"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    eval_run = models.ForeignKey(EvalRun, on_delete=models.CASCADE, related_name="results")
    case = models.CharField(max_length=80, help_text="Its name.")
    case_digest = models.CharField(max_length=64)
    repeat = models.PositiveSmallIntegerField(default=1)
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="eval_results")
    verdict = models.CharField(max_length=7, choices=Verdict)
    reasons = models.JSONField(default=list)
    observed = models.JSONField(null=True, help_text="What happened, in the form of `evals.observed`.")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["eval_run", "case", "repeat"]
        constraints = [
            models.UniqueConstraint(
                fields=["eval_run", "case", "repeat"],
                name="evalresult_once",
                violation_error_message="Each repeat of a case can have only one result.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.case} {self.verdict}"

    @property
    def run_failed(self) -> str:
        """Why the run of a failed case itself failed. Only the run holds it, so it is erased with the run."""
        is_told = self.verdict == self.Verdict.FAILED and self.run is not None and self.run.state == Run.State.FAILED
        return f"the run failed: {self.run.stop_message}" if is_told and self.run and self.run.stop_message else ""
