"""Which workers take the runs of an agent: those of its own queue (`AGENT_QUEUES`), or else of the usual one."""

import uuid

from django.conf import settings

from agentapp.models import Run

USUAL = ""


def of_run(run_id: uuid.UUID) -> str:
    """The queue of a run's agent. One query if any agent has one of its own, otherwise none."""
    queues: dict[str, str] = settings.AGENT_QUEUES
    if not queues:
        return USUAL
    agent = Run.objects.filter(pk=run_id).values_list("agent__name", flat=True).first()
    return queues.get(agent or "", USUAL)
