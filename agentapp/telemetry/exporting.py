"""Telling a collector what runs did: the only writer of TraceProgress.

What happens to a run marks it here, and a thread of its own reads the rows some moments later: every step that is over
is sent, and the run's own span when that has ended. The rows are the queue. While the collector is away nothing piles
up but the ids of runs; how far a run has been told is a row, so that the next process goes on where one was killed.
"""

import atexit
import logging
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import Q
from django.utils import timezone

from agentapp.models import Run, TraceProgress
from agentapp.telemetry import content, reading
from agentapp.telemetry.spans import Span, Taken
from approvals import ledger
from approvals.clock import Now

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0
CLAIM_SECONDS = 60
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 60.0
ENDS_WITHIN_SECONDS = 2.0
MOST_MARKED = 10_000
# What a process that was killed had not told yet is looked for among the runs of this time.
LOOKS_BACK = timedelta(hours=24)
# After these a step or the run may be over.
_TURNING_POINTS = frozenset(
    {"step.recorded", "run.waiting", "run.released", "run.paused", *(f"run.{state}" for state in Run.FINAL)}
)

type Send = Callable[[Sequence[Span]], bool]
"""Sends spans; False: they did not arrive. Raises NotTaken: nor will they."""


class CollectorAway(Exception):
    """What was sent did not arrive. It is sent again later."""


class NotTaken(Exception):
    """These spans are refused as they are, in words why: too large, or nothing that the collector reads."""


def export_run(run_id: uuid.UUID, send: Send) -> bool:
    """Send what is over of a run and has not been sent. Raises CollectorAway; nothing is lost by that.

    False: another process is at it, and may have looked before what brings us here. Ask again.
    """
    progress = _claim(run_id)
    if progress is None:
        return not TraceProgress.objects.filter(pk=run_id, is_complete=False).exists()
    try:
        # Read when it is ours: what another process sees later, it does not get to tell.
        run = reading.run_with_what_it_names(run_id)
        if run is not None and not run.is_mocked:
            _export(run, progress.steps, send)
    finally:
        TraceProgress.objects.filter(pk=run_id).update(claimed_until=None)
    return True


def _export(run: Run, steps: int, send: Send) -> None:
    with_content = settings.OTEL_CONTENT
    hidden = content.hidden_of_family(run) if with_content else frozenset()
    now, progress = timezone.now(), TraceProgress.objects.filter(pk=run.pk)

    def tell(make: Callable[[bool], list[Span]]) -> None:
        """What is not taken is left out: it must not keep everything else from being told."""
        why = ""
        for with_content in (True, False) if settings.OTEL_CONTENT else (False,):
            try:
                return _send(send, make(with_content))
            except NotTaken as refused:
                why = str(refused)
        log.warning("The collector does not take spans of %s (%s). They are left out.", run.pk, why)
        return None

    while taken := reading.steps_behind(run, steps, with_content=with_content):
        over = [one for one in taken if run.is_final or not one.is_open]
        tell(partial(_of_steps, run, over, now, hidden))
        if over:
            steps = over[-1].step.number
            progress.update(steps=steps, claimed_until=Now() + timedelta(seconds=CLAIM_SECONDS))
        if len(over) < len(taken):
            return
    if run.is_final:
        tell(lambda full: [reading.root(run, now, hidden, with_content=full)])
        progress.update(is_complete=True)


def _of_steps(run: Run, over: list[Taken], now: datetime, hidden: frozenset[str], with_content: bool) -> list[Span]:
    return [span for one in over for span in reading.of_step(run, one, now, hidden, with_content=with_content)]


def _send(send: Send, spans: Sequence[Span]) -> None:
    if spans and not send(spans):
        raise CollectorAway


def _claim(run_id: uuid.UUID) -> TraceProgress | None:
    """How far a run has been told, for the one process that goes on with it. None: it is told, or another is at it."""
    TraceProgress.objects.get_or_create(run_id=run_id)
    free = Q(claimed_until__isnull=True) | Q(claimed_until__lte=Now())
    mine = TraceProgress.objects.filter(free, pk=run_id, is_complete=False)
    if not mine.update(claimed_until=Now() + timedelta(seconds=CLAIM_SECONDS)):
        return None
    return TraceProgress.objects.get(pk=run_id)


def untold(now: datetime) -> list[uuid.UUID]:
    """The runs of the last time whose end was not told: what processes that were killed have left."""
    told = Q(trace_progress__is_complete=True)
    recent = Run.objects.filter(updated_at__gte=now - LOOKS_BACK, state__in=Run.FINAL, mocks__isnull=True)
    recent = recent.exclude(told)
    return list(recent.order_by("-updated_at").values_list("pk", flat=True)[:1000])


