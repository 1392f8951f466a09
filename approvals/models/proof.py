"""What makes the ledger provable: where chains end, what was signed about them, and the checks whether it holds.

ChainHead is written by `ledger`, and its coverage by `proof.checkpoints`; the keys, checkpoints and leaves by
`proof.checkpoints`, Anchor by `proof.anchors`, Verification by `proof.verifying`.
"""

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals.ids import uuid7


class ChainHead(models.Model):
    """The last event of a chain. It only moves forward; the database refuses anything else."""

    chain = models.CharField(max_length=60, primary_key=True)
    seq = models.PositiveIntegerField()
    hash = models.CharField(max_length=64)
    covered_seq = models.PositiveIntegerField(default=0, help_text="The last event that a checkpoint covers.")
    uncovered = models.BooleanField(default=True, help_text="Whether there are events that no checkpoint covers.")

    class Meta:
        ordering = ["chain"]
        # Not over seq, which changes with each event: a row whose indexed columns do not change is updated in place.
        indexes = [models.Index(fields=["chain"], condition=Q(uncovered=True), name="chainhead_uncovered")]

    def __str__(self) -> str:
        return f"{self.chain} {self.seq}"


class LedgerKey(models.Model):
    """A public key that checkpoints are signed with, and the statement made when it was introduced."""

    key_id = models.CharField(max_length=64, primary_key=True)
    public_key = models.CharField(max_length=44)
    number = models.PositiveIntegerField(unique=True)
    statement = models.TextField(help_text="That this key follows the one before, as canonical JSON.")
    signature = models.CharField(max_length=88, help_text="Of the statement, by this key.")
    endorsement = models.CharField(
        max_length=88, blank=True, help_text="The same by the key before, if it was available."
    )
    introduced_at = models.DateTimeField()

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.key_id[:16]}, number {self.number}"


class Checkpoint(models.Model):
    """One signed statement about everything that has happened since the one before."""

    number = models.PositiveBigIntegerField(primary_key=True)
    statement = models.TextField(help_text="What was signed, as canonical JSON. The other columns repeat parts of it.")
    digest = models.CharField(max_length=64, help_text="Of the statement; the next one names it.")
    key_id = models.CharField(max_length=64)
    signature = models.CharField(max_length=88)
    events = models.PositiveBigIntegerField(help_text="How many events are covered since the first checkpoint.")
    made_at = models.DateTimeField()

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return f"Checkpoint {self.number}"


class CheckpointLeaf(models.Model):
    """What one checkpoint covers of one chain: the events `first` to `last`, under their own root."""

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="leaves")
    position = models.PositiveIntegerField()
    chain = models.CharField(max_length=60)
    first = models.PositiveIntegerField()
    last = models.PositiveIntegerField()
    hash = models.CharField(max_length=64, help_text="Of the last event.")
    root = models.CharField(max_length=64, help_text="Of the tree over the hashes of these events.")

    class Meta:
        ordering = ["checkpoint", "position"]
        constraints = [
            models.UniqueConstraint(fields=["checkpoint", "position"], name="leaf_one_per_position"),
            models.UniqueConstraint(fields=["chain", "first"], name="leaf_begins_once"),
            models.UniqueConstraint(fields=["chain", "last"], name="leaf_one_per_event"),
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.first} to {self.last}"


class Anchor(models.Model):
    """How far one place outside the database knows the checkpoints."""

    class Target(models.TextChoices):
        FILE = "file", "File"
        URL = "url", "Address"

    target = models.CharField(max_length=4, choices=Target, primary_key=True)
    reached = models.PositiveBigIntegerField(default=0)
    reached_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0, help_text="Failed attempts in a row.")
    next_at = models.DateTimeField(null=True, blank=True, help_text="It is not tried again before then.")
    failing_since = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return f"{self.target}: {self.reached}"


class Verification(models.Model):
    """One check whether the ledger holds, in slices: if a worker dies, another goes on from there."""

    class State(models.TextChoices):
        RUNNING = "running", "Running"
        DONE = "done", "Done"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    state = models.CharField(max_length=7, choices=State, default=State.RUNNING)
    chain = models.CharField(max_length=60, blank=True, help_text="Only this chain. Empty: every one.")
    since = models.DateTimeField(
        null=True, blank=True, help_text="Only chains in which something has happened since then."
    )
    until = models.DateTimeField(null=True, blank=True, help_text="And before then.")
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="When a worker last reported its progress.")
    finished_at = models.DateTimeField(null=True, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True)
    cursor = models.JSONField(default=dict, blank=True, help_text="Where to go on.")
    events_total = models.PositiveBigIntegerField(default=0, help_text="Roughly how many events there are to look at.")
    events = models.PositiveBigIntegerField(default=0, help_text="How many hold.")
    checkpoints = models.PositiveBigIntegerField(default=0, help_text="How many hold.")
    signed = models.PositiveBigIntegerField(default=0, help_text="How many signed decisions hold.")
    holds = models.BooleanField(null=True, blank=True)
    broken = models.JSONField(null=True, blank=True, help_text="The first one that does not hold, with its neighbours.")

    class Meta:
        ordering = ["-started_at"]
        indexes = [models.Index(fields=["state", "-started_at"], name="verification_latest")]

    def __str__(self) -> str:
        return f"Verification {self.started_at:%Y-%m-%d %H:%M}"

    @property
    def whole(self) -> bool:
        return not self.chain and self.since is None and self.until is None
