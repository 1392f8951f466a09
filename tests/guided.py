"""An agent that follows guidelines, with rows made as its configuration makes them."""

from typing import Any

from agentapp import actions
from agentapp.models import Agent, Guideline, GuidelineMatch, GuidelineRelation, Run, Step, Tool, ToolRelation
from agentapp.models import ToolEvaluation as Evaluation
from tests.conftest import Clerk


class Guide:
    """Gives a clerk guidelines and drives its runs by scripts of what a model would answer."""

    def __init__(self, clerk: Clerk) -> None:
        self.clerk = clerk
        self.set()

    def set(self, **settings: Any) -> None:
        """The agent's driver settings."""
        Agent.objects.filter(pk=self.clerk.agent.pk).update(driver="guided", driver_settings=settings)

    def guideline(self, name: str, action: str = "", /, *tools: str, **columns: Any) -> Guideline:
        columns.setdefault("condition", f"{name} is asked for")
        made = Guideline.objects.create(agent=self.clerk.agent, name=name, action=action, **columns)
        made.tools.set(Tool.objects.filter(name__in=tools))
        return made

    def relate(self, source: Guideline, kind: str, target: Guideline | str) -> None:
        to = {"tool": Tool.objects.get(name=target)} if isinstance(target, str) else {"target": target}
        GuidelineRelation.objects.create(source=source, kind=kind, **to)

    def overlap(self, first: str, second: str) -> None:
        ToolRelation.objects.create(source=Tool.objects.get(name=first), target=Tool.objects.get(name=second))

    def run(self, *entries: dict[str, Any], **more: Any) -> Run:
        return self.clerk.run(*entries, **more)

    def run_by_model(self, input: str = "Do it.", **more: Any) -> Run:
        """A run without a script: it asks a provider."""
        new = actions.NewRun(agent=self.clerk.agent.name, input=input, **more)
        return self.clerk.drive(actions.start_run(new, self.clerk.starter))

    def step(self, run: Run, number: int) -> Step:
        return run.steps.get(number=number)

    def calls(self, run: Run) -> list[tuple[str, Any]]:
        """The tools called, in order, with their arguments."""
        found = run.executions.order_by("step__number", "index")
        return [(call.name, call.args) for call in found]

    def matched(self, run: Run, step: int) -> dict[str, str]:
        """What counted in a step, and who said so."""
        found = GuidelineMatch.objects.filter(run=run, step__number=step, matched=True, suppressed_by="")
        return {match.guideline: match.origin for match in found}

    def evaluations(self, run: Run, step: int = 1) -> dict[str, Evaluation]:
        found = Evaluation.objects.filter(run=run, step__number=step)
        return {evaluation.tool: evaluation for evaluation in found}
