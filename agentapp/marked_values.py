"""The values of marked fields, in the calls of runs and in the requests about those calls. Reads only."""

import uuid
from collections.abc import Collection
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import connection, models
from django.db.models import Q

from agentapp.models import ToolExecution
from approvals import lens
from approvals.models import Approval
from approvals.streaming import streamed

_PERSONAL = ("pii_fields", "tool__pii_fields")
_SECRET = ("secret_fields", "tool__secret_fields")
_OF_CALLS = ("arguments_text", "proposed_text", "executed_text", "result_text", "comparison")
# Superseded requests are read too: lists show them.
_OF_REQUESTS = (
    "arguments_text", "final_arguments_text", "snapshot_text", "preview_text", "final_preview_text", "difference",
)  # fmt: skip


# A run's ancestors: the runs it retries, forks or replays, the run whose call it undoes, the run that asked for it, and
# their ancestors. Then every run that any of these asked for, since they repeat its answers. No run is read twice.
_KIN = """
WITH RECURSIVE above (id) AS (
    SELECT id FROM agentapp_run WHERE id IN ({})
    UNION
    SELECT earlier.id
    FROM above
    JOIN agentapp_run AS run ON run.id = above.id
    LEFT JOIN agentapp_toolexecution AS undone ON undone.id = run.undoes_id
    JOIN agentapp_run AS earlier ON earlier.id IN (run.retry_of_id, run.parent_id, undone.run_id)
), kin (id) AS (
    SELECT id FROM above
    UNION
    SELECT asked.id FROM kin JOIN agentapp_run AS asked ON asked.parent_id = kin.id
)
SELECT id FROM kin
"""


class TooMuchMarked(PermissionDenied):
    """An answer holds more marked values than can be searched. None of it is shown."""


class Values:
    """The values marked as personal in calls and requests, and as secret if asked for. Raises TooMuchMarked beyond the
    given number of rows of each, or of characters.
    """

    def __init__(self, *, secret: bool = False, most_rows: int | None = None, most_chars: int | None = None) -> None:
        self.found: set[str] = set()
        self._secret, self._most_rows, self._most_chars, self._chars = secret, most_rows, most_chars, 0

    def read(self, runs: Collection[Any]) -> set[str]:
        """The marked values of these runs, and of runs whose words they may repeat. Three queries for any number."""
        runs = _with_kin(runs)
        marks = _PERSONAL + (_SECRET if self._secret else ())
        calls = ToolExecution.objects.filter(_any_of(marks), run__in=runs).order_by()
        names: dict[uuid.UUID, set[str]] = {}
        with streamed(calls.values_list("pk", *marks, *_OF_CALLS)[: self._limit]) as rows:
            for pk, *row in rows:
                names[pk] = _names(row[: len(marks)])
                self._take(len(names), dict(zip(_OF_CALLS, row[len(marks) :], strict=True)), names[pk])
        own = ("pii_fields", "secret_fields") if self._secret else ("pii_fields",)
        requests = Approval.objects.filter(_any_of(own) | Q(execution_id__in=calls.values("pk")), run_id__in=runs)
        with streamed(requests.order_by().values_list("execution_id", *own, *_OF_REQUESTS)[: self._limit]) as rows:
            for number, (pk, *row) in enumerate(rows, start=1):
                asked = _names(row[: len(own)]) | names.get(pk, set())
                self._take(number, dict(zip(_OF_REQUESTS, row[len(own) :], strict=True)), asked)
        return self.found

    @property
    def _limit(self) -> int | None:
        return None if self._most_rows is None else self._most_rows + 1

    def _take(self, number: int, columns: dict[str, Any], names: set[str]) -> None:
        self._chars += sum(map(len, {text for text in columns.values() if isinstance(text, str)}))
        too_many = self._most_rows is not None and number > self._most_rows
        if too_many or (self._most_chars is not None and self._chars > self._most_chars):
            raise TooMuchMarked("There are too many marked values here to mask them all. Narrow the selection.")
        self.found |= lens.values_of(columns, names)


def _with_kin(runs: Collection[Any]) -> list[Any]:
    key = models.UUIDField()
    stored = [key.get_db_prep_value(run, connection) for run in runs]
    with connection.cursor() as cursor:
        cursor.execute(_KIN.format(", ".join(["%s"] * len(stored))), stored)
        return [run for (run,) in cursor]


def _any_of(columns: Collection[str]) -> Q:
    marked = Q(pk__in=[])
    for name in columns:
        marked |= Q(**{f"{name}__isnull": False}) & ~Q(**{name: []})
    return marked


def _names(marks: Collection[list[str] | None]) -> set[str]:
    return {name for fields in marks for name in fields or ()}
