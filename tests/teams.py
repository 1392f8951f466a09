"""The clerk with agents it may ask, driven here as workers would drive them."""

from typing import Any

from agentapp import agent_tools, loop
from agentapp.models import Agent, Run, Tool, ToolExecution
from agentapp.sweep import sweep


class Team:
    """The clerk, and agents it may ask, each saying what its script says."""

    def __init__(self, clerk: Any) -> None:
        self.clerk = clerk

    def may_ask(self, name: str, *script: dict[str, Any], asks: tuple[str, ...] = (), **columns: Any) -> Agent:
        """An agent that every other may ask, if its lists let it."""
        agent = Agent.objects.create(
            name=name,
            driver="scripted",
            driver_settings={"script": list(script)},
            subagents=list(asks),
            **columns,
        )
        agent.tools.set(Tool.objects.exclude(source__kind="agent"))
        Agent.objects.filter(pk=self.clerk.agent.pk).update(subagents=["*"])
        agent_tools.sync("test")
        return agent

    def drive_all(self, root: Run) -> Run:
        """What workers do: drive whatever is due, until nothing is."""
        for _ in range(50):
            due = sweep()
            if not due:
                break
            for run_id in due:
                loop.drive(run_id)
        root.refresh_from_db()
        return root

    def run(self, *replies: dict[str, Any], **more: Any) -> Run:
        return self.drive_all(self.clerk.start(*replies, **more))


def child_of(run: Run, call_id: str = "a") -> Run:
    child = ToolExecution.objects.get(run=run, call_id=call_id).subrun
    assert child is not None
    return child
