"""How much of a run was told to a collector of traces. Written by `telemetry.exporting`."""

from django.db import models

from agentapp.models.runs import Run


class TraceProgress(models.Model):
    """The spans of a run that were exported. There is one only where spans are."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.CASCADE, related_name="trace_progress")
    steps = models.PositiveIntegerField(default=0, help_text="How many of its steps, from the first, were exported.")
    is_complete = models.BooleanField(default=False, help_text="The run has ended, and so was its own span.")
    claimed_until = models.DateTimeField(
        null=True, blank=True, help_text="So long one process exports it, and others leave it alone."
    )

    def __str__(self) -> str:
        return f"{self.run_id}: {self.steps} steps"
