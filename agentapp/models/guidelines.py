"""What agents with guidance follow, and what their steps looked at.

Guidelines and relations are configuration; matches, evaluations and insights are written by `guidance_rows`.
"""

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q

from agentapp.models.agents import Agent
from agentapp.models.runs import Run, Step
from agentapp.models.tools import Tool
from approvals.ids import uuid7


class Guideline(models.Model):
    """When a condition holds, an agent does something, with these tools."""

    class Criticality(models.TextChoices):
        LOW = "low", "Low"
        MEDIUM = "medium", "Medium"
        HIGH = "high", "High: told first"

    class Matcher(models.TextChoices):
        MODEL = "model", "A model reads the conversation"
        ALWAYS = "always", "It always holds"
        PYTHON = "python", "Code says so"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="guidelines")
    name = models.SlugField(max_length=80)
    condition = models.TextField(
        blank=True, help_text="When it holds, for example: the customer wants their money back."
    )
    action = models.TextField(
        blank=True, help_text="What the agent does then. Empty: an observation, only for its tools."
    )
    description = models.TextField(blank=True, help_text="What a model needs to know to tell whether it holds.")
    criticality = models.CharField(max_length=6, choices=Criticality, default=Criticality.MEDIUM)
    priority = models.IntegerField(
        default=0, help_text="Of two that priority relates, the one with the higher number goes first."
    )
    matcher = models.CharField(max_length=6, choices=Matcher, default=Matcher.MODEL)
    python = models.CharField(
        max_length=300, blank=True, help_text="Dotted path of the function, for example shop.guidance.is_open."
    )
    tools = models.ManyToManyField(
        Tool, blank=True, related_name="guidelines", help_text="What may be called if it holds."
    )
    enabled = models.BooleanField(default=True, help_text="A guideline that is off is left out of new runs.")
    version = models.PositiveIntegerField(default=1, editable=False)

    class Meta:
        ordering = ["agent", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "name"],
                name="guideline_once_per_agent",
                violation_error_message="An agent can have only one guideline of each name.",
            ),
            models.CheckConstraint(
                condition=Q(matcher="python") ^ Q(python=""),
                name="guideline_python_has_path",
                violation_error_message="A guideline that code matches must name a function; no other may.",
            ),
            models.CheckConstraint(
                condition=~Q(matcher="model") | ~Q(condition="") | ~Q(action=""),
                name="guideline_says_something",
                violation_error_message="A model needs a condition, or an action, to tell whether a guideline holds.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent}/{self.name}"


class GuidelineRelation(models.Model):
    """How one guideline relates to another, or to a tool."""

    class Kind(models.TextChoices):
        ENTAILS = "entails", "Entails: if it holds, so does the other"
        PRIORITY = "priority", "Priority: it goes before the other"
        REEVALUATES = "reevaluates", "Looked at again when the tool has run"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=12, choices=Kind)
    source = models.ForeignKey(Guideline, on_delete=models.CASCADE, related_name="relations")
    target = models.ForeignKey(
        Guideline, null=True, blank=True, on_delete=models.CASCADE, related_name="related_by",
        help_text="The other guideline, of the same agent.",
    )  # fmt: skip
    tool = models.ForeignKey(
        Tool, null=True, blank=True, on_delete=models.CASCADE, related_name="reevaluates",
        help_text="The tool after which it is looked at again.",
    )  # fmt: skip

    class Meta:
        ordering = ["source", "kind", "target", "tool"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "source", "target"],
                condition=Q(target__isnull=False),
                name="guideline_relation_once",
                violation_error_message="This relation is there already.",
            ),
            models.UniqueConstraint(
                fields=["kind", "source", "tool"],
                condition=Q(tool__isnull=False),
                name="guideline_relation_to_tool_once",
                violation_error_message="This relation is there already.",
            ),
            models.CheckConstraint(
                condition=Q(kind="reevaluates", tool__isnull=False, target__isnull=True)
                | Q(kind__in=["entails", "priority"], tool__isnull=True, target__isnull=False),
                name="guideline_relation_has_target",
                violation_error_message="A relation that looks again names a tool; every other names a guideline.",
            ),
            models.CheckConstraint(
                condition=Q(target__isnull=True) | ~Q(source=F("target")),
                name="guideline_relation_not_to_itself",
                violation_error_message="A guideline cannot have a relation to itself.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.kind} {self.target or self.tool}"

    def clean(self) -> None:
        if self.target is not None and self.source_id and self.target.agent_id != self.source.agent_id:
            raise ValidationError({"target": "Both guidelines must belong to one agent."})


class ToolRelation(models.Model):
    """Two tools that can serve the same need: agents with guidance look at them together."""

    class Kind(models.TextChoices):
        OVERLAP = "overlap", "Overlap"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.OVERLAP)
    source = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="relations")
    target = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="related_by")

    class Meta:
        ordering = ["source", "target"]
        verbose_name = "overlap of tools"
        verbose_name_plural = "overlaps of tools"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "source", "target"],
                name="tool_relation_once",
                violation_error_message="This relation is there already.",
            ),
            models.CheckConstraint(
                condition=~Q(source=F("target")),
                name="tool_relation_not_to_itself",
                violation_error_message="A tool cannot have a relation to itself.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} and {self.target}"


class GuidelineMatch(models.Model):
    """What a step found out about one guideline."""

    class Origin(models.TextChoices):
        MODEL = "model", "Model"
        ALWAYS = "always", "Always"
        PYTHON = "python", "Code"
        ENTAILED = "entailed", "Follows from another"
        REEVALUATED = "reevaluated", "Looked at again"
        TRANSIENT = "transient", "Came with a result"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="guideline_matches")
    step = models.ForeignKey(Step, on_delete=models.PROTECT, related_name="guideline_matches")
    index = models.PositiveSmallIntegerField()
    guideline = models.CharField(max_length=220, help_text="Its name; for one that came with a result, whose result.")
    version = models.PositiveIntegerField(default=0, help_text="The guideline's version. 0: it came with a result.")
    snapshot = models.JSONField(default=dict, help_text="Its condition and action as they were.")
    matched = models.BooleanField()
    score = models.FloatField(null=True, help_text="How sure the matcher was, if it says so.")
    rationale = models.TextField(blank=True)
    origin = models.CharField(max_length=12, choices=Origin)
    suppressed_by = models.CharField(max_length=220, blank=True, help_text="The guideline that goes before it.")

    class Meta:
        ordering = ["step", "index"]
        indexes = [models.Index(fields=["guideline", "matched"], name="match_by_guideline")]
        constraints = [
            models.UniqueConstraint(
                fields=["step", "index"],
                name="match_one_per_place",
                violation_error_message="A step has one match at each place.",
            )
        ]

    def __str__(self) -> str:
        return self.guideline


