"""The only writer of KillSwitch: what a person has stopped, and later releases.

An engaged switch is a row. Nothing it covers begins another model or tool call; a run that would
leaves its worker and waits. The caller is inside `ledger.transaction()`.
"""

import functools
import uuid
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError
from django.db.models import Exists, OuterRef, Q, TextField, UUIDField
from django.db.models.fields.json import KT

from agentapp.models import Agent, KillSwitch, Run, ToolExecution
from approvals import ledger
from approvals.clock import Now
from approvals.detectors import clean
from approvals.digest import storable
from approvals.prepared import Given, Prepared

Scope = KillSwitch.Scope

_OPEN_CALLS = [
    state
    for state in ToolExecution.State.values
    if state not in (ToolExecution.State.FINISHED, ToolExecution.State.CANCELLED)
]


class Stopped(Exception):
    """A model is not asked, because a kill switch or a cancellation stopped its run meanwhile."""

    def __init__(self) -> None:
        super().__init__("it was stopped before a model was asked")


def engage(scope: str, key: str, user: User, reason: str) -> KillSwitch | None:
    """Stop what the switch covers before its next model or tool call. None: it is already engaged."""
    if KillSwitch.objects.filter(scope=scope, key=key).exists():
        return None
    try:
        with ledger.transaction():
            switch: KillSwitch = KillSwitch.objects.create(
                scope=scope, key=key, reason=storable(reason)[:500], engaged_by=user, engaged_at=Now()
            )
    except IntegrityError:
        return None
    ledger.record(ledger.CONFIGURATION, "switch.engaged", _facts(switch), ledger.actor_of(user))
    return switch


def hold(reason: str) -> None:
    """Stop everything, in nobody's name, until a person releases it. This replaces and quotes an earlier switch."""
    before = KillSwitch.objects.select_for_update().filter(scope=Scope.ALL).first()
    if before is not None and before.engaged_by is None:
        return
    if before is not None:
        reason = f"{reason} Before that: {describe(before)}"
        before.delete()
        ledger.record(ledger.CONFIGURATION, "switch.released", _facts(before) | {"note": "Another takes its place."})
    switch = KillSwitch.objects.create(scope=Scope.ALL, reason=storable(reason)[:500], engaged_at=Now())
    ledger.record(ledger.CONFIGURATION, "switch.engaged", _facts(switch))


def release(switch: KillSwitch, user: User, note: str = "") -> bool:
    """Let what it covered go on. False: somebody else has already released it."""
    # First the row, then the runs: a run that is about to wait holds the row's lock.
    deleted, _ = KillSwitch.objects.filter(pk=switch.pk).delete()
    if deleted:
        data = _facts(switch) | {"note": clean(storable(note))[:500]}
        ledger.record(ledger.CONFIGURATION, "switch.released", data, ledger.actor_of(user))
    return bool(deleted)


def still_engaged(switch: KillSwitch) -> bool:
    """Whether a switch that was read earlier is still engaged. That cannot change until the transaction ends."""
    return KillSwitch.objects.select_for_update().filter(pk=switch.pk).first() is not None


def names_of(run: Run) -> set[str]:
    """The names by which a switch may mean the run's agent: its name when the run started, and its name now."""
    return {str(run.agent_snapshot["name"]), run.agent.name}


def forgotten(limit: int) -> list[uuid.UUID]:
    """Runs that wait for a switch although none holds them any more, because the nudge after a release was lost."""
    return _forgotten(limit).rows()


@functools.cache
def _forgotten(limit: int) -> Prepared[uuid.UUID]:
    calls = ToolExecution.objects.filter(run=OuterRef(OuterRef("pk")), state__in=_OPEN_CALLS).values("name")
    holding = KillSwitch.objects.filter(
        Q(scope=Scope.ALL)
        | Q(scope=Scope.AGENT, key=OuterRef("agent__name"))
        | Q(scope=Scope.AGENT, key=OuterRef("started_as"))
        | Q(scope=Scope.TOOL, key__in=calls)
    )
    waiting = Run.objects.filter(state=Run.State.WAITING, waiting_for=Run.WaitingFor.SWITCH, wake_at__isnull=True)
    unheld = waiting.annotate(started_as=KT("agent_snapshot__name")).exclude(Exists(holding))
    return Prepared(lambda: unheld.values_list("pk", flat=True)[:limit])


