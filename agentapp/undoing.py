"""Taking back a call that took effect: this is a new proposal, which people are asked about like any other.

The tool says which other call takes it back, and with what arguments. That one call is the whole script of a new run of
the same agent. The person who asks for it is its starter; nobody who started either run may decide about it.

A call has one such run at a time, and none after one that acted or may have acted.
"""

import json
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from agentapp import auth, executions, previews, runs, starters, tasks
from agentapp.models import ApiToken, Run, Tool, ToolExecution
from agentapp.refused import Refused
from agentapp.tools.schema import check_arguments
from agentapp.tools.sources import implementation_of
from agentapp.toolset import snapshot_for
from approvals import ledger
from approvals.digest import MalformedJSON, as_typed, canonical, load

MAX_WHY_CHARS = 2000
ERASED = "The record of what this call did has been erased."
UNDER_WAY = "Somebody has already asked for this call to be undone, and that has not ended."
ACTED = "The call to undo this one has run, as proposed or as people changed it."
IN_DOUBT = "Nobody knows for sure what became of the call to undo this one."


@dataclass(frozen=True)
class Asked:
    """The run started to take a call back."""

    run: Run
    bars: str
    """Why nobody can ask for another. Empty: it ended without effect."""
    earlier: tuple[Run, ...] = ()
    """Earlier runs that asked for it and ended without doing anything, oldest first."""


def may_undo(user: User, execution: ToolExecution) -> bool:
    """Whether this person may ask to take back a call of a run they can see; `hindrance` says whether it can be."""
    return user.is_active and user.has_perm("agentapp.undo_call")


def hindrance(execution: ToolExecution) -> str:
    """Why a call cannot be taken back. Empty: it can. No query for a tool that names no way."""
    tool = execution.tool
    if execution.mocked:
        return "This call was mocked, so nothing happened that could be taken back."
    if tool is None or not tool.undone_by:
        return "This tool names no way to take a call back."
    if execution.state != ToolExecution.State.FINISHED or not execution.took_effect:
        return "This call has not taken effect, so there is nothing to take back."
    if tool.version != execution.tool_version:
        return "The tool has changed since this call ran, so its way to take the call back may no longer fit."
    return ""


def asked_for(execution: ToolExecution) -> Asked | None:
    """The last run started to take a call back. None: there is none. One query, and another if that run has ended."""
    begun = list(Run.objects.filter(undoes=execution).order_by("created_at"))
    run = next((each for each in begun if not each.took_back_nothing), None)
    return Asked(run, _bars(run), tuple(each for each in begun if each.took_back_nothing)) if run is not None else None


def _bars(run: Run) -> str:
    """Why nobody can ask for another run. One query if this one has ended."""
    if not run.is_final:
        return UNDER_WAY
    made = list(ToolExecution.objects.filter(run=run))
    # If people answered in the tool's place, there is a result too, but the call never began.
    if any(call.started_at is not None and call.took_effect for call in made):
        return ACTED
    return IN_DOUBT if any(map(_is_in_doubt, made)) else ""


def _is_in_doubt(call: ToolExecution) -> bool:
    """Whether a call of an ended run may have acted: it began, and nothing rules out that it had an effect."""
    if not call.is_answered or call.subrun_id is not None:
        return True
    if call.started_at is None:
        return call.attempts > 0  # it was due for a retry that never came
    # If the call is erased, what its tool said about this is gone.
    return call.may_have_acted or call.state == ToolExecution.State.CANCELLED or call.erased_at is not None


