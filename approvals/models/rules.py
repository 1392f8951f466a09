"""Rules and their versions. `rule_versions` is the only writer of both, for the admin and for configuration files.

A row of Rule holds what is in force, and nothing else decides. Everything it ever said, and might say next, is a
RuleVersion.
"""

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import F, Q

from approvals.escalation import validate_steps
from approvals.ids import uuid7
from approvals.models.choices import AnsweredBy, Assurance, EffectClass, Risk, Verdict, every_decision

# A longer time could end beyond the last date there is.
MAX_SECONDS = 3650 * 86_400
TEN_YEARS_AT_MOST = MaxValueValidator(MAX_SECONDS, f"At most ten years, which is {MAX_SECONDS} seconds.")


class Rule(models.Model):
    """Which calls may run, must wait or are refused. The strictest matching verdict wins."""

    class OnExpiry(models.TextChoices):
        REJECT = "reject", "Reject it and tell the agent that no one decided"
        STOP = "stop", "Reject it and stop the run"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True, help_text="Shown to approvers, for example refunds-over-limit.")
    description = models.TextField(blank=True, help_text="Why this rule exists, in words an approver understands.")
    order = models.PositiveIntegerField(
        default=100,
        help_text="Of equally strict rules that match, the lowest number gives the reason, and its terms count; of "
        "rules that ask, the strictest terms of each.",
    )
    active = models.BooleanField(default=True)
    agent = models.CharField(max_length=80, blank=True, help_text="Name of one agent. Empty means every agent.")
    route = models.CharField(max_length=80, blank=True, help_text="Name of one route. Empty means every route.")
    tool = models.CharField(max_length=120, blank=True, help_text="Exact name of one tool. Empty means every tool.")
    effect_class = models.CharField(
        max_length=20, blank=True, choices=EffectClass, help_text="Empty means every effect class."
    )
    environment = models.SlugField(
        max_length=40, blank=True, help_text="Only if the installation has this name. Empty means everywhere."
    )
    condition = models.TextField(
        blank=True,
        help_text="A CEL expression over args, tool, agent, run, customer, now, environment and history, for example "
        "args.amount > 100.0. "
        "Empty means always. If it cannot be evaluated, a person is asked.",
    )
    verdict = models.CharField(max_length=10, choices=Verdict)
    answered_by = models.CharField(
        max_length=10,
        choices=AnsweredBy,
        default=AnsweredBy.PEOPLE,
        help_text="For a rule that asks. If the customer cannot be asked, people are. At high and critical risk, and "
        "if another rule asks people, both are asked, the customer first.",
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text="Who may decide. Empty means everybody with the right to decide."
    )
    approvals_needed = models.PositiveSmallIntegerField(default=1, help_text="How many different people must approve.")
    thresholds = models.JSONField(
        default=list,
        blank=True,
        help_text='Ways to decide it, instead of one number, for example [{"approve": 2, "group": "Payments"}, '
        '{"approve": 1, "group": "Managers"}]. The first that is reached counts.',
    )
    starter_excluded = models.BooleanField(
        default=True, help_text="The person who started the run may not decide about its calls."
    )
    expires_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[TEN_YEARS_AT_MOST],
        help_text="How long people have. Empty means the installation's default.",
    )
    on_expiry = models.CharField(max_length=10, choices=OnExpiry, default=OnExpiry.REJECT)
    escalation = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_steps],
        help_text="What happens while nobody decides: [{after, group, remind}]. `after` that many seconds another "
        "group may decide as well, or those who may decide are reminded, or both.",
    )
    target_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[TEN_YEARS_AT_MOST],
        help_text="How soon somebody should decide. Empty means the installation's default.",
    )
    business_hours = models.BooleanField(
        default=False, help_text="Targets, steps and expiry count only business time, as set in BUSINESS_HOURS."
    )
    allowed_decisions = models.JSONField(default=every_decision, help_text="Among approve, edit, reject, respond.")
    risk = models.CharField(max_length=10, choices=Risk, default=Risk.MEDIUM)
    hold_seconds = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="How long a decision can be undone before it takes effect. 0 runs at once."
    )
    assurance = models.CharField(
        max_length=10,
        blank=True,
        choices=Assurance,
        help_text="How people who approve show who they are. Empty: nothing, or the installation's minimum.",
    )
    grants_allowed = models.BooleanField(
        default=False,
        help_text="For a rule that asks one person: a grant may answer in their place. Never at critical risk.",
    )
    version = models.PositiveIntegerField(
        default=1, editable=False, help_text="0: it was never in force; there is only a draft."
    )

    # Columns that are not terms: which rule it is, and how often its terms have changed.
    IDENTITY = ("id", "name", "version")

    terms_digest = ""
    """The digest of the version in force, if it was read with the rule."""

    class Meta:
        ordering = ["order", "name"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(verdict=Verdict.ALLOW) | ~Q(tool="") | Q(effect_class=EffectClass.READ),
                name="rule_allow_is_exact",
                violation_error_message="A rule that allows must name one tool exactly, or cover only reads.",
            ),
            models.CheckConstraint(
                condition=Q(approvals_needed__gte=1),
                name="rule_needs_someone",
                violation_error_message="At least one person must approve.",
            ),
            models.CheckConstraint(
                condition=Q(hold_seconds__isnull=True) | Q(hold_seconds__lte=60),
                name="rule_hold_is_short",
                violation_error_message="A decision can be held for at most 60 seconds.",
            ),
            models.CheckConstraint(
                condition=Q(version__gte=1) | Q(active=False),
                name="rule_draft_decides_nothing",
                violation_error_message="A rule that was never activated decides nothing.",
            ),
            models.CheckConstraint(
                condition=Q(on_expiry__in=["reject", "stop"]),
                name="rule_expiry_never_approves",
                violation_error_message="A request that nobody decided in time is rejected. It is never approved.",
            ),
            models.CheckConstraint(
                condition=Q(target_seconds__isnull=True) | Q(target_seconds__gte=1),
                name="rule_target_is_some_time",
                violation_error_message="A target must be at least one second.",
            ),
            models.CheckConstraint(
                condition=Q(grants_allowed=False)
                | Q(verdict=Verdict.ASK, answered_by=AnsweredBy.PEOPLE, approvals_needed=1) & ~Q(risk=Risk.CRITICAL),
                name="rule_grants_for_one_person",
                violation_error_message="Grants can answer for a rule that asks one person, and not at critical risk.",
            ),
            models.CheckConstraint(
                condition=Q(assurance="") | Q(assurance__in=Assurance.values),
                name="rule_assurance_is_known",
                violation_error_message="The assurance must be a known level.",
            ),
            models.CheckConstraint(
                condition=Q(grants_allowed=False) | Q(assurance=""),
                name="rule_grants_show_nobody",
                violation_error_message="A grant does not show who approves, so none answers if a rule asks for that.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class RuleVersion(models.Model):
    """One set of terms of a rule: a draft, those in force, or those that once were."""

    class State(models.TextChoices):
        DRAFT = "draft", "Draft: decides nothing"
        SHADOW = "shadow", "Shadow: watches every call, decides nothing"
        IN_FORCE = "in_force", "In force"
        RETIRED = "retired", "Was in force"

    class Origin(models.TextChoices):
        ADMIN = "admin", "Drafted and activated by people"
        FILE = "file", "Loaded from a configuration file"
        SWITCH = "switch", "Switched off at once"
        FOUND = "found", "In force before versions were kept"

    # The states of versions that are not in force yet.
    OPEN = (State.DRAFT, State.SHADOW)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(null=True, blank=True, help_text="Assigned when it comes into force.")
    state = models.CharField(max_length=10, choices=State, default=State.DRAFT)
    origin = models.CharField(max_length=10, choices=Origin, default=Origin.ADMIN)
    terms = models.JSONField(
        help_text="Every column of the rule except its name and number, and the names of its groups."
    )
    terms_digest = models.CharField(max_length=64)
    restores = models.PositiveIntegerField(
        null=True, blank=True, help_text="The number of the version whose terms it brings back."
    )
    editor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="Who last changed its terms.",
    )  # fmt: skip
    edited_at = models.DateTimeField()
    simulated_at = models.DateTimeField(null=True, blank=True)
    simulated_digest = models.CharField(max_length=64, blank=True, help_text="The terms that were simulated.")
    simulated_height = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="The height of the configuration that was simulated."
    )
    simulation = models.JSONField(default=dict, blank=True, help_text="What would have been different, in numbers.")
    simulated_calls = models.JSONField(
        default=list, blank=True, help_text="Calls that would have turned out differently, without their arguments."
    )
    shadowed_at = models.DateTimeField(null=True, blank=True, help_text="Since when it watches.")
    activator = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    activated_by = models.CharField(max_length=200, blank=True, help_text="Who did, as the ledger names them.")
    activated_at = models.DateTimeField(null=True, blank=True)
    needed_second_person = models.BooleanField(default=False)
    why = models.TextField(blank=True, help_text="Why it came into force.")

    class Meta:
        ordering = ["rule", "-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "number"],
                name="rule_version_one_per_number",
                violation_error_message="A rule can have only one version of each number.",
            ),
            models.UniqueConstraint(
                fields=["rule"],
                condition=Q(state__in=["draft", "shadow"]),
                name="rule_version_one_draft",
                violation_error_message="A rule can have only one draft at a time.",
            ),
            models.UniqueConstraint(
                fields=["rule"],
                condition=Q(state="in_force"),
                name="rule_version_one_in_force",
                violation_error_message="Only one version of a rule can be in force.",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["draft", "shadow"], number__isnull=True, activated_at__isnull=True)
                | Q(state__in=["in_force", "retired"], number__isnull=False, activated_at__isnull=False),
                name="rule_version_numbered_in_force",
                violation_error_message="A version has a number and a time once it has come into force, not before.",
            ),
            models.CheckConstraint(
                condition=~Q(origin="admin")
                | Q(state__in=["draft", "shadow"])
                | Q(simulated_at__isnull=False, simulated_digest=F("terms_digest")),
                name="rule_version_was_simulated",
                violation_error_message="A draft can come into force only after a simulation of exactly its terms.",
            ),
            models.CheckConstraint(
                condition=Q(needed_second_person=False)
                | Q(activator__isnull=False) & (Q(editor__isnull=True) | ~Q(activator=F("editor"))),
                name="rule_version_second_person",
                violation_error_message="Somebody other than the last editor must activate the rule.",
            ),
            models.CheckConstraint(
                condition=~Q(state="shadow") | Q(shadowed_at__isnull=False),
                name="rule_version_shadow_since",
                violation_error_message="A shadow must say since when it watches.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule.name}, version {self.number}" if self.number else f"{self.rule.name}, draft"

    @property
    def who(self) -> str:
        """Who brought it into force, for people to read: without the id of their row."""
        return self.activated_by.split(":", 2)[-1]
