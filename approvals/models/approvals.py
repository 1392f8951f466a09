"""Requests to people. Written by `decisions`."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from approvals import lens
from approvals.ids import uuid7
from approvals.masking import blotted
from approvals.models.choices import ApprovalKind, Assurance, EffectClass, Risk, every_decision
from approvals.models.noted import Noted
from approvals.models.rules import Rule
from approvals.snapshots import unseen_in


class Approval(Noted, models.Model):
    """A request to people about one exact call: what they are shown, and what became of it.

    Everything on the card is frozen here when it is made, so that it can be shown again later, whatever has happened
    to the tool, the rule or the data.
    """

    class State(models.TextChoices):
        PENDING = "pending", "Waiting for a decision"
        ASKED = "asked", "Waiting for an answer"
        APPROVED = "approved", "Approved"
        REJECTED = "rejected", "Rejected"
        RESPONDED = "responded", "Answered by a person"
        EXPIRED = "expired", "Expired"
        WITHDRAWN = "withdrawn", "Withdrawn"
        SUPERSEDED = "superseded", "Superseded"
        USED = "used", "Approved and used"

    class Ending(models.TextChoices):
        DECIDED = "decided", "Decided"
        EXPIRED = "expired", "Expired"
        WITHDRAWN = "withdrawn", "Withdrawn"
        SUPERSEDED = "superseded", "Superseded"

    # A question stops the clock, but stops nobody from deciding.
    UNDECIDED = (State.PENDING, State.ASKED)
    DECIDED = (State.APPROVED, State.REJECTED, State.RESPONDED)
    OPEN = (*UNDECIDED, State.APPROVED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # Plain ids, not keys: this app knows neither runs nor executions.
    run_id = models.UUIDField(db_index=True)
    execution_id = models.UUIDField()
    kind = models.CharField(max_length=13, choices=ApprovalKind, default=ApprovalKind.AUTHORIZATION)
    agent = models.CharField(max_length=80)
    route = models.CharField(max_length=80, blank=True)
    run_title = models.CharField(max_length=200, blank=True)
    tool = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=64)
    effect_class = models.CharField(max_length=20, choices=EffectClass)
    arguments_text = models.TextField(help_text="The exact text that was proposed, in canonical form.")
    arguments = models.JSONField(default=dict, help_text="For searching only; the text decides.")
    action_digest = models.CharField(max_length=64)
    salt = models.CharField(
        max_length=32, blank=True, default="", editable=False, help_text="The salt of its call; part of both digests."
    )
    final_arguments_text = models.TextField(blank=True, help_text="What will run. It differs if a person changed it.")
    final_digest = models.CharField(max_length=64, blank=True)
    final_title = models.CharField(max_length=300, blank=True)

    title = models.CharField(max_length=300)
    sentence = models.JSONField(default=list, help_text="Pieces of the sentence: the text, and whether it is a value.")
    effects = models.JSONField(default=list)
    button = models.CharField(max_length=60, blank=True, help_text="The size of the effect, as on the button.")
    locked_fields = models.JSONField(default=list)
    secret_fields = models.JSONField(default=list)
    pii_fields = models.JSONField(default=list, blank=True)
    evidence = models.JSONField(default=list)
    explanation = models.TextField(blank=True, help_text="The model's words: a claim, not a fact.")
    snapshot_text = models.TextField(blank=True, help_text="The state of the world the decision rests on.")
    preview_text = models.TextField(blank=True, help_text="A dry run of the call, as canonical JSON.")
    plan_text = models.TextField(
        blank=True, help_text="For a plan: each of its calls as people are shown it, as canonical JSON."
    )
    final_preview_text = models.TextField(blank=True, help_text="A dry run of the call as a person changed it.")
    difference = models.JSONField(default=list, help_text="What changed since the request this one replaces.")
    view_digest = models.CharField(max_length=64, help_text="Digest of everything shown.")

    rule = models.CharField(max_length=80, blank=True)
    rule_version = models.PositiveIntegerField(
        default=0, help_text="The version that asked. 0: no rule asked, or it is not known."
    )
    rule_digest = models.CharField(max_length=64, blank=True, help_text="Digest of that version's terms.")
    reason = models.CharField(max_length=500, blank=True)
    condition = models.TextField(blank=True, help_text="What the rule looks at, as it was when this was asked.")
    rule_values = models.JSONField(default=list, help_text="What the rule found there: [{name, value}].")
    risk = models.CharField(max_length=10, choices=Risk, default=Risk.MEDIUM)
    risk_factors = models.JSONField(default=list, help_text="Why the risk is what it is: [{name, points, words}].")
    provenance = models.JSONField(
        default=list, help_text="Where each value came from: [{path, origin, source, step, call, ref, quote, part}]."
    )
    second_look = models.JSONField(
        default=dict,
        blank=True,
        help_text="What another model said about it: {verdict, why, model}. A claim; it decides nothing.",
    )
    allowed_decisions = models.JSONField(default=every_decision)
    approvals_needed = models.PositiveSmallIntegerField(default=1)
    terms = models.JSONField(
        default=list, help_text="Thresholds of each rule that asked. Empty: as many people as `approvals_needed` says."
    )
    about = models.JSONField(
        default=dict, help_text="What the conditions of thresholds look at, besides the arguments."
    )
    starter = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    starter_excluded = models.BooleanField(default=True)
    excluded = models.JSONField(
        default=list,
        help_text="Keys of the people who had a hand in the run, for example by taking it over: they decide nothing "
        "about its calls.",
    )
    editor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="Who changed the model's arguments into these, on the request this one replaces.",
    )  # fmt: skip
    editor_lender = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        help_text="Whose right the editor was lent to do that. None: it was their own.",
    )  # fmt: skip
    assurance_needed = models.CharField(
        max_length=10, blank=True, choices=Assurance, help_text="How people who approve it show who they are."
    )
    mocked = models.BooleanField(
        default=False, help_text="Part of a mocked run: nobody is asked or told, and an eval says what is decided."
    )
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
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it stopped waiting for people.")
    ended_as = models.CharField(
        max_length=10, blank=True, choices=Ending, help_text="How it stopped waiting, whatever happened afterwards."
    )
    runs_at = models.DateTimeField(null=True, blank=True, help_text="The decision can be undone until then.")
    use_by = models.DateTimeField(null=True, blank=True)
    paused_seconds = models.PositiveIntegerField(default=0, help_text="How long questions have stopped its clock.")
    business_hours = models.BooleanField(default=False, help_text="Its clock counts only business time.")
    expires_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="How long its clock runs.")
    escalation = models.JSONField(
        default=list,
        blank=True,
        help_text="The rule's steps, with their times: [{after, group, group_id, remind, at, taken_at}].",
    )
    escalated = models.PositiveSmallIntegerField(default=0, help_text="How many of these steps have been taken.")
    escalates_at = models.DateTimeField(null=True, blank=True, help_text="When the next step is taken.")
    target_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="How long somebody should take to decide, by its clock."
    )
    target_at = models.DateTimeField(null=True, blank=True)
    breached_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was found that nobody had decided by the target."
    )
    used_at = models.DateTimeField(null=True, blank=True, help_text="When the decision took effect.")
    erased_at = models.DateTimeField(null=True, blank=True, help_text="When its words were erased.")
    erased_by = models.CharField(max_length=200, blank=True, help_text="Who erased them, or that retention did.")

    class Meta:
        ordering = ["-created_at"]
        permissions = [
            ("decide_approval", "Can decide approvals"),
            ("reveal_pii", "Can see personal data on every page"),
            ("reveal_secret", "Can see masked arguments of requests they may decide"),
        ]
        indexes = [
            models.Index(fields=["state", "expires_at", "id"], name="approval_inbox"),
            models.Index(fields=["state", "-decided_at"], name="approval_decided"),
            models.Index(fields=["tool", "-created_at"], name="approval_alike"),
            models.Index(fields=["rule", "-created_at"], name="approval_of_rule"),
            models.Index(
                fields=["escalates_at"],
                condition=Q(state__in=["pending", "asked"], escalates_at__isnull=False),
                name="approval_escalates",
            ),
            models.Index(
                fields=["target_at"],
                condition=Q(state__in=["pending", "asked"], target_at__isnull=False, breached_at__isnull=True),
                name="approval_target",
            ),
            models.Index(fields=["ended_at"], condition=Q(ended_at__isnull=False), name="approval_ended"),
            models.Index(fields=["created_at"], name="approval_created"),
            models.Index(fields=["breached_at"], condition=Q(breached_at__isnull=False), name="approval_breached"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["execution_id"],
                condition=Q(state__in=["pending", "asked", "approved"]),
                name="approval_one_open_per_call",
                violation_error_message="A call can have at most one open approval.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["approved", "used"])
                | Q(decided_at__isnull=False, runs_at__isnull=False, use_by__isnull=False) & ~Q(final_digest=""),
                name="approval_approved_is_bound",
                violation_error_message="An approved request must be bound to exact arguments and a time.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["rejected", "responded"]) | Q(decided_at__isnull=False, runs_at__isnull=False),
                name="approval_decided_has_times",
                violation_error_message="A decided request must say when it was decided and when that takes effect.",
            ),
            models.CheckConstraint(
                condition=~Q(state="used") | Q(used_at__isnull=False),
                name="approval_used_has_time",
                violation_error_message="A used approval must say when it was used.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["pending", "asked"]) | Q(used_at__isnull=True),
                name="approval_pending_is_unused",
                violation_error_message="A pending request cannot have been used.",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["pending", "asked"]) | Q(ended_at__isnull=True),
                name="approval_waiting_has_not_ended",
                violation_error_message="A request that waits cannot have ended.",
            ),
            models.CheckConstraint(
                condition=Q(on_expiry__in=["reject", "stop"]),
                name="approval_expiry_never_approves",
                violation_error_message="A request that nobody decided in time is rejected. It is never approved.",
            ),
            models.CheckConstraint(
                condition=Q(plan_text="") | Q(kind="plan"),
                name="approval_plan_says_so",
                violation_error_message="Only a plan can have planned calls.",
            ),
            models.CheckConstraint(
                condition=Q(breached_at__isnull=True) | Q(target_at__isnull=False),
                name="approval_breach_has_target",
                violation_error_message="Only a request with a target can miss it.",
            ),
            models.CheckConstraint(
                condition=Q(assurance_needed="") | Q(assurance_needed__in=Assurance.values) & ~Q(kind="confirmation"),
                name="approval_assurance_of_people",
                violation_error_message="The assurance must be a known level; customers show none.",
            ),
            models.CheckConstraint(
                condition=~Q(risk="critical") | Q(kind="confirmation") | ~Q(assurance_needed=""),
                name="approval_critical_asks_assurance",
                violation_error_message="People who approve a critical request must show who they are.",
            ),
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def reference(self) -> str:
        """A short name for people, such as APR-7F3K, taken from the random end of the key."""
        return f"APR-{self.id.hex[-6:].upper()}"

    @property
    def shown_title(self) -> str:
        return self.final_title or self.title

    @property
    def asks_customer(self) -> bool:
        return self.kind == ApprovalKind.CONFIRMATION

    @property
    def is_plan(self) -> bool:
        return self.kind == ApprovalKind.PLAN

    @property
    def is_proposed_anew(self) -> bool:
        """Whether the agent asks for different arguments from those on the request this one replaces.

        If the tool has changed since, the call is asked about as it was proposed, whatever people had made of it.
        """
        differs = any(line.get("of") == "arguments" for line in self.difference)
        return differs and self.supersedes is not None and self.supersedes.tool_version == self.tool_version

    @property
    def is_tried_again(self) -> bool:
        """Whether its call was begun under the request this one replaces, and nobody knew the outcome."""
        return self.supersedes is not None and self.supersedes.state == self.State.USED

    @property
    def why_unseen(self) -> list[str]:
        """Why the state that the decision rests on could not be looked up. Empty: it was, or the tool names none."""
        found = unseen_in(self.snapshot_text)
        return [blotted(why, lens.values_of(self.__dict__, self.secret_fields)) for why in found]

    @property
    def shown_preview_text(self) -> str:
        """The dry run of what would run now."""
        return self.final_preview_text if self.is_edited else self.preview_text

    TELLS_OF_EDITS = ("arguments_text", "final_arguments_text", "erased_at", "action_digest", "final_digest")
    """The columns that `is_edited` needs, for queries that read no more than that."""

    @property
    def is_edited(self) -> bool:
        if self.erased_at is not None:
            # Both texts are gone. The digests that bind them are still there.
            return bool(self.final_arguments_text) and self.final_digest != self.action_digest
        return bool(self.final_arguments_text) and self.final_arguments_text != self.arguments_text
