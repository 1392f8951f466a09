"""How many runs one run may lead to: agents asking agents are limited in total, however wide and deep they ask."""

from collections.abc import Sequence

from django.conf import settings

from agentapp import agent_tools, lineage
from agentapp.executions import Proposal
from agentapp.models import Run, Tool


def lock(run: Run) -> None:
    """Lock the root run of the family before a call that asks an agent begins.

    The caller is inside a transaction and locks the run's own row afterwards: rows of several runs are locked from the
    root down. So no two runs of a family count at the same time, and the limit is never exceeded.
    """
    if run.parent_id is not None:
        root = Run.objects.filter(pk=lineage.root_of(run)).order_by()
        root.select_for_update(no_key=True).values_list("pk", flat=True).get()


def full(run: Run, tool: Tool, before: Sequence[Proposal] = ()) -> str:
    """Why a run or its family can ask no further agent, as the model is told; or an empty text.

    `before`: the earlier calls of the same reply. No query for a tool that asks no agent.
    """
    if not agent_tools.asks_agent(tool):
        return ""
    most = settings.FAMILY_MAX_RUNS
    beside = sum(proposal.refusal is None and agent_tools.asks_agent(proposal.tool) for proposal in before)
    if lineage.size_of_family(lineage.root_of(run), most) + beside < most:
        return ""
    return (
        f"Agents have been asked often enough: one run and all that come of it may be at most {most} runs. No further "
        "agent can be asked. Do it yourself, or answer with what you have."
    )
