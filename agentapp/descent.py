"""The runs that a run descends from: retries, forks and replays, however many deep. Reads only."""

import uuid

from django.db import connection, models

from agentapp.models import Run

_LINE = """
WITH RECURSIVE line (id, retry_of_id, place) AS (
    SELECT id, retry_of_id, 0 FROM agentapp_run WHERE id = %s
    UNION ALL
    SELECT earlier.id, earlier.retry_of_id, line.place + 1
    FROM agentapp_run AS earlier JOIN line ON earlier.id = line.retry_of_id
)
SELECT agentapp_run.* FROM agentapp_run JOIN line ON line.id = agentapp_run.id ORDER BY line.place
"""


def line_of(run: Run) -> list[Run]:
    """The runs that a run descends from, the latest first, each with the one before it loaded.

    One query, however long the line is; none if it has already been read.
    """
    found: list[Run] = []
    at = run
    while at.retry_of_id is not None and "retry_of" in at._state.fields_cache:
        assert at.retry_of is not None
        at = at.retry_of
        found.append(at)
    for earlier in _read(at.retry_of_id) if at.retry_of_id is not None else ():
        at.retry_of = earlier
        at = earlier
        found.append(at)
    return found


def _read(key: uuid.UUID) -> list[Run]:
    stored = models.UUIDField().get_db_prep_value(key, connection)
    return list(Run.objects.raw(_LINE, [stored]))
