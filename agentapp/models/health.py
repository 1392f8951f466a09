"""Signs of life. Heartbeat is written by `agentapp/sweep.py`, Continuity by `agentapp/continuity.py`."""

import uuid

from django.db import models


class Heartbeat(models.Model):
    """When something that must keep happening last happened."""

    name = models.CharField(max_length=40, primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Continuity(models.Model):
    """The one row that identifies a database: runs are claimed only where it says that this is the right one."""

    name = models.CharField(max_length=4, primary_key=True, default="here")
    mark = models.UUIDField(default=uuid.uuid4, help_text="Identifies this installation; a copy has the same.")
    tables = models.CharField(max_length=80, help_text="Which tables these are, by something a copy cannot share.")
    sweeps = models.PositiveBigIntegerField(default=0, help_text="How often it was swept; only ever grows.")

    class Meta:
        verbose_name_plural = "continuity"

    def __str__(self) -> str:
        return str(self.mark)
