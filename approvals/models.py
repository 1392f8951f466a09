"""Rules, approvals and their decisions, channels and notifications, and the ledger's events.

What the database can refuse, it refuses: each constraint says in a sentence what it forbids.
"""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from approvals.digest import load
from approvals.ids import uuid7


class EffectClass(models.TextChoices):
    READ = "read", "Read: changes nothing"
    REVERSIBLE = "reversible", "Reversible: can be undone exactly"
    COMPENSABLE = "compensable", "Compensable: can be made good"
    IRREVERSIBLE = "irreversible", "Irreversible: cannot be taken back"


class Risk(models.TextChoices):
    LOW = "low", "Low"
    MEDIUM = "medium", "Medium"
    HIGH = "high", "High"
    CRITICAL = "critical", "Critical"


class Verdict(models.TextChoices):
    ALLOW = "allow", "Allow: runs without a person"
    ASK = "ask", "Ask: waits for a person"
    DENY = "deny", "Deny: refused, the model is told why"


class DecisionType(models.TextChoices):
    APPROVE = "approve", "Approve"
    EDIT = "edit", "Approve with changes"
    REJECT = "reject", "Reject"
    RESPOND = "respond", "Respond in the tool's place"


def every_decision() -> list[str]:
    return [str(value) for value in DecisionType.values]


