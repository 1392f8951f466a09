"""Calls of a tool whose code in this process is not what the record promises: who makes them, and how long that waits.

While a release goes out, processes of two run side by side. A run whose call this one cannot make is left to one that
can. Where there is none, because nobody ran `sync_tools`, or ran it last from a program that has been taken back, it
would come back for ever: after a while the call is given up, as whoever asks here has it.
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
"""How long a call is left to other processes in all, before none is taken to have its tool."""

NOBODY_HAS_IT = "No process has the version of {} that is on record, so it did not run. Go on without it."
ASKED_AGAIN = "No process had the version of {} that is on record, so it could not run."
_ASKS_ANEW = ("approval.superseded", "tool_call.set_aside")


class OtherCode(Exception):
    """The code of this process is not what people were asked about: a process that has it makes the call."""


def refused(execution: ToolExecution, tool: Tool | None = None) -> ToolResult | None:
    """The answer to a call that no process could make in all that time. None: this process can make it.

    Raises OtherCode while another may. `tool`: its row as it is by now.
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
    """Why nobody looks up the state that a call rests on, where no process could in all that time. Empty: it is looked
    up here. What other code finds is not what people were shown, or will be.

    Raises OtherCode while another process may.
    """
    for each in planning.tools_of(arguments).values() if proposes_plan(tool) else (tool,):
        if each.takes_snapshot and refused(execution, each) is not None:
            return ASKED_AGAIN.format(each.name)
    return ""


def _left_for(execution: ToolExecution, why: str) -> int:
    """For how many seconds the run was left to other processes for this reason since anything became of the call.

    The pauses of the run are added up, and nothing is measured from when it could first have run: workers that were
    all down, or a run that was paused, have looked for nobody. A call that is set aside because nobody has the tool is
    asked about without waiting anew.
    """
    of_run = Event.objects.filter(chain=ledger.run_chain(execution.run_id))
    became = of_run.filter(execution_id=execution.pk).exclude(type__in=_ASKS_ANEW)
    last = became.aggregate(seq=Max("seq"))["seq"] or 0
    left = (event.data for event in of_run.filter(type="run.released", seq__gt=last))
    return sum(data["delay_seconds"] for data in left if data["reason"] == why)
