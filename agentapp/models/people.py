"""What each person has set for themselves, written by `preferences`; and how the first administrator gets in."""

from django.conf import settings
from django.db import models

from approvals.ids import uuid7
from approvals.models import Risk


class Preferences(models.Model):
    """How the console looks and behaves for one person, and what they are told about. No row: the defaults."""

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
        help_text="For each kind of news, how it is told: browser, mail, chat. Missing: the default.",
    )
    least_risk = models.CharField(
        max_length=10, choices=Risk, default=Risk.LOW, help_text="Requests below this risk wait without a notification."
    )
    quiet_from = models.TimeField(null=True, blank=True, help_text="Nothing is sent from this time on.")
    quiet_until = models.TimeField(null=True, blank=True)
    shows_arguments = models.BooleanField(
        default=False, help_text="Notifications say what would happen, even on a locked screen."
    )
    chat_name = models.CharField(
        max_length=64, blank=True, help_text="Their name in the service that the personal channel reaches."
    )
    follow_ups = models.BooleanField(
        default=False, help_text="A second message says what became of a request they were told about."
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
                violation_error_message="Mail that is sent once a day needs a time.",
            )
        ]

    def __str__(self) -> str:
        return f"Preferences of {self.user}"


class SavedView(models.Model):
    """The filters of a list, saved by a person under a name."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    page = models.CharField(max_length=20, help_text="The list it belongs to, by the name of its page.")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=500, help_text="The query string of the page.")
    shared = models.BooleanField(
        default=False, help_text="Everybody who may open the page sees it; it stays its maker's."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "page", "name"],
                name="saved_view_once_per_name",
                violation_error_message="You already have a view of that name.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class SetupToken(models.Model):
    """Lets somebody make the first administrator, once. Written by `first_admin`. There is at most one row."""

    ONLY = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY, editable=False)
    digest = models.CharField(
        max_length=64, editable=False, help_text="The digest of the token. The token itself is not stored."
    )
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(id=1),
                name="setup_token_is_alone",
                violation_error_message="There can be at most one setup token.",
            )
        ]

    def __str__(self) -> str:
        return f"setup token until {self.expires_at}"