class Exporting:
    """The thread that sends. `send` is made in it, when there is something to send."""

    def __init__(self, connect: Callable[[], Send]) -> None:
        self._connect = connect
        self._marked: dict[uuid.UUID, None] = {}
        self._changing = threading.Lock()
        self._something = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._is_away = False

    def hear(self, facts: Sequence[ledger.Fact]) -> None:
        """A listener of the ledger: marks runs, and does nothing else in the thread of whoever wrote."""
        for fact in facts:
            if fact.type in _TURNING_POINTS and fact.chain.startswith("run:"):
                self.mark(uuid.UUID(fact.chain.removeprefix("run:")))

    def mark(self, run_id: uuid.UUID) -> None:
        with self._changing:
            if len(self._marked) < MOST_MARKED:
                self._marked[run_id] = None
            if self._pid != os.getpid():
                # A worker that was forked has the marks of its parent, and not its thread.
                self._pid = os.getpid()
                self._something, self._stopping = threading.Event(), threading.Event()
                self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
                self._thread.start()
        self._something.set()

    def stop(self, within: float = ENDS_WITHIN_SECONDS) -> None:
        """Send what is marked, as far as there is time. What is left the next process finds."""
        self._stopping.set()
        self._something.set()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(within)

    def _work(self) -> None:
        try:
            send = self._connect()
        except Exception:
            log.exception("Traces cannot be exported")
            return
        self._remember()
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._something.wait()
            # Steps follow each other quickly: one look for several.
            is_last = self._stopping.wait(GATHER_SECONDS)
            self._something.clear()
            if self._round(send):
                pause = FIRST_PAUSE_SECONDS
            elif not is_last:
                is_last = self._stopping.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                self._something.set()
            if is_last or self._stopping.is_set():
                return

    def _round(self, send: Send) -> bool:
        """Export every run that is marked. False: the collector or the database is away, and they stay marked."""
        with self._changing:
            marked, self._marked = list(self._marked), {}
        try:
            for number, run_id in enumerate(marked):
                try:
                    if not export_run(run_id, send):
                        self.mark(run_id)
                except (CollectorAway, DatabaseError) as failure:
                    with self._changing:
                        # Last is where one goes that may be the only one not to arrive.
                        rest = [*marked[number + 1 :], *(each for each in self._marked if each != run_id), run_id]
                        self._marked = dict.fromkeys(rest)
                    self._say_away(failure)
                    return False
                except Exception:
                    # One run that cannot be told is no reason to tell of none.
                    log.exception("The spans of %s could not be made", run_id)
                else:
                    self._say_back()
            return True
        finally:
            connections.close_all()

    def _remember(self) -> None:
        try:
            for run_id in untold(timezone.now()):
                self.mark(run_id)
        except DatabaseError:
            log.warning("What was not exported before could not be looked for", exc_info=True)
        finally:
            connections.close_all()

    def _say_away(self, failure: Exception) -> None:
        """Once, and not for every batch."""
        if not self._is_away:
            why = "did not take them" if isinstance(failure, CollectorAway) else type(failure).__name__
            log.warning("Traces are not exported for now (%s). Runs go on; they are sent later.", why)
        self._is_away = True

    def _say_back(self) -> None:
        if self._is_away:
            log.info("Traces are exported again.")
        self._is_away = False


def collector() -> Send:
    """What sends to the collector that the standard variables name."""
    # Heavy: only a process that exports imports the SDK.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.util.re import parse_env_headers

    from agentapp.telemetry import otlp

    # A collector's key, which may be mounted as a file like every other secret. None: the library reads its variables.
    headers = parse_env_headers(settings.OTLP_SECRET_HEADERS, liberal=True) if settings.OTLP_SECRET_HEADERS else None
    session = otlp.session()
    exporter = OTLPSpanExporter(endpoint=settings.OTLP_TRACES_URL, headers=headers, session=session)

    def send(spans: Sequence[Span]) -> bool:
        if exporter.export([otlp.readable(span) for span in spans]) is SpanExportResult.SUCCESS:
            return True
        if why := session.refusal() if session is not None else "":
            raise NotTaken(why)
        return False

    return send


def begin() -> Exporting | None:
    """Export from now on, where the environment names a collector. None: it names none, and nothing is loaded."""
    if not settings.OTLP_TRACES_URL:
        return None
    exporting = Exporting(collector)
    ledger.listeners.append(exporting.hear)
    atexit.register(exporting.stop)
    return exporting


def end(exporting: Any) -> None:
    """Take back what `begin` did."""
    ledger.listeners.remove(exporting.hear)
    atexit.unregister(exporting.stop)
    exporting.stop()
