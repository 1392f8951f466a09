"""When people must act: puts calls on cards, releases the run's worker, and tells the model what people said."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet, UUIDField

from agentapp import (
    asked_terms,
    budgets,
    cards,
    executions,
    nudges,
    other_code,
    plan_cards,
    recheck,
    runs,
    second_look,
    subagents,
)
from agentapp.agent_tools import asks_agent
from agentapp.asked_for import asked_for, kind_of
from agentapp.call_checks import refusal
from agentapp.cards import Made
from agentapp.executions import Outcome
from agentapp.messages import StopSignal, ToolResult, Usage
from agentapp.models import Agent, Run, ToolExecution
from agentapp.proposals import Situation
from agentapp.reasons import Reason, StopReason
from agentapp.second_look import SecondLook
from agentapp.state import RunState
from agentapp.tools.planning import proposes_plan
from agentapp.tools.results import ToolError, of_error
from agentapp.transcript import StepRows
from approvals import decisions, ledger, people, questions
from approvals.clock import Now
from approvals.digest import parse
from approvals.models import Approval, DecisionType, Event, Question
from approvals.prepared import Given, Prepared

State = ToolExecution.State

# Events carry a worker's time, approvals the database's time.
CLOCKS_DIFFER = timedelta(seconds=10)
OUTLASTED = "The request expired while the run was held. People are asked again."
DECLINED = "The customer was asked and said no. It did not run; do not propose it again."
NO_ONE_DECIDED = "No one decided in time. It was not executed; propose it again if it is still needed."
NOT_IN_TIME = "It was approved, but could not run in time. It was not executed; propose it again if it is still needed."
# For a call that has begun before, with unknown outcome: `answers` adds that.
DECLINED_AGAIN = "The customer was asked whether to try it again and said no. Do not propose it again."
NO_ONE_DECIDED_AGAIN = "No one decided in time whether to try it again."
NOT_IN_TIME_AGAIN = "Trying it again was approved, but it could not run in time."


def _stopping(**among: Any) -> QuerySet[Approval]:
    """Rejections that stop the run and that no worker has acted on, among some requests."""
    return Approval.objects.filter(
        **among, state=Approval.State.REJECTED, used_at__isnull=True,
        decisions__type="reject", decisions__stop_run=True, decisions__undone_at__isnull=True,
    )  # fmt: skip


def _stopping_now(run: Any) -> QuerySet[Approval]:
    """Those of a run that are no longer held."""
    return _stopping(run_id=run, runs_at__lte=Now())


_ABOUT = Prepared(
    lambda: (
        Approval.objects.filter(execution=Given("execution", UUIDField()))
        .annotate(
            has_questions=Exists(Question.objects.filter(approval__run_id=OuterRef("run_id"), closed_at__isnull=True)),
            has_stop=Exists(_stopping_now(OuterRef("run_id"))),
        )
        .order_by()
    )
)
_STOPPING = Prepared(lambda: _stopping_now(Given("run", UUIDField())).order_by("pk"))


@dataclass(frozen=True)
class Settled:
    """How far the open calls of a step came: all answered, parked for people, or the run must stop. Or people ask about
    one of them, and the agent answers first; or this worker was told to end, and another makes the remaining calls.
    """

    parked: bool = False
    stop: StopSignal | None = None
    asked: bool = False
    leaves: bool = False


def look(rows: StepRows) -> Approval | None:
    """The request about the first waiting call of the step, as it is now. None: none waits.

    Its `has_questions` and `has_stop` say whether people may have asked something, or stopped the run by a rejection.
    That is rare, and looking for each separately would cost another statement every time.
    """
    first = next(iter(_waiting(rows)), None)
    return approval_of(first) if first is not None else None


def asked_or_stopped(state: RunState, rows: StepRows, seen: Any) -> Settled | None:
    """Act on what people did other than decide, whichever of the step's calls it is about. `seen`: from `look`.

    None: they asked nothing, and no rejection stops the run.
    """
    if seen is not None and seen.has_questions and people_ask(rows):
        return Settled(asked=True)
    return _stop_asked(state, rows) if seen is not None and seen.has_stop else None


def _stop_asked(state: RunState, rows: StepRows) -> Settled | None:
    """Act on a rejection that stops the run. None: there is none about a call of this step."""
    by_request = {execution.approval_id: execution for execution in _waiting(rows)}
    stopping = next((each for each in _STOPPING.rows(run=state.run.pk) if each.pk in by_request), None)
    return tell(state, by_request[stopping.pk], stopping) if stopping is not None else None


def people_ask(rows: StepRows) -> bool:
    """Whether somebody waits for the agent's answer about a call of the step."""
    waiting = [execution.approval_id for execution in _waiting(rows) if execution.approval_id is not None]
    return bool(waiting) and any(each.approval_id in waiting for each in questions.open_in(rows.step.run_id))


