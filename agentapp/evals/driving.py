"""One run of a case: started with its mocks, driven here without a worker, with the decisions the case gives."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.utils import timezone

from agentapp import draining, isolation, loop, nudges, runs, subagents, switches
from agentapp.considered import GUIDED
from agentapp.evals import results
from agentapp.evals.cases import Case
from agentapp.evals.observed import Observed
from agentapp.evals.observing import family_of, observe
from agentapp.evals.people import NotTaken, People
from agentapp.messages import StopSignal
from agentapp.models import Agent, EvalRun, KillSwitch, Run, ToolExecution
from agentapp.reasons import Reason, StopReason
from agentapp.script import ScriptError, check_script
from agentapp.toolset import snapshot_of
from approvals import ledger, supposing
from approvals.digest import storable

# In each turn the run moves or somebody decides. No case takes this many.
MAX_TURNS = 500
# How long a run that asks a real model is driven, even if the provider asks us to wait longer.
MAX_SECONDS = 900.0
LEAST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 1.0
ACTOR = "eval"


class CannotRun(Exception):
    """A case cannot be run here. The message says why."""


class LeftToOthers(Exception):
    """This worker was told to stop in the middle of a case. Another starts the case again."""


@dataclass
class Agents:
    """The agents of one slice of an eval, each read once."""

    _found: dict[str, tuple[Agent, dict[str, Any]]] = field(default_factory=dict)

    def find(self, name: str) -> tuple[Agent, dict[str, Any]]:
        """An agent and the configuration that a run keeps of it. Raises CannotRun."""
        if name not in self._found:
            agent = Agent.objects.filter(name=name, enabled=True).first()
            if agent is None:
                raise CannotRun(f"there is no agent named {name}")
            self._found[name] = agent, snapshot_of(agent)
        return self._found[name]


def run_case(eval_run: EvalRun, case: Case, agents: Agents) -> tuple[Run, Observed, list[str]]:
    """Run a case once. Returns the run, what came of it, and which decisions could not be made.

    Raises CannotRun and LeftToOthers.
    """
    with isolation.isolated(), nudges.quiet():
        run = _start(eval_run, case, agents)
        try:
            notes = _drive(run, case, partial(results.renew, eval_run))
        except LeftToOthers:
            _end(run)
            raise
        held = _held(run)
        observed = observe(run)
        _end(run)
    if held:
        raise CannotRun(held)
    return run, observed, notes


def _start(eval_run: EvalRun, case: Case, agents: Agents) -> Run:
    agent, kept = agents.find(eval_run.agent_for(case.agent))
    if case.route and case.route not in kept["routes"]:
        raise CannotRun(f"the agent {agent.name} has no route named {case.route}")
    script = case.script if not eval_run.model else None
    if script is not None:
        try:
            check_script(script, is_guided=agent.driver == GUIDED)
        except ScriptError as error:
            raise CannotRun(str(error)) from error
    snapshot = {**kept, **({"model": eval_run.model} if eval_run.model else {}), **_rules(eval_run)}
    start = runs.Start(
        agent=agent,
        agent_snapshot=snapshot,
        input=storable(case.input),
        title=f"{eval_run.suite.name}: {case.name}",
        starter=eval_run.starter,
        route=case.route,
        customer=storable(case.customer).strip(),
        metadata=dict(case.metadata),
        script=script,
        mocks=case.mocks,
    )
    with ledger.transaction():
        return runs.create(start, via=eval_run.reference)


def _rules(eval_run: EvalRun) -> dict[str, Any]:
    """What is assumed about rules, as a run keeps it. Raises CannotRun if it can no longer be assumed."""
    if not eval_run.rules:
        return {}
    try:
        supposing.suppose((), eval_run.rules)
    except LookupError as error:
        raise CannotRun(str(error.args[0])) from error
    return {"rules": eval_run.rules}


def _drive(run: Run, case: Case, renew: Callable[[], None]) -> list[str]:
    """Take a run as far as it goes. Returns which decisions could not be made."""
    people = People(list(case.people))
    for _ in range(MAX_TURNS):
        moved = _move(run, renew)
        if run.is_final:
            break
        try:
            decided = people.decide(family_of(run))
        except NotTaken as error:
            return [str(error)]
        if not decided and not moved:
            break
    return []


def _move(run: Run, renew: Callable[[], None]) -> bool:
    """Drive a run and the runs it asked for. False: it has come as far as it can without people.

    `renew` keeps hold of the eval: others would take it up if a model took too long.
    """
    before, until = run.updated_at, time.monotonic() + MAX_SECONDS
    while True:
        again = loop.drive(run.pk)
        run.refresh_from_db()
        renew()
        if run.state not in _GOING or time.monotonic() > until:
            break
        if draining.begun.is_set():  # otherwise it would be taken up and released again and again
            raise LeftToOthers
        if again is None or again.delay:  # it is due later, or a worker has found it
            time.sleep(_pause(run))
    moved = run.updated_at != before
    if run.waiting_for in _BELOW and not run.is_final:
        for child in Run.objects.filter(parent=run).exclude(state__in=Run.FINAL).order_by("pk"):
            moved = _move(child, renew) or moved
    return moved


def _pause(run: Run) -> float:
    """The time until a run is due, but never long: what it waits for may come sooner."""
    left = (run.wake_at - timezone.now()).total_seconds() if run.wake_at is not None else 0
    return min(max(left, LEAST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)


_GOING = (Run.State.QUEUED, Run.State.RUNNING)
# While a run waits for one of these, the runs it asked for may go on.
_BELOW = (Run.WaitingFor.SUBAGENT, Run.WaitingFor.APPROVAL, Run.WaitingFor.OUTCOME)


def _held(run: Run) -> str:
    """The kill switch that stopped the run or one it asked for, which says nothing about the case."""
    family = family_of(run)
    stopped = [] if run.is_final else [each for each in family if each.waiting_for == Run.WaitingFor.SWITCH]
    found = [switch for each in stopped for switch in switches.holding(each)]
    refused = ToolExecution.objects.filter(run__in=family, reason=Reason.TOOL_DISABLED).values("name")
    found += KillSwitch.objects.filter(scope=KillSwitch.Scope.TOOL, key__in=refused).select_related("engaged_by")
    return switches.describe(found[0]) if found else ""


def _end(run: Run) -> None:
    """End whatever still waits, now that the case is over."""
    if run.is_final:
        return
    with ledger.transaction():
        locked = runs.lock(run.pk)
        if locked is not None:
            signal = StopSignal(StopReason.USER_REQUESTED, "The eval of its case is over.", source=ACTOR)
            subagents.cancel(locked, signal, ACTOR)
