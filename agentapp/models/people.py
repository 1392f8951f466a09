"""What each person has set for themselves, written by `preferences`; and how the first of them comes in."""

from django.conf import settings
from django.db import models

from approvals.ids import uuid7
from approvals.models import Risk


class Preferences(models.Model):
    """How the console looks and behaves for one person, and of what they are told. No row: the defaults."""

    class Theme(models.TextChoices):
        SYSTEM = "system", "As the system says"
        LIGHT = "light", "Light"
        DARK = "dark", "Dark"

    class Density(models.TextChoices):
        ROOMY = "roomy", "Roomy"
        DENSE = "dense", "Dense"

    class Rhythm(models.TextChoices):
        AT_ONCE = "at_once", "At once"
        HOURLY = "hourly", "Together, every hour"
        DAILY = "daily", "Together, once a day"

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preferences")
    theme = models.CharField(max_length=10, choices=Theme, default=Theme.SYSTEM)
    density = models.CharField(max_length=10, choices=Density, default=Density.ROOMY)
    single_keys = models.BooleanField(
        default=True, help_text="Single keys such as A and R act. Off: the palette still reaches everything."
    )
    notifications = models.JSONField(
        default=dict,
        blank=True,
        help_text="Kind of news to the ways it is told: browser, mail, chat. Missing: the default.",
    )
    least_risk = models.CharField(
        max_length=10, choices=Risk, default=Risk.LOW, help_text="Requests below this risk wait without a word."
    )
    quiet_from = models.TimeField(null=True, blank=True, help_text="From when on nothing is sent.")
    quiet_until = models.TimeField(null=True, blank=True)
    shows_arguments = models.BooleanField(
        default=False, help_text="Notifications name what would happen, also on a locked screen."
    )
    chat_name = models.CharField(
        max_length=64, blank=True, help_text="Their name where the channel for single people leads to."
    )
    follow_ups = models.BooleanField(
        default=False, help_text="A second message says what became of a request they were told of."
    )
    rhythm = models.CharField(
        max_length=10,
        choices=Rhythm,
        default=Rhythm.AT_ONCE,
        help_text="How often mail says what waits for their team.",
    )
    rhythm_at = models.TimeField(null=True, blank=True, help_text="At what time, once a day.")

    class Meta:
        verbose_name_plural = "preferences"
        constraints = [
            models.CheckConstraint(
                condition=~models.Q(rhythm="daily") | models.Q(rhythm_at__isnull=False),
                name="preferences_daily_has_time",
                violation_error_message="What is mailed once a day is mailed at some time.",
            )
        ]

    def __str__(self) -> str:
        return f"Preferences of {self.user}"


class SavedView(models.Model):
    """Filters of a list that a person keeps under a name."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    page = models.CharField(max_length=20, help_text="The list it is of, by the name of its page.")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=500, help_text="The query string of the page.")
    shared = models.BooleanField(
        default=False, help_text="Everybody who may open the page sees it; its maker keeps it."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "page", "name"],
                name="saved_view_once_per_name",
                violation_error_message="You have a view of that name already.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class SetupToken(models.Model):
    """What lets somebody make the first administrator, once. Written by `first_admin`. There is one row at most."""

    ONLY = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY, editable=False)
    digest = models.CharField(max_length=64, editable=False, help_text="Of the token; the token itself is nowhere.")
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(id=1),
                name="setup_token_is_alone",
                violation_error_message="There is one setup token at most.",
            )
        ]

    def __str__(self) -> str:
        return f"setup token until {self.expires_at}"
