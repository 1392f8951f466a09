"""What people can do about what is stopped: engage and release kill switches, reset breakers."""

import uuid
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from agentapp import auth, breakers, runs, switches, tasks
from agentapp.models import Agent, Breaker, KillSwitch, Tool
from agentapp.refused import Refused
from approvals import ledger

# As many runs are told at once that a switch was released; the sweep finds the others.
MAX_NUDGES = 200


def engage_switch(scope: str, key: str, reason: str, user: User) -> KillSwitch:
    """Stop everything, an agent or a tool before its next model or tool call."""
    _check_right(user)
    if scope not in KillSwitch.Scope.values:
        raise Refused("invalid", f"A switch is for one of {', '.join(KillSwitch.Scope.values)}.", "scope")
    known = {KillSwitch.Scope.AGENT: Agent.objects, KillSwitch.Scope.TOOL: Tool.objects}.get(KillSwitch.Scope(scope))
    if known is None and key:
        raise Refused("invalid", "The switch for everything names nothing.", "key")
    if known is not None and not known.filter(name=key).exists():
        raise Refused("invalid", f"There is no {scope} named {key!r}.", "key")
    if not reason.strip():
        raise Refused("message_required", "Say why: people whose runs wait will read it.", "reason")
    with ledger.transaction():
        switch = switches.engage(scope, key, user, reason.strip())
    if switch is None:
        raise Refused("already_engaged", "This switch is engaged already.")
    switch.refresh_from_db()
    return switch


def release_switch(switch_id: uuid.UUID, user: User, note: str = "") -> int:
    """Let what a switch stopped go on. Returns how many runs look again now."""
    _check_right(user)
    with ledger.transaction():
        switch = KillSwitch.objects.filter(pk=switch_id).first()
        if switch is None or not switches.release(switch, user, note):
            raise Refused("not_found", "There is no such switch; somebody may have released it.")
        woken = switches.waiting()
        runs.wake_switched(woken)
        for run_id in woken[:MAX_NUDGES]:
            transaction.on_commit(partial(tasks.nudge, run_id), robust=True)
    return len(woken)


def reset_breaker(breaker_id: uuid.UUID, user: User) -> Breaker:
    """Close a breaker without waiting for its probe: a person knows that it works again."""
    _check_right(user)
    with ledger.transaction():
        breaker = breakers.reset(breaker_id, ledger.actor_of(user))
    if breaker is None:
        raise Refused("not_found", "There is no such breaker.")
    return breaker


def _check_right(user: User) -> None:
    if not auth.may_stop(user):
        raise Refused("forbidden", "This needs the right to engage kill switches.")
