"""Signs of life. Heartbeat is written by `agentapp/sweep.py`."""

from django.db import models


class Heartbeat(models.Model):
    """When something that must happen all the time happened last."""

    name = models.CharField(max_length=40, primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
