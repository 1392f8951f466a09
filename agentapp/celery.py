"""The Celery application. A message is a nudge: it carries a run id and nothing else."""

import os
import sys

from celery import Celery
from celery.signals import worker_init, worker_ready, worker_shutting_down
from django.core.exceptions import ImproperlyConfigured
from kombu.transport import TRANSPORT_ALIASES

from agentapp import draining, garbage, secret_key

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")
# Celery would run Django's checks as each worker starts, and drop what they say. They import every page: a second and
# a half of a worker's start, and a fifth of its memory.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

# Under the names kombu knows: by the name it tells whether a connection is encrypted.
TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), "agentapp.redis_transport:Transport"))

app = Celery("countersign")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["agentapp", "approvals"])


@worker_init.connect
def look_at_key(**_: object) -> None:
    try:
        secret_key.demand()
    except ImproperlyConfigured as error:
        sys.exit(str(error))  # Celery would only log any other exception, and start


@worker_ready.connect
def begin_work(**_: object) -> None:
    garbage.spare_what_is_loaded()


@worker_ready.connect
def sweep_at_start(**_: object) -> None:
    """Find what a dead worker left behind at once, rather than at the next beat."""
    app.send_task("agentapp.tasks.sweep", retry=False)
    app.send_task("agentapp.tasks.roll_up", retry=False)


@worker_shutting_down.connect
def leave_runs_to_others(**_: object) -> None:
    draining.begun.set()
