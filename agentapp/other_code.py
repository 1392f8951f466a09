"""Calls of a tool whose code in this process is not the version on record: who makes them, and how long they wait.

During a deployment, processes of two releases run side by side. If this process cannot make a run's call, it leaves the
run to one that can. There may be none, because nobody ran `sync_tools`, or because it last ran from a release that was
rolled back. The run would then come back for ever, so after a while the call is given up; the caller here decides how.
"""

from typing import Any

from django.db.models import Max

from agentapp import planning
from agentapp.call_checks import refusal
from agentapp.messages import ToolResult
from agentapp.models import Tool, ToolExecution
from agentapp.reasons import Reason
from agentapp.tools.planning import proposes_plan
from agentapp.tools.sources import is_of_this_code
from approvals import ledger
from approvals.models import Event

LOOK_AGAIN_SECONDS = 30
GIVEN_UP_AFTER_SECONDS = 15 * 60
"""How long in total a call is left to other processes, before we assume that none has its tool."""

NOBODY_HAS_IT = "No process has the recorded version of {}, so it did not run. Go on without it."
ASKED_AGAIN = "No process had the recorded version of {}, so it could not run."
_ASKS_ANEW = ("approval.superseded", "tool_call.set_aside")


class OtherCode(Exception):
    """The code of this process is not the version that people were asked about: another process makes the call."""


def refused(execution: ToolExecution, tool: Tool | None = None) -> ToolResult | None:
    """The answer to a call that no process could make in all that time. None: this process can make it.

    Raises OtherCode while another process may still make it. `tool`: its row as it is now.
    """
    tool = tool or execution.tool
    assert tool is not None
    if execution.mocked or is_of_this_code(tool):
        return None
    why = f"the code of {tool.name} here is of another version than the one on record"
    if _left_for(execution, why) < GIVEN_UP_AFTER_SECONDS:
        raise OtherCode(why)
    return refusal(Reason.TOOL_DISABLED, NOBODY_HAS_IT.format(tool.name))


def unseen(execution: ToolExecution, tool: Tool, arguments: dict[str, Any]) -> str:
    """Why the state that a call rests on is not looked up: no process could in all that time. Empty: it is looked up
    here. Other code would not find the state that people were shown, or will be.

    Raises OtherCode while another process may still look it up.
    """
    for each in planning.tools_of(arguments).values() if proposes_plan(tool) else (tool,):
        if each.takes_snapshot and refused(execution, each) is not None:
            return ASKED_AGAIN.format(each.name)
    return ""


def _left_for(execution: ToolExecution, why: str) -> int:
    """For how many seconds the run was left to other processes for this reason since the call last changed.

    The delays are added up; the time is not measured from when the run could first have run. While all workers were
    down, or the run was paused, nobody was looking for such a process. A call that is set aside because nobody has the
    tool is asked about without waiting again.
    """
    of_run = Event.objects.filter(chain=ledger.run_chain(execution.run_id))
    became = of_run.filter(execution_id=execution.pk).exclude(type__in=_ASKS_ANEW)
    last = became.aggregate(seq=Max("seq"))["seq"] or 0
    left = (event.data for event in of_run.filter(type="run.released", seq__gt=last))
    return sum(data["delay_seconds"] for data in left if data["reason"] == why)
