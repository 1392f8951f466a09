"""Kill switches in the way of what was asked, or of what was decided about it, in words."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from agentapp import switches
from agentapp.models import KillSwitch, ToolExecution
from approvals.models import Approval


@dataclass(frozen=True)
class Stopped:
    """One of them. `brief`: what is stopped and by whom; `words`: with why, as a sentence."""

    brief: str
    words: str


def of(approval: Approval, execution: ToolExecution | None, standing: str) -> list[Stopped]:
    """What keeps a call that waits from running, or its agent from hearing. No query while nothing is stopped.

    `execution`: the call the request is about; None: it asks anew under another request.
    """
    waits = standing in ("pending", "held", "taken") and getattr(approval, "is_anything_stopped", True)
    return _of(approval, switches.stopping(execution)) if execution is not None and waits else []


def of_each(approvals: Sequence[Approval]) -> dict[uuid.UUID, list[Stopped]]:
    """The same of requests whose decisions can still be undone, by request; two queries however many they are."""
    asked = {one.pk: one for one in approvals if one.is_anything_stopped}  # type: ignore[attr-defined]
    # One that asks anew under another request has no call.
    calls = {pk: call for pk, one in asked.items() if (call := getattr(one, "execution", None)) is not None}
    found = switches.stopping_each(list(calls.values())) if calls else {}
    return {pk: _of(asked[pk], found[call.pk]) for pk, call in calls.items()}


def _of(approval: Approval, found: Sequence[KillSwitch]) -> list[Stopped]:
    if approval.state not in (*Approval.UNDECIDED, Approval.State.APPROVED):
        # A switch for the tool is in nobody's way where no call is to run.
        found = [switch for switch in found if switch.scope != KillSwitch.Scope.TOOL]
    return [Stopped(switches.brief(switch), switches.describe(switch)) for switch in found]