def stops_repeats(run: Run, tool: str) -> bool:
    """Whether a call under way must not be retried: its run is cancelled, or a switch has been engaged."""
    mine = Q(scope=Scope.ALL) | Q(scope=Scope.AGENT, key__in=names_of(run)) | Q(scope=Scope.TOOL, key=tool)
    engaged = Exists(KillSwitch.objects.filter(mine))
    return Run.objects.filter(Q(cancel_requested_at__isnull=False) | engaged, pk=run.pk).exists()


def _stopped() -> Any:
    names = Q(key=Given("started_as", TextField())) | Q(key=Given("name", TextField()))
    engaged = Exists(KillSwitch.objects.filter(Q(scope=Scope.ALL) | Q(names, scope=Scope.AGENT)))
    stopped = Run.objects.filter(Q(cancel_requested_at__isnull=False) | engaged, pk=Given("run", UUIDField()))
    return stopped.order_by().values_list("pk", flat=True)


_STOPPED: Prepared[uuid.UUID] = Prepared(_stopped)


def stops_questions(run: Run) -> bool:
    """Whether no model may be asked any more: the run is cancelled, or its agent or everything has been stopped."""
    names = {"started_as": str(run.agent_snapshot["name"]), "name": run.agent.name}
    return bool(_STOPPED.rows(run=run.pk, **names))


def holding(run: Run) -> list[KillSwitch]:
    """The switches that stop a run or one of its open calls."""
    calls = run.executions.filter(state__in=_OPEN_CALLS).values("name")
    mine = Q(scope=Scope.ALL) | Q(scope=Scope.AGENT, key__in=names_of(run)) | Q(scope=Scope.TOOL, key__in=calls)
    return list(KillSwitch.objects.filter(mine).select_related("engaged_by"))


def stopping(execution: ToolExecution) -> list[KillSwitch]:
    """The switches that a call would wait for if it were to run now. One query."""
    run = execution.run
    names = Q(key=str(run.agent_snapshot["name"])) | Q(key__in=Agent.objects.filter(pk=run.agent_id).values("name"))
    mine = Q(scope=Scope.ALL) | Q(names, scope=Scope.AGENT) | Q(scope=Scope.TOOL, key=execution.name)
    return list(KillSwitch.objects.filter(mine).select_related("engaged_by"))


def stopping_each(executions: Sequence[ToolExecution]) -> dict[uuid.UUID, list[KillSwitch]]:
    """The same for several calls, by call, in at most two queries."""
    engaged = list(KillSwitch.objects.select_related("engaged_by"))
    called = dict(Agent.objects.filter(runs__executions__in=executions).values_list("pk", "name")) if engaged else {}

    def covers(switch: KillSwitch, call: ToolExecution) -> bool:
        names = {str(call.run.agent_snapshot["name"]), called.get(call.run.agent_id)}
        mine = names if switch.scope == Scope.AGENT else {call.name}
        return bool(switch.scope == Scope.ALL or switch.key in mine)

    return {call.pk: [switch for switch in engaged if covers(switch, call)] for call in executions}


def any_engaged() -> Exists:
    """Whether anything is stopped, for use in another query."""
    return Exists(KillSwitch.objects.all())


def waiting() -> list[uuid.UUID]:
    """The runs that wait for any switch."""
    found = Run.objects.filter(state=Run.State.WAITING, waiting_for=Run.WaitingFor.SWITCH)
    return list(found.order_by("updated_at").values_list("pk", flat=True))


def brief(switch: KillSwitch) -> str:
    """What is stopped, and by whom."""
    what = "Everything" if switch.scope == Scope.ALL else f"The {switch.get_scope_display().lower()} {switch.key}"
    who = switch.engaged_by.get_full_name() or switch.engaged_by.get_username() if switch.engaged_by else "The system"
    return f"{what} was stopped by {who}"


def describe(switch: KillSwitch) -> str:
    """What is stopped, by whom and why, as a sentence."""
    reason = switch.reason.rstrip()
    said = f"{brief(switch)}: {reason}" if reason else brief(switch)
    return said if said.endswith((".", "!", "?", "…")) else f"{said}."


def _facts(switch: KillSwitch) -> dict[str, Any]:
    return {"scope": switch.scope, "name": switch.key, "reason": clean(switch.reason)}