class ToolEvaluation(models.Model):
    """What a step made of one candidate tool."""

    class State(models.TextChoices):
        NEEDS_TO_RUN = "needs_to_run", "Needs to run"
        DATA_ALREADY_IN_CONTEXT = "data_already_in_context", "Known already"
        CANNOT_RUN = "cannot_run", "Cannot run"
        NOT_APPLICABLE = "not_applicable", "Not needed"

    class Mode(models.TextChoices):
        AUTO_APPROVED = "auto_approved", "No model was asked"
        SHORT = "short", "Short"
        FULL = "full", "Argument by argument"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="tool_evaluations")
    step = models.ForeignKey(Step, on_delete=models.PROTECT, related_name="tool_evaluations")
    index = models.PositiveSmallIntegerField()
    tool = models.CharField(max_length=200)
    batch = models.PositiveSmallIntegerField(help_text="Tools in one batch were looked at in one question.")
    state = models.CharField(max_length=24, choices=State)
    mode = models.CharField(max_length=14, choices=Mode)
    guidelines = models.JSONField(default=list, help_text="The guidelines that asked for the tool.")
    rationale = models.TextField(blank=True)
    usage = models.JSONField(default=dict, help_text="What the model used for the batch, shared by its evaluations.")

    class Meta:
        ordering = ["step", "index"]
        constraints = [
            models.UniqueConstraint(
                fields=["step", "index"],
                name="evaluation_one_per_place",
                violation_error_message="A step has one evaluation at each place.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tool}: {self.get_state_display()}"


class ToolInsight(models.Model):
    """A parameter that keeps a tool from running."""

    class Kind(models.TextChoices):
        MISSING = "missing", "Missing"
        INVALID = "invalid", "Cannot be used"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    evaluation = models.ForeignKey(ToolEvaluation, on_delete=models.PROTECT, related_name="insights")
    index = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=8, choices=Kind)
    parameter = models.CharField(max_length=200)
    display_name = models.CharField(max_length=200)
    significance = models.TextField(blank=True)
    description = models.TextField(blank=True)
    examples = models.JSONField(default=list)
    choices = models.JSONField(null=True, help_text="Possible values. Null: anything.")
    precedence = models.IntegerField(null=True)
    invalid_value = models.JSONField(null=True, help_text="Masked if the argument is secret.")
    hidden = models.BooleanField(default=False, help_text="Never named to the customer.")

    class Meta:
        ordering = ["evaluation", "index"]

    def __str__(self) -> str:
        return f"{self.display_name}: {self.get_kind_display()}"
