"""What a process does for telemetry when it starts. Even with nothing configured, it times its requests and tasks."""

from django.conf import settings

from agentapp.telemetry import counting, exporting
from agentapp.telemetry import tasks as tasks  # connects to Celery
from approvals import ledger


def begin() -> None:
    if settings.METRICS_TOKEN:
        ledger.listeners.append(counting.hear)
    exporting.begin()
