"""Exports what runs did to a collector: the only writer of TraceProgress.

Whatever happens to a run marks it here. A separate thread reads the rows a few moments later and sends every finished
step, then the run's own span when the run has ended. The rows are the queue. While the collector is away, only run ids
pile up. How far a run has been sent is stored in a row, so the next process continues where a killed one stopped.
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

from agentapp.models import Run, TraceProgress
from agentapp.telemetry import content, reading
from agentapp.telemetry.spans import Span, Taken
from approvals import clock, ledger
from approvals.clock import Now

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0
CLAIM_SECONDS = 60
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 60.0
ENDS_WITHIN_SECONDS = 2.0
MOST_MARKED = 10_000
# Runs this recent are searched for what a killed process had not sent.
LOOKS_BACK = timedelta(hours=24)
# After these events a step or the run may be over.
_TURNING_POINTS = frozenset(
    {"step.recorded", "run.waiting", "run.released", "run.paused", *(f"run.{state}" for state in Run.FINAL)}
)

type Send = Callable[[Sequence[Span]], bool]
"""Sends spans. False: they did not arrive. Raises NotTaken if they never will."""


class CollectorAway(Exception):
    """What was sent did not arrive. It is sent again later."""


class NotTaken(Exception):
    """The collector refuses these spans for good. The message says why, such as too large, or not readable."""


def export_run(run_id: uuid.UUID, send: Send) -> bool:
    """Send what is finished in a run and has not been sent. Raises CollectorAway, which loses nothing.

    False: another process is sending, and may have looked before the latest change. Ask again.
    """
    progress = _claim(run_id)
    if progress is None:
        return not TraceProgress.objects.filter(pk=run_id, is_complete=False).exists()
    try:
        # Read after the claim: this process must not send what another sees later.
        run = reading.run_with_what_it_names(run_id)
        if run is not None and not run.is_mocked:
            _export(run, progress.steps, send)
    finally:
        TraceProgress.objects.filter(pk=run_id).update(claimed_until=None)
    return True


def _export(run: Run, steps: int, send: Send) -> None:
    with_content = settings.OTEL_CONTENT
    hidden = content.hidden_of_family(run) if with_content else frozenset()
    now, progress = clock.now(), TraceProgress.objects.filter(pk=run.pk)

    def tell(make: Callable[[bool], list[Span]]) -> None:
        """Skip spans that are refused, so that they do not hold up everything else."""
        why = ""
        for with_content in (True, False) if settings.OTEL_CONTENT else (False,):
            try:
                return _send(send, make(with_content))
            except NotTaken as refused:
                why = str(refused)
        log.warning("The collector refuses spans of %s (%s). They are left out.", run.pk, why)
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
    """How far a run has been sent, for the one process that continues it. None: it is complete, or another process has
    it.
    """
    TraceProgress.objects.get_or_create(run_id=run_id)
    free = Q(claimed_until__isnull=True) | Q(claimed_until__lte=Now())
    mine = TraceProgress.objects.filter(free, pk=run_id, is_complete=False)
    if not mine.update(claimed_until=Now() + timedelta(seconds=CLAIM_SECONDS)):
        return None
    return TraceProgress.objects.get(pk=run_id)


def untold(now: datetime) -> list[uuid.UUID]:
    """Recent runs whose end was not sent: what killed processes left behind."""
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
        """A ledger listener: marks runs, and does nothing else in the writer's thread."""
        for fact in facts:
            if fact.type in _TURNING_POINTS and fact.chain.startswith("run:"):
                self.mark(uuid.UUID(fact.chain.removeprefix("run:")))

    def mark(self, run_id: uuid.UUID) -> None:
        with self._changing:
            if len(self._marked) < MOST_MARKED:
                self._marked[run_id] = None
            if self._pid != os.getpid():
                # A forked worker inherits its parent's marks but not its thread.
                self._pid = os.getpid()
                self._something, self._stopping = threading.Event(), threading.Event()
                self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
                self._thread.start()
        self._something.set()

    def stop(self, within: float = ENDS_WITHIN_SECONDS) -> None:
        """Send what is marked, as time allows. The next process finds what is left."""
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
            # Steps follow each other quickly, so wait a little and look once for several.
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
        """Export every marked run. False: the collector or the database is away, and the runs stay marked."""
        with self._changing:
            marked, self._marked = list(self._marked), {}
        try:
            for number, run_id in enumerate(marked):
                try:
                    if not export_run(run_id, send):
                        self.mark(run_id)
                except (CollectorAway, DatabaseError) as failure:
                    with self._changing:
                        # This run goes last: it may be the only one that does not arrive.
                        rest = [*marked[number + 1 :], *(each for each in self._marked if each != run_id), run_id]
                        self._marked = dict.fromkeys(rest)
                    self._say_away(failure)
                    return False
                except Exception:
                    # One failing run must not stop the export of the others.
                    log.exception("The spans of %s could not be made", run_id)
                else:
                    self._say_back()
            return True
        finally:
            connections.close_all()

    def _remember(self) -> None:
        try:
            for run_id in untold(clock.now()):
                self.mark(run_id)
        except DatabaseError:
            log.warning("Could not look for runs that were not exported before", exc_info=True)
        finally:
            connections.close_all()

    def _say_away(self, failure: Exception) -> None:
        """Log it once, not for every batch."""
        if not self._is_away:
            why = "the collector did not take them" if isinstance(failure, CollectorAway) else type(failure).__name__
            log.warning("Traces are not exported for now (%s). Runs go on; they are sent later.", why)
        self._is_away = True

    def _say_back(self) -> None:
        if self._is_away:
            log.info("Traces are exported again.")
        self._is_away = False


def collector() -> Send:
    """A function that sends to the collector named by the standard variables."""
    # The SDK is heavy, so only a process that exports imports it.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.util.re import parse_env_headers

    from agentapp.telemetry import otlp

    # The collector's key may be mounted as a file, like every other secret. None: the library reads its own variables.
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
    """Start exporting if the environment names a collector. None: it names none, and nothing is loaded."""
    if not settings.OTLP_TRACES_URL:
        return None
    exporting = Exporting(collector)
    ledger.listeners.append(exporting.hear)
    atexit.register(exporting.stop)
    return exporting


def end(exporting: Any) -> None:
    """Undo what `begin` did."""
    ledger.listeners.remove(exporting.hear)
    atexit.unregister(exporting.stop)
    exporting.stop()