def undo_call(execution_id: uuid.UUID, why: str, user: User, token: ApiToken | None = None) -> Run:
    """Propose the call that takes another back; people decide whether it runs. Allowed again if the last had no effect.

    `token`: the API token used to ask for it.
    """
    seen = auth.visible_runs(user)
    execution = (
        ToolExecution.objects.select_related("tool__source", "run__agent").filter(pk=execution_id, run__in=seen).first()
    )
    if execution is None:
        raise Refused("not_found", "There is no such call.")
    if not may_undo(user, execution):
        raise Refused("forbidden", "Asking for this needs the right to ask for a call to be undone.")
    if not why.strip():
        raise Refused("message_required", "Say why. The people who decide will read it.", "why")
    hindered = hindrance(execution)
    if hindered:
        raise Refused("cannot_undo", hindered)
    tool, arguments = _way_back(execution)
    if starters.barred(user.pk, [tool]):
        raise Refused("forbidden", starters.NOT_YOURS.format(tool.name))
    try:
        with ledger.transaction():
            run = runs.lock(execution.run_id)
            # The arguments were read before the lock: the run may have been erased meanwhile.
            if run is None or run.erased_at is not None:
                raise Refused("cannot_undo", ERASED)
            _give_up_last(execution)
            words = as_typed(why)[:MAX_WHY_CHARS]
            return _propose(execution, tool, arguments, words, user, token)
    except IntegrityError as error:
        if not Run.objects.filter(undoes=execution, took_back_nothing=False).exists():
            raise
        raise Refused("already_asked", UNDER_WAY) from error


def _give_up_last(execution: ToolExecution) -> None:
    """Make room for another run that takes a call back; the call's run is locked. Refused if the last one bars it."""
    asked = asked_for(execution)
    if asked is None:
        return
    runs.lock(asked.run.pk)  # a late answer comes after this lock, or is seen below
    asked = asked_for(execution)
    if asked is not None and (asked.bars or not runs.give_up_undo(asked.run)):
        raise Refused("already_asked", asked.bars or UNDER_WAY)


def _way_back(execution: ToolExecution) -> tuple[Tool, dict[str, Any]]:
    """The call that takes this one back, as its tool declares it."""
    done = execution.tool
    assert done is not None
    if execution.erased_at is not None:
        raise Refused("cannot_undo", ERASED)
    implementation = implementation_of(done)
    tool = Tool.objects.select_related("source").filter(name=done.undone_by).first()
    if tool is None or not tool.is_in_use:
        raise Refused("cannot_undo", f"{done.undone_by}, which would take it back, is not in use.")
    if implementation is None or implementation.undo is None or implementation.version != done.version:
        raise Refused("cannot_undo", "The code here is another version of the tool.")
    result = json.loads(execution.raw_result_text or execution.result_text or "null")
    try:
        arguments = previews.look(implementation, implementation.undo, load(execution.executed_text), result=result)
        problems = check_arguments(tool.input_schema, arguments)
        canonical(arguments)
    except MalformedJSON as error:
        raise Refused("cannot_undo", str(error)) from error
    except Exception as error:  # a tool's own code may fail in any way
        raise Refused("cannot_undo", f"{done.name} could not say how to undo it: {type(error).__name__}.") from error
    if problems:
        raise Refused("cannot_undo", f"{tool.name} would not accept what {done.name} gives: {problems[0].sentence}")
    return tool, arguments


def _propose(
    execution: ToolExecution, tool: Tool, arguments: dict[str, Any], why: str, user: User, token: ApiToken | None
) -> Run:
    done, agent = execution.run, execution.run.agent
    snapshot = snapshot_for(agent, tool.name, done.route)
    call = {"id": "undo", "name": tool.name, "arguments": arguments}
    run = runs.create(
        runs.Start(
            agent=agent,
            agent_snapshot=snapshot,
            input=why,
            title=f"Undo {execution.name} of {done.reference}"[:200],
            route=done.route,
            starter=user,
            token=token,
            customer=done.customer,
            script=[
                {"tool_calls": [call]},
                {"text": "The decision about taking it back and the outcome are shown above."},
            ],
            undoes=execution,
        )
    )
    via = f"api {token.prefix}" if token is not None else ""
    executions.record(execution, "undo_asked", {"run": str(run.pk), "by": tool.name}, ledger.actor_of(user, via))
    transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    return run
