"""Who looks after which request: claims, snoozes, presence, absence. None of it gives or takes away a right."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import F, Q

from approvals.ids import uuid7
from approvals.models.approvals import Approval


class Claim(models.Model):
    """Who deals with a request: a person until their lease ends, or whom it was handed to. Written by `claims`.

    It only advises everybody else. Everybody who may decide may still decide.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.OneToOneField(Approval, on_delete=models.CASCADE, related_name="claim")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="claims"
    )
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE, related_name="claims")
    until = models.DateTimeField(
        null=True, blank=True, help_text="When the lease ends. Empty: it was handed over, and stays."
    )
    handed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=300, blank=True, help_text="A note from the person who handed it over.")
    claimed_at = models.DateTimeField()

    class Meta:
        ordering = ["-claimed_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=False, group__isnull=True) | Q(user__isnull=True, group__isnull=False),
                name="claim_is_somebodys",
                violation_error_message="A claim must belong to one person or one group.",
            ),
            models.CheckConstraint(
                condition=Q(until__isnull=False) | Q(handed_by__isnull=False),
                name="claim_ends_or_was_handed",
                violation_error_message="A claim must end, unless the request was handed over.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.approval} with {self.user or self.group}"


class Snooze(models.Model):
    """A request that one person does not want to see for a while, never past its time. Written by `claims`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="snoozes")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="snoozes")
    until = models.DateTimeField()

    class Meta:
        ordering = ["until"]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "user"],
                name="snooze_once_per_person",
                violation_error_message="A person snoozes a request once.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.approval} for {self.user}"


class Viewer(models.Model):
    """Who has a request open, as their page last reported. Written by `presence`; old rows mean nothing."""

    class Doing(models.TextChoices):
        VIEWING = "viewing", "Viewing"
        EDITING = "editing", "Editing"
        AWAY = "away", "Away"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="viewers")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    doing = models.CharField(max_length=10, choices=Doing, default=Doing.VIEWING)
    seen_at = models.DateTimeField()
    shown_at = models.DateTimeField(null=True, blank=True, help_text="When the console first showed them the request.")

    class Meta:
        ordering = ["-seen_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "user"],
                name="viewer_once_per_person",
                violation_error_message="A person has a request open once.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.doing} {self.approval}"


class Absence(models.Model):
    """Who looks after a person's queue while they are away. It passes on work, not rights. Written by `absences`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="absence")
    deputy = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="deputises_for")
    since = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        ordering = ["until"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(user=F("deputy")),
                name="absence_has_another",
                violation_error_message="Nobody can stand in for themselves.",
            ),
            models.CheckConstraint(
                condition=Q(until__gt=F("since")),
                name="absence_ends_after_it_begins",
                violation_error_message="An absence must end after it begins.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.deputy} for {self.user}"