class Rule(models.Model):
    """Which calls may run, must wait or are refused. The strictest matching verdict wins."""

    class OnExpiry(models.TextChoices):
        REJECT = "reject", "Reject it and tell the agent that no one decided"
        STOP = "stop", "Reject it and stop the run"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True, help_text="Shown to approvers, as in refunds-over-limit.")
    description = models.TextField(blank=True, help_text="Why this rule exists, in words an approver understands.")
    order = models.PositiveIntegerField(
        default=100, help_text="Among equally strict rules that match, the lowest number names the terms."
    )
    active = models.BooleanField(default=True)
    agent = models.CharField(max_length=80, blank=True, help_text="Name of one agent. Empty means every agent.")
    route = models.CharField(max_length=80, blank=True, help_text="Name of one route. Empty means every route.")
    tool = models.CharField(max_length=120, blank=True, help_text="Exact name of one tool. Empty means every tool.")
    effect_class = models.CharField(
        max_length=20, blank=True, choices=EffectClass, help_text="Empty means every effect class."
    )
    condition = models.TextField(
        blank=True,
        help_text="A CEL expression over args, tool, agent, run and customer, as in args.amount > 100.0. "
        "Empty means always. One that fails to evaluate asks a person.",
    )
    verdict = models.CharField(max_length=10, choices=Verdict)
    groups = models.ManyToManyField(
        Group, blank=True, help_text="Who may decide. Empty means everybody with the right to decide."
    )
    approvals_needed = models.PositiveSmallIntegerField(default=1, help_text="How many different people must approve.")
    starter_excluded = models.BooleanField(
        default=True, help_text="The person who started the run may not decide about its calls."
    )
    expires_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="How long people have. Empty means the installation's default."
    )
    on_expiry = models.CharField(max_length=10, choices=OnExpiry, default=OnExpiry.REJECT)
    allowed_decisions = models.JSONField(default=every_decision, help_text="Among approve, edit, reject, respond.")
    risk = models.CharField(max_length=10, choices=Risk, default=Risk.MEDIUM)
    hold_seconds = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="How long a decision can be undone before it takes effect. 0 runs at once."
    )
    version = models.PositiveIntegerField(default=1, editable=False)

    class Meta:
        ordering = ["order", "name"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(verdict=Verdict.ALLOW) | ~Q(tool="") | Q(effect_class=EffectClass.READ),
                name="rule_allow_is_exact",
                violation_error_message="A rule that allows must name one tool exactly, or only reads.",
            ),
            models.CheckConstraint(
                condition=Q(approvals_needed__gte=1),
                name="rule_needs_someone",
                violation_error_message="At least one person must approve.",
            ),
            models.CheckConstraint(
                condition=Q(hold_seconds__isnull=True) | Q(hold_seconds__lte=60),
                name="rule_hold_is_short",
                violation_error_message="A decision can be held for 60 seconds at most.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Approval(models.Model):
    """A request to people about one exact call: what they are shown, and what became of it.

    Everything on the card is frozen here when it is made, so that it can be shown again later
    whatever has become of the tool, the rule or the data.
    """

    class State(models.TextChoices):
        PENDING = "pending", "Waiting for a decision"
        APPROVED = "approved", "Approved"
        REJECTED = "rejected", "Rejected"
        RESPONDED = "responded", "Answered by a person"
        EXPIRED = "expired", "Expired"
        WITHDRAWN = "withdrawn", "Withdrawn"
        SUPERSEDED = "superseded", "Superseded"
        USED = "used", "Approved and used"

    DECIDED = (State.APPROVED, State.REJECTED, State.RESPONDED)
    OPEN = (State.PENDING, State.APPROVED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # Plain ids, not keys: this app knows neither runs nor executions.
    run_id = models.UUIDField(db_index=True)
    execution_id = models.UUIDField()
    agent = models.CharField(max_length=80)
    route = models.CharField(max_length=80, blank=True)
    run_title = models.CharField(max_length=200, blank=True)
    tool = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=64)
    effect_class = models.CharField(max_length=20, choices=EffectClass)
    arguments_text = models.TextField(help_text="The exact text that was proposed, in canonical form.")
    arguments = models.JSONField(default=dict, help_text="For searching only; the text decides.")
    action_digest = models.CharField(max_length=64)
    final_arguments_text = models.TextField(blank=True, help_text="What will run; differs when a person edited.")
    final_digest = models.CharField(max_length=64, blank=True)
    final_title = models.CharField(max_length=300, blank=True)

    title = models.CharField(max_length=300)
    sentence = models.JSONField(default=list, help_text="Pieces of the sentence: text, and whether it is a value.")
    effects = models.JSONField(default=list)
    button = models.CharField(max_length=60, blank=True, help_text="The size of the effect, as on the button.")
    locked_fields = models.JSONField(default=list)
    secret_fields = models.JSONField(default=list)
    evidence = models.JSONField(default=list)
    explanation = models.TextField(blank=True, help_text="The model's words: a claim, not a fact.")
    snapshot_text = models.TextField(blank=True, help_text="The state of the world the decision rests on.")
    difference = models.JSONField(default=list, help_text="What changed since the request this one replaces.")
    view_digest = models.CharField(max_length=64, help_text="Digest of everything shown.")

    rule = models.CharField(max_length=80, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    risk = models.CharField(max_length=10, choices=Risk, default=Risk.MEDIUM)
    allowed_decisions = models.JSONField(default=every_decision)
    approvals_needed = models.PositiveSmallIntegerField(default=1)
    starter = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    starter_excluded = models.BooleanField(default=True)
    editor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="Who made these arguments of the model's, on the request this one replaces.",
    )  # fmt: skip
    hold_seconds = models.PositiveSmallIntegerField(default=0)
    on_expiry = models.CharField(max_length=10, choices=Rule.OnExpiry, default=Rule.OnExpiry.REJECT)
    groups = models.ManyToManyField(Group, blank=True)

    state = models.CharField(max_length=12, choices=State, default=State.PENDING)
    version = models.PositiveIntegerField(default=1)
    supersedes = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="superseded_by"
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    runs_at = models.DateTimeField(null=True, blank=True, help_text="Until then the decision can be undone.")
    use_by = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True, help_text="When the decision took effect.")

    class Meta:
        ordering = ["-created_at"]
        permissions = [("decide_approval", "Can decide approvals")]
        indexes = [
            models.Index(fields=["state", "expires_at", "id"], name="approval_inbox"),
            models.Index(fields=["state", "-decided_at"], name="approval_decided"),
            models.Index(fields=["tool", "-created_at"], name="approval_alike"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["execution_id"],
                condition=Q(state__in=["pending", "approved"]),
                name="approval_one_open_per_call",
                violation_error_message="A call has one open approval at most.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["approved", "used"])
                | Q(decided_at__isnull=False, runs_at__isnull=False, use_by__isnull=False) & ~Q(final_digest=""),
                name="approval_approved_is_bound",
                violation_error_message="An approved request is bound to exact arguments and a time.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["rejected", "responded"]) | Q(decided_at__isnull=False, runs_at__isnull=False),
                name="approval_decided_has_times",
                violation_error_message="A decided request says when it was decided and when that takes effect.",
            ),
            models.CheckConstraint(
                condition=~Q(state="used") | Q(used_at__isnull=False),
                name="approval_used_has_time",
                violation_error_message="A used approval says when it was used.",
            ),
            models.CheckConstraint(
                condition=~Q(state="pending") | Q(used_at__isnull=True),
                name="approval_pending_is_unused",
                violation_error_message="A pending request has not been used.",
            ),
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def reference(self) -> str:
        """A short name for people, as in APR-7F3K. Taken from the random end of the key."""
        return f"APR-{self.id.hex[-6:].upper()}"

    @property
    def shown_title(self) -> str:
        return self.final_title or self.title

    @property
    def is_edited(self) -> bool:
        return bool(self.final_arguments_text) and self.final_arguments_text != self.arguments_text


class Decision(models.Model):
    """One person's verdict on an approval. Its key is chosen by the client, so that a repeat is harmless."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    type = models.CharField(max_length=10, choices=DecisionType)
    arguments_text = models.TextField(blank=True)
    message = models.TextField(blank=True)
    stop_run = models.BooleanField(default=False)
    approval_version = models.PositiveIntegerField()
    action_digest = models.CharField(max_length=64)
    view_digest = models.CharField(max_length=64)
    via = models.CharField(max_length=20)
    decided_at = models.DateTimeField()
    undone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["decided_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "user"],
                condition=Q(undone_at__isnull=True),
                name="decision_one_per_person",
                violation_error_message="A person decides once about a request.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_type_display()} by {self.user}"


class Channel(models.Model):
    """A way to tell people that something waits for them. Links lead to the signed-in page, never decide."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=80, unique=True)
    kind = models.CharField(max_length=20)
    config = models.JSONField(default=dict, blank=True, help_text="What the kind needs, as in {'to': ['a@b.example']}.")
    groups = models.ManyToManyField(
        Group, blank=True, help_text="Told about requests these groups may decide. Empty means every request."
    )
    active = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Notification(models.Model):
    """One sending over one channel, and its outcome."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="notifications")
    channel = models.ForeignKey(Channel, on_delete=models.PROTECT, related_name="notifications")
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["state", "created_at"], name="notification_queue")]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "channel"],
                name="notification_once_per_channel",
                violation_error_message="A channel is told once about a request.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.approval} over {self.channel}"


class Event(models.Model):
    """One fact in the ledger, chained to the one before. The database refuses update and delete."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chain = models.CharField(max_length=60)
    seq = models.PositiveIntegerField()
    type = models.CharField(max_length=60)
    run_id = models.UUIDField(null=True, blank=True)
    actor = models.CharField(max_length=200)
    at = models.DateTimeField()
    body = models.TextField(help_text="The canonical text that was hashed. The other columns repeat parts of it.")
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["chain", "seq"]
        indexes = [models.Index(fields=["-at", "-id"], name="event_latest")]
        constraints = [
            models.UniqueConstraint(
                fields=["chain", "seq"],
                name="event_one_per_place",
                violation_error_message="Two events cannot stand at one place of a chain.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.seq} {self.type}"

    @property
    def data(self) -> dict[str, Any]:
        """What the event says, read from the text that was hashed."""
        value: dict[str, Any] = load(self.body)["data"]
        return value
