"""The only writer of Breaker: what stops calls to something that keeps failing.

A breaker is closed until so many failures in a row, then open. When it has cooled down, by the
database's clock, one call is let through as a probe: it closes the breaker or opens it again.
Breakers are rows, so every worker sees the same one. While nothing fails, none is read or written:
`runs.with_configuration` says at no cost whether any needs a look.

A transaction locks in this order: the agent's day before breakers when a call begins, and breakers before a
conversation when words are erased.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F, Q

from agentapp.messages import ToolResult
from agentapp.models import Breaker, Run, Tool, ToolExecution
from agentapp.reasons import Reason
from approvals import ledger, lens
from approvals.clock import Now
from approvals.detectors import clean
from approvals.digest import storable
from approvals.sealed import ERASED

State = Breaker.State
Scope = Breaker.Scope

# One failing tool must not stop the other tools of its source.
_SOURCE_FACTOR = 2
# How many leading parts of an error name its kind, before the words of the tool or provider.
_PARTS_OF_KIND = {Scope.TOOL: 1, Scope.SOURCE: 2, Scope.MODEL: 2}
# Results that say nothing about the health of what was called.
_NOT_ITS_FAULT = {Reason.CANCELLED, Reason.TOOL_DISABLED, Reason.LIMIT_REACHED}

# A tool, the result of a call of it, and that call.
type Called = tuple[Tool, ToolResult, ToolExecution]


@dataclass(frozen=True)
class Thing:
    """What a breaker is for."""

    scope: str
    key: str


class CircuitOpen(Exception):
    """A breaker lets nothing through now. `retry_after` is in seconds."""

    def __init__(self, message: str, source: str, retry_after: float, *, behind_probe: bool = False) -> None:
        super().__init__(message)
        self.source, self.retry_after, self.behind_probe = source, retry_after, behind_probe


def of_tool(tool: Tool) -> list[Thing]:
    """The things a call of a tool depends on. The tool comes with its source."""
    return [Thing(Scope.TOOL, tool.name), Thing(Scope.SOURCE, tool.source.name)]


def of_model(name: str) -> list[Thing]:
    return [Thing(Scope.MODEL, name[:200])]


def of_agent(run: Run) -> list[Thing]:
    return [Thing(Scope.AGENT, str(run.agent_snapshot["name"]))]


def is_blocked(breaker: Breaker, now: datetime) -> bool:
    """Whether a breaker, as read, lets nothing through, not even a probe."""
    return breaker.state != State.CLOSED and _free_at(breaker) > now


def describe(breaker: Breaker) -> str:
    """A sentence that says what has failed, and how often."""
    what = Scope(breaker.scope).label
    return f"{what} {breaker.key} has failed {breaker.failures} times in a row and is not called for now."


def admit(things: Iterable[Thing], probe_seconds: float) -> CircuitOpen | None:
    """Let a call through unless a breaker stops it; if necessary as the one probe.

    Call it only for things whose breaker is known not to be closed, inside `ledger.transaction()`.
    """
    rows = [row for row in _lock(things) if row.state != State.CLOSED]
    for row in rows:
        now: datetime = row.database_now  # type: ignore[attr-defined]
        if is_blocked(row, now):
            wait = (_free_at(row) - now).total_seconds()
            probing = row.state == State.HALF_OPEN
            return CircuitOpen(describe(row), f"{row.scope}:{row.key}", wait, behind_probe=probing)
    for row in rows:
        until = row.database_now + timedelta(seconds=max(probe_seconds, 1))  # type: ignore[attr-defined]
        row.state, row.probe_until = State.HALF_OPEN, until
        Breaker.objects.filter(pk=row.pk).update(state=State.HALF_OPEN, probe_until=until)
        _record(row, "half_open", "it has cooled down", "one call probes")
    return None


def note_calls(run: Run, made: Sequence[Called]) -> None:
    """Count whether the tools of calls that are stored together answered or failed. Call inside
    `ledger.transaction()`.

    All their breakers are locked together: one call at a time, two runs could wait for each other. A mock's answer
    says nothing about the tool.
    """
    if run.is_mocked:
        return
    counted = [each for each in made if each[1].reason not in _NOT_ITS_FAULT and each[1].status != "refused"]
    failing = [tool for tool, result, _ in counted if result.status != "ok"]
    if not failing and not need_a_look(run):
        return
    _add_missing(thing for tool in failing for thing in of_tool(tool))
    rows = {Thing(row.scope, row.key): row for row in _lock(thing for tool, *_ in counted for thing in of_tool(tool))}
    for tool, result, call in counted:
        own, source = of_tool(tool)
        if result.status == "ok":
            _answered(row for row in (rows.get(own), rows.get(source)) if row is not None)
            continue
        error = f"{result.reason}: {lens.told(result.message, [call])}"
        if _failed(rows[own], error, run):
            _failed(rows[source], f"{tool.name}: {error}", run)


def note_run(run: Run, final: str) -> None:
    """Count how a run of an agent ended. A stopped or cancelled run says nothing about its agent."""
    if run.is_mocked:
        return
    if final == Run.State.SUCCEEDED:
        succeeded(run, of_agent(run))
    elif final == Run.State.FAILED:
        for thing in of_agent(run):
            failed(thing, f"run {run.reference} failed", run)


def need_a_look(run: Run) -> bool:
    """Whether any breaker had counted a failure when the run's row was read with `runs.with_configuration`."""
    return bool(run.breakers_need_a_look)  # type: ignore[attr-defined]


def succeeded(run: Run, things: Sequence[Thing]) -> None:
    """Note that these answered, which ends their failures in a row. Costs nothing while no breaker has counted one."""
    if run.is_mocked or not need_a_look(run):
        return
    _answered(_lock(things))


