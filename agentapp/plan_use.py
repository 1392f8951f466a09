"""When a person would be asked about a call: whether an approved plan allows it, and how a planned call is used."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from agentapp import runs
from agentapp.executions import Proposal
from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools.planning import NAME
from agentapp.toolset import Configuration
from agentapp.transcript import StepRows, taken_back
from approvals import planned, plans, standing, step_up
from approvals.digest import parse, sha256
from approvals.models import Approval, PlannedCall
from approvals.policy import Ruling

PREFIX = "plan:"
OUT_OF_TURN = "It is not the call that the approved plan allows next."
PROBE = "A breaker is open, so a person decides."


@dataclass(frozen=True)
class Wanted:
    """A call that would ask a person, as plans see it: what it is, and what comes before it."""

    run: Run
    configuration: Configuration
    steps: Sequence[StepRows]
    tool: Tool
    text: str
    ruling: Ruling
    beside: Sequence[Proposal] = ()
    """The calls before it in the same reply."""


def is_planned(execution: ToolExecution) -> bool:
    """Whether an approved plan would have allowed this call when it was proposed."""
    return execution.allowed_by.startswith(PREFIX)


def allowed_by(call: PlannedCall) -> str:
    """What lets a planned call run, as stored in its row."""
    return f"{PREFIX}{call.approval.reference}"


def expected(wanted: Wanted) -> str:
    """What would allow a call, as far as is known when it is proposed. Empty: a person is asked."""
    call = _next(wanted)
    if call is None or call.use_by <= runs.clock(wanted.run):
        return ""
    return "" if _not_now(wanted, call) else allowed_by(call)


def use(wanted: Wanted, execution: ToolExecution, snapshot: str) -> str:
    """Use the planned call that allows this one, after checking again everything that it rests on.

    Runs in the transaction in which the call begins. Returns why it was not used, or an empty string if it was.
    """
    call = _next(wanted)
    # Since it was proposed, another plan may have been approved that has it as well.
    if call is None or allowed_by(call) != execution.allowed_by:
        return OUT_OF_TURN
    why = _not_now(wanted, call)
    if why:
        return why
    if snapshot != call.snapshot_text:
        return f"The state that {call.approval.reference} rested on has changed since it was approved."
    if not plans.use(call, execution.pk):
        return f"The time to use {call.approval.reference} has run out."
    return ""


def take_up(run: Run, execution: ToolExecution) -> None:
    """When a plan's proposal has its result, write down what the plan allows, in the same transaction."""
    if execution.name != NAME or execution.approval_id is None or not execution.took_effect:
        return
    approval = Approval.objects.get(pk=execution.approval_id)
    # A person who has taken the run over since speaks in the agent's place, but the plan was the agent's.
    if set(run.takers) <= set(approval.excluded):
        plans.take_up(approval, timedelta(seconds=settings.APPROVAL_USE_WITHIN_SECONDS))


def was_planned(run: Run, tool: Tool, text: str) -> PlannedCall | None:
    """The planned call of the run that this one matches, but was not made as."""
    if not _may_plan(run):
        return None
    found = [call for call in plans.of_run(run.pk) if call.used_by is None and call.tool == tool.name]
    return next((call for call in found if call.arguments_text == text), None)


def _may_plan(run: Run) -> bool:
    """Whether the run's agent may plan at all. For other agents nothing is read."""
    return NAME in run.agent_snapshot["tools"]


def _next(wanted: Wanted) -> PlannedCall | None:
    """The planned call that matches this one, if its turn has come: everything planned before it has taken effect."""
    calls = plans.of_run(wanted.run.pk) if _may_plan(wanted.run) else []
    if not calls:
        return None
    done = _done_since(calls[0].approval, wanted)
    call = planned.next_of(calls, lambda each: (each.tool, sha256(each.arguments_text)) in done)
    if call is None:
        return None
    tool = wanted.tool
    digest = planned.call_digest(call.approval, call.position, tool.name, tool.version, parse(wanted.text))
    return call if digest == call.action_digest else None


def _done_since(approval: Approval, wanted: Wanted) -> set[tuple[str, str]]:
    """The calls that took effect since a plan was proposed, and the earlier calls of this reply that the plan allows.

    What ran counts, not what was proposed: a call that a person changed, or answered in its tool's place, did not run
    as planned. A call that was taken back since does not count either. The calls of a plan differ from each other, so
    each counts once.
    """
    since, ran = False, {}
    for execution in (execution for rows in wanted.steps for execution in rows.executions):
        if since and execution.took_effect:
            ran[execution.pk] = (execution.name, sha256(execution.executed_text))
        since = since or execution.pk == approval.execution_id
    undone = taken_back(ran)
    done = {act for pk, act in ran.items() if pk not in undone}
    beside = [each for each in wanted.beside if each.allowed_by == f"{PREFIX}{approval.reference}"]
    return done | {(each.call.name, sha256(each.canonical_text)) for each in beside}


def _not_now(wanted: Wanted, call: PlannedCall) -> str:
    """Why a plan does not allow its next call as things are now, or an empty string."""
    shown, approval = plans.shown(call), call.approval
    if shown is None:
        return "The plan on record is not the one that people approved."
    if wanted.configuration.breakers_of(wanted.tool):
        return PROBE
    stricter = planned.stricter(shown, wanted.tool.effect_class, wanted.ruling)
    if stricter:
        return stricter
    if not standing.deciders_still_allowed(approval):
        return f"A person who approved {approval.reference} may no longer decide."
    needed = step_up.needed(wanted.ruling.assurance, wanted.ruling.risk, wanted.tool.effect_class)
    if not step_up.is_enough(approval.assurance_needed, needed):
        return f"Approving it now requires more proof: {step_up.NEEDS[needed]}."
    if not standing.meets(approval, wanted.ruling):
        return f"The rules have become stricter: {wanted.ruling.reason}"
    return ""