def _waiting(rows: StepRows) -> list[ToolExecution]:
    return [execution for execution in rows.open if execution.state == State.WAITING]


def hold(state: RunState, rows: StepRows) -> bool:
    """Put every call of the step that needs a person on a card, and release the run.

    False: the run was cancelled, some calls were refused because a breaker stops them, or meanwhile the call that the
    run waits for was decided, or its outcome found out.
    """
    first = rows.open[0]
    is_unknown = first.state == State.OUTCOME_UNKNOWN
    asking = [execution for execution in rows.open if execution.state == State.PROPOSED]
    state.refresh_configuration()
    situation = state.situation
    found = [_make(state, situation, execution) for execution in asking]
    if _refuse_impossible(state, rows, asking, found):
        return False
    made = [each.card for each in found]
    looks = [second_look.take(state, card) for card in made]
    made = [replace(card, second_look=look.said) if look else card for card, look in zip(made, looks, strict=True)]
    audience = people.audience(made)
    with ledger.transaction():
        run = state.locked()
        for look in filter(None, looks):
            _pay(run, look)
        decided = _first_decided(rows)
        if run.is_told_to_stop or (decided is not None and not _is_held(decided, run)):
            return False
        if is_unknown and not _is_still_unknown(first):
            return False
        _still_wait(_waiting(rows))
        state.refresh_configuration()
        if _refuse_stopped(state, asking):
            return False
        # From the row as it is now: somebody may have taken over while the cards were made.
        made = [replace(card, excluded=tuple(run.takers)) for card in made]
        # What people have done about calls that were already waiting.
        due = [moment for moment in (_stop_due(rows), decided.runs_at if decided else None) if moment is not None]
        wake_at = runs.clock(run) if people_ask(rows) else min(due, default=None)
        asked = decisions.request(made, runs.clock(run), state.configuration.channels, audience)
        executions.hold(asking, asked)
        # An agent that was asked may have answered meanwhile: its end wakes only a waiting run.
        wake_at = runs.clock(run) if subagents.any_ended(rows) else wake_at
        waiting_for = Run.WaitingFor.OUTCOME if is_unknown else Run.WaitingFor.APPROVAL
        runs.park(run, state.token, waiting_for, wake_at=_by_record(state, run) or wake_at)
    return True


def _make(state: RunState, situation: Situation, execution: ToolExecution) -> Made:
    """The request about one call, as it would be made. Raises OtherCode."""
    tool = state.configuration.tools.get(execution.name, execution.tool)
    assert tool is not None
    asked = asked_for(execution, tool)
    other_code.unseen(execution, tool, parse(asked.text))  # if no process has the code, the card says so
    weighed = asked_terms.weighed(situation, execution, tool, asked)
    planned = plan_cards.look(situation, asked.text) if proposes_plan(tool) else []
    weighed = plan_cards.as_risky(weighed, planned)
    kind = kind_of(state.run, execution, tool, weighed.terms, asked)
    made = cards.build(state.run, state.history, execution, tool, weighed, asked, kind)
    of_it = plan_cards.of_plan(made.card, planned) if planned else plan_cards.of_call(made.card, state.run, tool)
    return replace(made, card=of_it)


def _pay(run: Run, look: SecondLook) -> None:
    """The usage of a look counts towards the run, whatever becomes of the request."""
    if look.usage != Usage():
        runs.add_usage(run, look.usage)
        budgets.spend(run, look.usage.cost)


def _first_decided(rows: StepRows) -> Approval | None:
    """The request about a call that waits ahead of those that ask, if it has been decided or has ended."""
    first = rows.open[0]
    approval = approval_of(first) if first.state == State.WAITING else None
    return approval if approval is not None and approval.state not in Approval.UNDECIDED else None


def _is_held(approval: Approval, run: Run) -> bool:
    """Whether a decision can still be undone: the run then waits for its moment as well as for people."""
    return approval.state in Approval.DECIDED and approval.runs_at is not None and approval.runs_at > runs.clock(run)


