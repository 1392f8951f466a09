"""Tools and where they come from. Written by `configuration`; a tool's contract is written by `contracts`.

A tool's contract comes from its source and is overwritten when the source is read again. Its safety settings belong
to admins, and no source makes them weaker.
"""

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from agentapp.messages import MAX_TIMEOUT_SECONDS
from approvals import clock
from approvals.ids import uuid7
from approvals.models import EffectClass


def validate_questions(value: object) -> None:
    """A list of texts, none of them empty. Forms and files call it: a page shows each as something to press."""
    if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
        raise ValidationError('Give a list of questions, as in ["Which policy allows this?"]. None can be empty.')


class ToolSource(models.Model):
    """Where tools come from. Secrets are not kept here: `credentials` names them, the environment holds them."""

    class Kind(models.TextChoices):
        PYTHON = "python", "Python module"
        OPENAPI = "openapi", "OpenAPI document"
        MCP = "mcp", "MCP server"
        AGENT = "agent", "Agents that others may ask"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.PYTHON)
    location = models.CharField(
        max_length=500,
        help_text="A module's dotted name; a service's address; an MCP server's address, or stdio: and the name of its "
        "command in MCP_COMMANDS.",
    )
    enabled = models.BooleanField(default=True, help_text="No model is offered the tools of a disabled source.")
    origin = models.URLField(max_length=500, blank=True, help_text="Where its document was read from.")
    details = models.JSONField(
        default=dict, blank=True, help_text="What it says about itself, such as its title and version."
    )
    schemes = models.JSONField(
        default=dict, blank=True, help_text="The security schemes with which callers authenticate."
    )
    credentials = models.JSONField(
        default=dict, blank=True, help_text='The name of a credential for each scheme, for example {"token": "shop"}.'
    )
    hosts = models.JSONField(
        default=list, blank=True, help_text="The hosts its tools may call. Empty: only its address's host."
    )
    approval_receipts = models.BooleanField(
        default=False, help_text="Whether calls that people approved carry a signed receipt: X-Approval-Receipt."
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class SourceHealth(models.Model):
    """Whether a source could be asked for its tools. Written by `refreshing`."""

    source = models.OneToOneField(ToolSource, on_delete=models.CASCADE, related_name="health", primary_key=True)
    ok = models.BooleanField()
    checked_at = models.DateTimeField()
    problem = models.TextField(blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When it last answered.")

    def __str__(self) -> str:
        return f"{self.source_id}: {'ok' if self.ok else self.problem}"


class Tool(models.Model):
    class ApprovalMode(models.TextChoices):
        RULES = "rules", "As the rules say"
        ALWAYS = "always", "Always ask a person"

    class Idempotency(models.TextChoices):
        NONE = "none", "None: a lost call is shown to a person, never repeated automatically"
        KEY = "key", "Honours the key: a lost call is repeated with the same key"

    class Overlap(models.TextChoices):
        NONE = "none", "None: it is looked at on its own"
        AUTO = "auto", "With the tools it overlaps with"
        ALWAYS = "always", "Always: on its own, with all the others named next to it"

    class AdditionalArguments(models.TextChoices):
        REJECT = "reject", "Reject the call and tell the model"
        DROP = "drop", "Drop them and run"

    class Trust(models.TextChoices):
        TRUSTED = "trusted_system", "Our own system"
        UNTRUSTED = "untrusted_content", "May carry text from outside"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    source = models.ForeignKey(ToolSource, on_delete=models.PROTECT, related_name="tools")

    # Contract, from code.
    name = models.CharField(max_length=120, unique=True)
    description = models.TextField(blank=True)
    input_schema = models.JSONField(default=dict)
    title_template = models.CharField(max_length=300, blank=True)
    sentence_template = models.TextField(blank=True)
    effects_template = models.JSONField(default=list)
    button_template = models.CharField(max_length=60, blank=True)
    confirm_template = models.CharField(
        max_length=300, blank=True, help_text="What people type to approve a critical call, for example {customer_id}."
    )
    declared_effect_class = models.CharField(max_length=20, choices=EffectClass, blank=True)
    takes_snapshot = models.BooleanField(default=False)
    takes_preview = models.BooleanField(default=False)
    undone_by = models.CharField(max_length=120, blank=True, help_text="The tool that undoes a call of this one.")
    output_schema = models.JSONField(null=True, blank=True, help_text="What a result looks like. Empty: not checked.")
    business_key_template = models.CharField(
        max_length=300,
        blank=True,
        help_text="What makes two calls the same act, in any run. Example: refund {order_id}.",
    )
    return_direct = models.BooleanField(
        default=False, help_text="Its result is the run's answer; the model adds nothing."
    )
    parameters = models.JSONField(
        default=dict,
        blank=True,
        help_text="What is said about its arguments beyond the schema, for agents with guidance.",
    )
    overlap = models.CharField(
        max_length=6, choices=Overlap, default=Overlap.AUTO, help_text="How agents with guidance look at it."
    )
    version = models.CharField(max_length=64, help_text="Digest of the contract. A change voids pending approvals.")
    wire = models.JSONField(
        default=dict, blank=True, help_text="How a call reaches its source, if that is not code of ours."
    )
    claims = models.JSONField(
        default=dict, blank=True, help_text="What else its source says about it. None of it is trusted."
    )
    waiting_contract = models.JSONField(
        null=True,
        blank=True,
        help_text="A contract its source has changed to. The tool is out of use until a person has looked at it.",
    )
    missing_since = models.DateTimeField(null=True, blank=True, help_text="Set when its source no longer lists it.")

    # Safety, from admins.
    enabled = models.BooleanField(default=True, help_text="A disabled tool is offered to no model and never runs.")
    effect_class = models.CharField(
        max_length=20,
        choices=EffectClass,
        default=EffectClass.IRREVERSIBLE,
        help_text="What a call does to the world. Anything but a read asks unless a rule allows it.",
    )
    approval_mode = models.CharField(max_length=10, choices=ApprovalMode, default=ApprovalMode.RULES)
    timeout_seconds = models.PositiveIntegerField(
        default=30,
        validators=[
            MaxValueValidator(MAX_TIMEOUT_SECONDS, f"At most one day, which is {MAX_TIMEOUT_SECONDS} seconds.")
        ],
    )
    max_attempts = models.PositiveSmallIntegerField(
        default=3, help_text="For reads and tools that honour the key. Other writes are tried once."
    )
    idempotency = models.CharField(max_length=10, choices=Idempotency, default=Idempotency.NONE)
    repeatable = models.BooleanField(default=False, help_text="The same call may run more than once in one run.")
    additional_arguments = models.CharField(
        max_length=6,
        choices=AdditionalArguments,
        default=AdditionalArguments.REJECT,
        help_text="What happens to arguments that its schema does not name.",
    )
    max_calls_per_run = models.PositiveIntegerField(
        null=True, blank=True, help_text="Empty: no limit. The agent says what happens to calls beyond it."
    )
    cost_per_call = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        default=0,
        validators=[MinValueValidator(0)],
        help_text="In US dollars; counted into the run's cost.",
    )
    result_max_kb = models.PositiveIntegerField(
        default=16, help_text="How much of a result the model is shown. People can read all of it."
    )
    stop_on_failure = models.BooleanField(default=False, help_text="If it fails, the run ends.")
    trust = models.CharField(max_length=20, choices=Trust, default=Trust.UNTRUSTED)
    locked_fields = models.JSONField(default=list, blank=True, help_text="Arguments an approver cannot change.")
    secret_fields = models.JSONField(default=list, blank=True, help_text="Arguments that are masked on every page.")
    pii_fields = models.JSONField(
        default=list,
        blank=True,
        help_text="Arguments and fields of results that say something about a person. Those who decide see them; "
        "others need a permission.",
    )
    questions = models.JSONField(
        default=list, blank=True, help_text="Suggested to people who ask the agent before they decide about a call."
    )
    starters = models.ManyToManyField(
        Group,
        blank=True,
        help_text="Groups whose members' runs may call it. Empty: everybody's who may start runs.",
    )
    owner = models.CharField(max_length=120, blank=True, help_text="Whom to ask about this tool.")

    class Meta:
        ordering = ["name"]
        permissions = [("try_tool", "Can propose a call of a tool from its page")]
        constraints = [
            models.CheckConstraint(
                condition=Q(timeout_seconds__gte=1),
                name="tool_has_a_deadline",
                violation_error_message="A tool needs a deadline of at least one second.",
            ),
            models.CheckConstraint(
                condition=Q(max_attempts__gte=1),
                name="tool_is_tried",
                violation_error_message="A tool must be tried at least once.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def consequential(self) -> bool:
        return self.effect_class != EffectClass.READ

    @property
    def honours_key(self) -> bool:
        """Whether it promises to act once for an idempotency key."""
        return self.idempotency == self.Idempotency.KEY

    @property
    def is_in_use(self) -> bool:
        """Whether it may be offered and called: it and its source are on, it is not missing, and no contract waits."""
        there = self.missing_since is None and self.waiting_contract is None
        return self.enabled and self.source.enabled and there


class PendingImport(models.Model):
    """An OpenAPI document that somebody has read but not picked from yet. It is deleted after a while."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=clock.now, editable=False)
    text = models.TextField()
    name = models.SlugField(max_length=80)
    location = models.CharField(max_length=500)
    origin = models.URLField(max_length=500, blank=True)
    prefix = models.CharField(max_length=40, blank=True)
    checks_answers = models.BooleanField(default=False)
    summary = models.JSONField()
    listing = models.JSONField(help_text="Its operations as they are shown.")
    choices = models.JSONField(default=dict, help_text="Those picked: key to name and effect class.")

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="pending_import_age")]

    def __str__(self) -> str:
        return self.name
