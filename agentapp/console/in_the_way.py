"""What is in the way of a request or its decision, in words: kill switches, and runs that people put aside."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from agentapp import auth, switches
from agentapp.models import KillSwitch, Run, ToolExecution
from approvals.models import Approval


@dataclass(frozen=True)
class Stopped:
    """One hindrance. `brief`: what is stopped and by whom; `words`: a sentence with why; `until`: what ends it."""

    brief: str
    words: str
    until: str = "that is released"
    icon: str = "stop"


def of(approval: Approval, execution: ToolExecution | None, standing: str, *, named: bool = True) -> list[Stopped]:
    """What keeps a waiting call from running, or its agent from hearing. No query while nothing is stopped.

    `execution`: the call the request is about, or None if that call asks again under another request. `named`: say
    who paused its run, which takes two queries.
    """
    if execution is None or standing not in ("pending", "held", "taken"):
        return []
    found = switches.stopping(execution) if getattr(approval, "is_anything_stopped", True) else []
    return [*_of(approval, found), *_aside([execution.run], named).get(execution.run_id, [])]


def of_each(approvals: Sequence[Approval]) -> dict[uuid.UUID, list[Stopped]]:
    """The same by request, for requests whose decisions can still be undone. As many queries for many as for one."""
    # A request whose call asks again under another one has no call of its own.
    calls = {one.pk: call for one in approvals if (call := getattr(one, "execution", None)) is not None}
    asked = {one.pk: one for one in approvals if one.is_anything_stopped}  # type: ignore[attr-defined]
    found = switches.stopping_each([calls[pk] for pk in asked if pk in calls]) if asked else {}
    aside = _aside([call.run for call in calls.values()])
    return {
        pk: [*(_of(asked[pk], found[call.pk]) if pk in asked else []), *aside.get(call.run_id, [])]
        for pk, call in calls.items()
    }


def _of(approval: Approval, found: Sequence[KillSwitch]) -> list[Stopped]:
    if approval.state not in (*Approval.UNDECIDED, Approval.State.APPROVED):
        # A switch for the tool hinders nobody if no call is going to run.
        found = [switch for switch in found if switch.scope != KillSwitch.Scope.TOOL]
    return [Stopped(switches.brief(switch), switches.describe(switch)) for switch in found]


def _aside(runs: Sequence[Run], named: bool = True) -> dict[uuid.UUID, list[Stopped]]:
    """Those of these runs that people have paused or taken over, each with words about it."""
    said = {}
    paused = [run for run in runs if run.is_aside and run.taken_over_by_id is None]
    who = auth.who_paused(paused) if named else {}
    for run in paused:
        brief = f"The run is paused by {who[run.pk]}" if run.pk in who else "The run is paused"
        said[run.pk] = [Stopped(brief, f"{brief}.", "it is resumed", "pause")]
    for run in runs:
        if run.taken_over_by is not None:
            brief = f"{auth.name_of(run.taken_over_by)} has taken the run over"
            said[run.pk] = [Stopped(brief, f"{brief}.", "it is handed back", "hand")]
    return said