def _is_still_unknown(execution: ToolExecution) -> bool:
    """Whether neither a person nor the tool has said meanwhile what became of a call. Under the run's lock."""
    execution.refresh_from_db()
    return execution.state == State.OUTCOME_UNKNOWN


def _still_wait(waiting: Sequence[ToolExecution]) -> None:
    """Raises Overtaken if a call was set aside since it was read: whatever should wake the run found it at work."""
    keys = [execution.pk for execution in waiting]
    if keys and ToolExecution.objects.filter(pk__in=keys, state=State.WAITING).count() < len(keys):
        raise executions.Overtaken("a call that waited was set aside meanwhile")


def _refuse_impossible(state: RunState, rows: StepRows, asking: list[ToolExecution], made: Sequence[Made]) -> bool:
    """Refuse calls that their tools refuse while looking up the state they rest on: nobody need be asked about them.

    People are still asked about a call that has already begun, since its own effect may be what makes it impossible,
    and about a call after an open act of its step, which may make it possible. False: there are none.
    """
    outcomes = [
        Outcome(execution, of_error(ToolError(each.refused, refused=True)))
        for execution, each in zip(asking, made, strict=True)
        if each.refused and not execution.attempts and not _is_behind_an_act(rows, execution)
    ]
    if not outcomes:
        return False
    with ledger.transaction():
        if not state.locked().is_told_to_stop:
            executions.finish(outcomes)
    return True


def _is_behind_an_act(rows: StepRows, execution: ToolExecution) -> bool:
    """Whether an earlier call of the step is open that may change something, itself or through an agent it asks."""
    earlier = [each for each in rows.open if each.index < execution.index]
    return any(each.consequential or asks_agent(each.tool) for each in earlier)


def _refuse_stopped(state: RunState, asking: list[ToolExecution]) -> bool:
    """Refuse calls that a breaker stops. If a person wants a call tried again, people are asked about it all the same.

    False: there are none.
    """
    outcomes = []
    for execution in asking:
        tool = state.configuration.tools.get(execution.name, execution.tool)
        refusal = recheck.cannot_be_asked(state, tool) if tool is not None and not execution.attempts else None
        if refusal is not None:
            outcomes.append(Outcome(execution, refusal))
    executions.finish(outcomes)
    return bool(outcomes)


def let_go(state: RunState, rows: StepRows, waiting_for: str) -> bool:
    """Release the run until people or agents have acted. People are asked about the rest of the step meanwhile.

    False: they have already acted, or the run was cancelled.
    """
    if any(execution.state == State.PROPOSED for execution in rows.open):
        return hold(state, rows)
    return park(state, rows, waiting_for)


def await_outcome(state: RunState, rows: StepRows) -> bool:
    """Release the run until somebody knows what became of its first open call. Meanwhile people are asked again about
    the calls after it that they were asked about before.

    False: somebody knows by now, or the run was cancelled.
    """
    if any(execution.state == State.PROPOSED and execution.times_asked for execution in rows.open):
        return hold(state, rows)
    return park(state, rows, Run.WaitingFor.OUTCOME)


def park(state: RunState, rows: StepRows, waiting_for: str) -> bool:
    """Release the run until people or agents have acted. False: they acted meanwhile."""
    with ledger.transaction():
        run = state.locked()
        first = rows.open[0]
        if people_ask(rows):
            return False
        # If the first call is a waiting one, it is checked below.
        _still_wait([each for each in _waiting(rows) if each is not first])
        if waiting_for == Run.WaitingFor.OUTCOME:
            if not _is_still_unknown(first) or run.is_told_to_stop:
                return False
            runs.park(run, state.token, waiting_for, wake_at=_by_record(state, run) or _stop_due(rows))
            return True
        if waiting_for == Run.WaitingFor.SUBAGENT:
            if run.is_told_to_stop or subagents.any_ended(rows):
                return False
            runs.park(run, state.token, waiting_for, wake_at=_stop_due(rows))
            return True
        approval = approval_of(first)
        due = approval.runs_at if approval.state in Approval.DECIDED else None
        if approval.state not in (*Approval.UNDECIDED, *Approval.DECIDED) or run.is_told_to_stop:
            return False
        if due is not None and due <= runs.clock(run):
            return False
        runs.park(run, state.token, waiting_for, wake_at=due or _stop_due(rows))
    return True


