"""A task carries the id of the request that led to it, and is timed. Connected to Celery by importing it."""

import time
from typing import Any

from celery.signals import before_task_publish, task_postrun, task_prerun

from agentapp import logs
from agentapp.telemetry import counting

HEADER = "countersign_request"
_begun: dict[str, float] = {}


@before_task_publish.connect
def send_along(headers: dict[str, Any] | None = None, **_: Any) -> None:
    request = logs.ids().get("request")
    if headers is not None and request:
        headers[HEADER] = request


@task_prerun.connect
def take_up(task_id: str = "", task: Any = None, **_: Any) -> None:
    _begun[task_id] = time.monotonic()
    # A broker puts the header next to Celery's own. When a task is called in place, it is among the headers.
    request = task.request.get(HEADER) or (task.request.headers or {}).get(HEADER) or ""
    # Others may use the same broker.
    logs.bind(request=logs.safe_id(str(request)), task=task_id)


@task_postrun.connect
def let_go(task_id: str = "", task: Any = None, state: str | None = None, **_: Any) -> None:
    begun = _begun.pop(task_id, None)
    if begun is not None:
        counting.tasks.labels(task.name, (state or "unknown").lower()).observe(time.monotonic() - begun)
    logs.bind()