def failed(thing: Thing, error: str, run: Run | None = None) -> None:
    """Count another failure in a row, and open the breaker if there are enough."""
    _add_missing([thing])
    [row] = _lock([thing])
    _failed(row, error, run)


def _answered(rows: Iterable[Breaker]) -> None:
    """Reset the count of failures in a row of locked breakers. An open one stays open."""
    for row in rows:
        if row.state == State.HALF_OPEN:
            _close(row, "closed", "the probe succeeded")
        elif row.state == State.CLOSED and row.failures:
            row.failures = 0
            Breaker.objects.filter(pk=row.pk).update(failures=0)


def _failed(row: Breaker, error: str, run: Run | None) -> bool:
    """Count a failure in a locked breaker. False: it was not closed before."""
    row.failures, row.last_error = row.failures + 1, storable(clean(error))[:500]
    said = {"last_error": row.last_error, "last_run": run and run.pk}
    Breaker.objects.filter(pk=row.pk).update(failures=F("failures") + 1, **said)
    was = row.state
    if was == State.HALF_OPEN or (was == State.CLOSED and row.failures >= row.threshold):
        row.state = State.OPEN
        Breaker.objects.filter(pk=row.pk).update(state=State.OPEN, opened_at=Now(), probe_until=None)
        trigger = "the probe failed" if was == State.HALF_OPEN else "failures in a row"
        _record(row, "opened", trigger, f"no calls for {row.cooldown_seconds} s")
    return was == State.CLOSED


def erase_said(run: Run) -> None:
    """Erase the words of the failures of a run, but keep their kind. The caller holds the run's lock.

    Failures whose run is unknown lose their words too.
    """
    theirs = Breaker.objects.filter(Q(last_run=run.pk) | Q(last_run__isnull=True)).exclude(last_error="")
    said = theirs.exclude(scope=Scope.AGENT).exclude(last_error__endswith=f": {ERASED}")
    for row in said.select_for_update().order_by("scope", "key"):
        parts = row.last_error.split(": ", most := _PARTS_OF_KIND[Scope(row.scope)])
        if len(parts) > most:
            kind = ": ".join([*parts[:most], ERASED])[:500]
            Breaker.objects.filter(pk=row.pk).update(last_error=kind)


def reset(breaker_id: Any, actor: str, reason: str = "") -> Breaker | None:
    """Close a breaker because a person says it works again. None: no such breaker. Inside `ledger.transaction()`."""
    row = Breaker.objects.select_for_update().filter(pk=breaker_id).first()
    if row is not None and (row.state != State.CLOSED or row.failures):
        _close(row, "reset", "a person reset it", actor, reason)
    return row


def set_limits(breaker_id: Any, threshold: int, cooldown_seconds: int, actor: str) -> Breaker | None:
    """Set after how many failures a breaker opens, and for how long. None: there is no such breaker.

    An open breaker stays open until a probe or a person closes it. Inside `ledger.transaction()`.
    """
    row = Breaker.objects.select_for_update().filter(pk=breaker_id).first()
    if row is None or (row.threshold, row.cooldown_seconds) == (threshold, cooldown_seconds):
        return row
    was = {"threshold": row.threshold, "cooldown_seconds": row.cooldown_seconds}
    row.threshold, row.cooldown_seconds = threshold, cooldown_seconds
    row.save(update_fields=["threshold", "cooldown_seconds"])
    data = {"scope": row.scope, "name": row.key, "before": was}
    data["after"] = {"threshold": threshold, "cooldown_seconds": cooldown_seconds}
    ledger.record(ledger.CONFIGURATION, "breaker.limits_set", data, actor)
    return row


def _close(row: Breaker, what: str, trigger: str, actor: str = ledger.SYSTEM, reason: str = "") -> None:
    _record(row, what, trigger, "calls go through again", actor, reason)
    row.state, row.failures, row.opened_at, row.probe_until = State.CLOSED, 0, None, None
    row.save(update_fields=["state", "failures", "opened_at", "probe_until"])


def _add_missing(things: Iterable[Thing]) -> None:
    """Make the breakers that are missing, always in the same order, because another transaction making one waits."""
    rows = [
        Breaker(
            scope=thing.scope,
            key=thing.key,
            threshold=max(settings.BREAKER_THRESHOLD * (_SOURCE_FACTOR if thing.scope == Scope.SOURCE else 1), 1),
            cooldown_seconds=settings.BREAKER_COOLDOWN_SECONDS,
        )
        for thing in sorted(set(things), key=lambda thing: (thing.scope, thing.key))
    ]
    Breaker.objects.bulk_create(rows, ignore_conflicts=True)


def _lock(things: Iterable[Thing]) -> list[Breaker]:
    """The existing breakers of some things, always locked in the same order, with the database's time."""
    chosen = Q(pk__in=[])
    for thing in things:
        chosen |= Q(scope=thing.scope, key=thing.key)
    rows = Breaker.objects.select_for_update().annotate(database_now=Now())
    return list(rows.filter(chosen).order_by("scope", "key"))


def _free_at(breaker: Breaker) -> datetime:
    """When the next call may probe."""
    assert breaker.opened_at is not None
    if breaker.state == State.HALF_OPEN and breaker.probe_until is not None:
        return breaker.probe_until
    return breaker.opened_at + timedelta(seconds=breaker.cooldown_seconds)


def _record(row: Breaker, what: str, trigger: str, action: str, actor: str = ledger.SYSTEM, reason: str = "") -> None:
    data: dict[str, Any] = {
        "scope": row.scope,
        "name": row.key,
        "trigger": trigger,
        "threshold": row.threshold,
        "observed": row.failures,
        "action": action,
    }
    if reason:
        data["reason"] = reason
    ledger.record(ledger.CONFIGURATION, f"breaker.{what}", data, actor)
