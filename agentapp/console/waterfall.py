"""A run's last steps as a drawing of a few paths, for the list. Two queries for all runs of a page."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import F

from agentapp.messages import FAILED
from agentapp.models import Run, ToolExecution
from agentapp.timescale import Axis, Span, partition

# Only the end of a longer run is drawn: that is what people look for.
LAST_STEPS = 24
WIDTH = 120


def waterfalls(runs: Sequence[Run], now: datetime) -> dict[uuid.UUID, list[tuple[str, str]]]:
    """For each run the kinds of its bars, each with one path that draws all bars of that kind."""
    spans: dict[uuid.UUID, list[Span]] = defaultdict(list)
    keys = [run.pk for run in runs]
    ends = {run.pk: run.finished_at or now for run in runs}
    steps = Run.objects.filter(pk__in=keys, steps__number__gt=F("step_count") - LAST_STEPS)
    for key, start, end in steps.order_by().values_list("pk", "steps__started_at", "steps__finished_at"):
        spans[key].append(Span("model", start, end))
    calls = ToolExecution.objects.filter(
        run__in=keys, started_at__isnull=False, step__number__gt=F("run__step_count") - LAST_STEPS
    )
    what = ("run_id", "started_at", "finished_at", "result_status")
    for key, start, finished, status in calls.order_by().values_list(*what):
        spans[key].append(Span("failed" if status in FAILED else "tool", start, finished or ends[key]))
    for run in runs:
        if run.state == Run.State.WAITING and spans[run.pk]:
            spans[run.pk].append(Span("people", max(span.end for span in spans[run.pk]), ends[run.pk]))
    return {key: list(_paths(found, ends[key])) for key, found in spans.items() if found}


def _paths(spans: Sequence[Span], end: datetime) -> Iterable[tuple[str, str]]:
    start = min(span.start for span in spans)
    parts = partition(spans, start, max(end, start))
    axis = Axis(parts, start)
    drawn: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        if part.kind != "idle":
            x, width = axis.x(part.start), axis.width(part.start, part.end, least=1.0)
            drawn[part.kind].append(f"M{x * WIDTH / 100:.1f} 0h{width * WIDTH / 100:.1f}v8h-{width * WIDTH / 100:.1f}z")
    return ((kind, "".join(pieces)) for kind, pieces in drawn.items())