def _by_record(state: RunState, run: Run) -> datetime | None:
    """When a run goes on that is answered by a record instead of people: at once."""
    if state.recorded is None:
        return None
    transaction.on_commit(partial(nudges.nudge, run.pk), robust=True)
    return runs.clock(run)


def _stop_due(rows: StepRows) -> datetime | None:
    """When a held rejection that stops the run takes effect; it does not wait for the calls before it."""
    waiting = _waiting(rows)
    if not waiting:
        return None
    return _stopping(execution__in=waiting).order_by("runs_at").values_list("runs_at", flat=True).first()


def asks_again(approval: Approval) -> bool:
    """Whether a request ran out only because a switch, a pause or a person held the run: people are asked again."""
    if approval.state != Approval.State.EXPIRED:
        return False
    if approval.decided_at is None:
        return _was_taken_over(approval)
    since = approval.decided_at - CLOCKS_DIFFER
    held = Event.objects.filter(run_id=approval.run_id, type__in=("run.waiting", "run.resumed"), at__gte=since)
    return any(event.type == "run.resumed" or event.data.get("for") == Run.WaitingFor.SWITCH for event in held)


def _was_taken_over(approval: Approval) -> bool:
    """Whether a person spoke in the agent's place when time ran out for a request."""
    turns = Event.objects.filter(run_id=approval.run_id).order_by("seq")
    taken = turns.filter(type="run.taken_over", at__lte=approval.expires_at + CLOCKS_DIFFER).last()
    if taken is None:
        return False
    handed_back = turns.filter(type="run.handed_back", seq__gt=taken.seq).first()
    return handed_back is None or handed_back.at >= approval.expires_at - CLOCKS_DIFFER


def approval_of(execution: ToolExecution) -> Approval:
    """The request as it is now, whatever was read before. Raises Overtaken if the call must ask again."""
    found = _ABOUT.first(execution=execution.pk)
    if found is None:
        raise executions.Overtaken("a call that waited was set aside meanwhile")
    return found


def tell(state: RunState, execution: ToolExecution, approval: Approval) -> Settled | None:
    """Answer a call with what people said instead of running it."""
    given = list(approval.decisions.select_related("user").filter(undone_at__isnull=True))
    decision = given[-1] if given else None
    stop: StopSignal | None = None
    begun = execution.attempts > 0
    if approval.state == Approval.State.EXPIRED:
        late, undecided = (NOT_IN_TIME_AGAIN, NO_ONE_DECIDED_AGAIN) if begun else (NOT_IN_TIME, NO_ONE_DECIDED)
        result = refusal(Reason.APPROVAL_EXPIRED, late if approval.decided_at else undecided)
        if approval.on_expiry == "stop":
            why = "The call was approved but could not run" if approval.decided_at else "No one decided"
            stop = StopSignal(StopReason.APPROVAL_EXPIRED, f"{why} in time, and the rule stops the run.")
    elif decision is not None and decision.type == DecisionType.RESPOND:
        result = ToolResult(
            data=decision.message, message="A person answered in the tool's place; the call did not run.",
            trust="trusted_system",
        )  # fmt: skip
    elif approval.asks_customer:
        result = refusal(Reason.APPROVAL_REJECTED, DECLINED_AGAIN if begun else DECLINED)
    else:
        against = [one for one in given if one.type == DecisionType.REJECT]
        words = " ".join(one.message for one in against)
        about = "trying this call again" if begun else "this call"
        then = "Do" if begun else "It did not run; do"
        said = f"A person rejected {about}: {words} {then} not propose it again."
        result = refusal(Reason.APPROVAL_REJECTED, said)
        stops = state.run.agent_snapshot["on_reject"] == Agent.OnReject.STOP
        if decision is not None and (stops or any(one.stop_run for one in against)):
            stop = StopSignal(StopReason.APPROVAL_DENIED, f"A person rejected the call and stopped the run: {words}")
    with ledger.transaction():
        state.locked()
        if not decisions.settle(approval):
            return None  # undone meanwhile
        # Stored with the answer: if this worker dies here, nothing else tells the next one to stop.
        result = replace(result, control={"stop": {"reason": stop.reason}}) if stop else result
        executions.finish([Outcome(execution, result)])
    return Settled(stop=stop) if stop else None
