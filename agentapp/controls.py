"""What people can do to stop things and let them go on: runs, budgets, kill switches, breakers."""

import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from agentapp import auth, breakers, runs, subagents, switches, tasks
from agentapp.models import Agent, Breaker, KillSwitch, Run, Tool
from agentapp.refused import Refused
from approvals import ledger
from approvals.detectors import clean
from approvals.digest import storable

# How many runs are nudged at once when a switch is released. The sweep finds the others.
MAX_NUDGES = 200
MAX_BUDGET_RAISE = 10_000
MAX_REASON = 500
MAX_FAILURES = 1000
MAX_COOLDOWN = 86_400


def engage_switch(scope: str, key: str, reason: str, user: User) -> KillSwitch:
    """Stop everything, an agent or a tool, before its next model or tool call."""
    _check_right(user)
    if scope not in KillSwitch.Scope.values:
        raise Refused("invalid", f"A switch is for one of {', '.join(KillSwitch.Scope.values)}.", "scope")
    known = {KillSwitch.Scope.AGENT: Agent.objects, KillSwitch.Scope.TOOL: Tool.objects}.get(KillSwitch.Scope(scope))
    if known is None and key:
        raise Refused("invalid", "The switch for everything takes no name.", "key")
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
            raise Refused("not_found", "There is no such switch. It may already have been released.")
        woken = switches.waiting()
        runs.wake_switched(woken)
        for run_id in woken[:MAX_NUDGES]:
            transaction.on_commit(partial(tasks.nudge, run_id), robust=True)
    return len(woken)


def reset_breaker(breaker_id: uuid.UUID, user: User, reason: str = "") -> Breaker:
    """Close a breaker without waiting for its probe: a person knows that it works again."""
    _check_right(user)
    with ledger.transaction():
        breaker = breakers.reset(breaker_id, ledger.actor_of(user), clean(storable(reason.strip()))[:MAX_REASON])
    return _there(breaker)


def set_breaker_limits(breaker_id: uuid.UUID, threshold: int, cooldown_seconds: int, user: User) -> Breaker:
    """Change how many failures in a row open a breaker, and for how long."""
    _check_right(user)
    if not 1 <= threshold <= MAX_FAILURES:
        raise Refused("invalid", f"Give a number of failures from 1 to {MAX_FAILURES}.", "threshold")
    if not 1 <= cooldown_seconds <= MAX_COOLDOWN:
        raise Refused(
            "invalid", f"Give a number of seconds from 1 to {MAX_COOLDOWN}, which is a day.", "cooldown_seconds"
        )
    with ledger.transaction():
        breaker = breakers.set_limits(breaker_id, threshold, cooldown_seconds, ledger.actor_of(user))
    return _there(breaker)


def _there(breaker: Breaker | None) -> Breaker:
    if breaker is None:
        raise Refused("not_found", "There is no such breaker.")
    return breaker


def _check_right(user: User) -> None:
    if not auth.may_stop(user):
        raise Refused("forbidden", "This needs the right to engage kill switches.")


def pause_run(run_id: uuid.UUID, user: User) -> Run:
    """Put a run aside: at once if no worker holds it, otherwise before its next model or tool call.

    The runs of the agents it asked are put aside too. Its requests stay open and can be decided, but nothing runs until
    somebody resumes it. If another person has already paused it, both pauses hold it.
    """
    with ledger.transaction():
        run = _run_to_change(run_id, user, auth.may_pause, "Pausing this run needs the right to pause runs.")
        actor = ledger.actor_of(user)
        if not runs.put_aside(run, actor):
            if auth.has_paused(user, run):
                return run
            runs.want_paused_too(run, actor)
        subagents.put_aside(run, actor)
    run.refresh_from_db()
    return run


def resume_run(run_id: uuid.UUID, user: User) -> Run:
    """Let a paused run continue where it was, and those that were put aside with it.

    If another person has paused it, its starter needs the right to pause runs.
    """
    with ledger.transaction():
        run = _run_to_change(run_id, user, auth.may_pause, "Resuming this run needs the right to pause runs.")
        if run.taken_over_by is not None:
            who = auth.name_of(run.taken_over_by)
            raise Refused("taken_over", f"{who} has taken this run over and must hand it back.")
        if held := auth.brake(user, run):
            raise Refused("forbidden", held)
        if not runs.resume(run, ledger.actor_of(user)):
            raise Refused("not_paused", "This run is not paused.")
        subagents.go_on(run, ledger.actor_of(user))
        transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    run.refresh_from_db()
    return run


def raise_budget(run_id: uuid.UUID, amount: Decimal, user: User) -> Run:
    """Let a run cost so many dollars more than its limits, and go on if it was waiting for that."""
    if not amount.is_finite() or not 0 < amount <= MAX_BUDGET_RAISE:
        raise Refused("invalid", f"Give an amount above 0, up to ${MAX_BUDGET_RAISE}.", "amount")
    with ledger.transaction():
        needed = (
            "Raising this budget needs the right to raise budgets, and not to have started the run or taken it over."
        )
        run = _run_to_change(run_id, user, auth.may_raise_budget, needed)
        runs.raise_budget(run, amount, ledger.actor_of(user))
        if run.waiting_for == Run.WaitingFor.BUDGET:
            runs.wake(run, runs.clock(run))
            transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    run.refresh_from_db()
    return run


def _run_to_change(run_id: uuid.UUID, user: User, allowed: Callable[[User, Run], bool], needed: str) -> Run:
    """The run, locked, if this person may make this change and it has not ended. Raises Refused."""
    run = runs.lock(run_id)
    if run is None:
        raise Refused("not_found", "There is no such run.")
    if not allowed(user, run):
        raise Refused("forbidden", needed)
    if run.is_final:
        raise Refused("run_ended", "This run has ended.")
    return run
