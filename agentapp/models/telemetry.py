"""How much of a run was exported to a trace collector. Written by `telemetry.exporting`."""

from django.db import models

from agentapp.models.runs import Run


class TraceProgress(models.Model):
    """The spans of a run that were exported. There is a row only if spans are."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.CASCADE, related_name="trace_progress")
    steps = models.PositiveIntegerField(default=0, help_text="How many of its steps were exported, from the first on.")
    is_complete = models.BooleanField(default=False, help_text="The run has ended, and its own span was exported.")
    claimed_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then one process exports it, and others leave it alone."
    )

    def __str__(self) -> str:
        return f"{self.run_id}: {self.steps} steps"
