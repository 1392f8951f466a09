"""The steps of a run with their calls, as rows. What of them a model is sent is up to `compilers` and `answers`."""

from dataclasses import dataclass

from django.db.models import Case, F, Q, When

from agentapp.models import Run, Step, ToolExecution


@dataclass
class StepRows:
    """One step with its calls, in the model's order."""

    step: Step
    executions: list[ToolExecution]

    @property
    def open(self) -> list[ToolExecution]:
        return [execution for execution in self.executions if not execution.is_answered]


def load_kept(run: Run) -> list[StepRows]:
    """The steps of earlier runs that a retry takes as done, the first first. No query for a run that is none."""
    kept: list[StepRows] = []
    while run.retry_of_id is not None and run.steps_kept:
        number, run = run.steps_kept, Run.objects.get(pk=run.retry_of_id)
        kept = [rows for rows in load_steps(run) if rows.step.number <= number] + kept
    return kept


def load_steps(run: Run) -> list[StepRows]:
    """All steps of a run with their calls. Two queries, however long the run."""
    steps = {step.pk: StepRows(step, []) for step in run.steps.order_by("number")}
    # Asked about its call, the agent may have proposed another: then what people approved is as they were asked.
    own = Q(approval__editor__isnull=True, executed_text=F("approval__arguments_text"))
    calls = run.executions.select_related("tool__source", "replay_of__tool", "evaluation").annotate(
        as_asked=Case(When(own, approval__isnull=False, then=True), default=False)
    )
    for execution in calls.order_by("step__number", "index"):
        execution.by_agent = execution.as_asked
        steps[execution.step_id].executions.append(execution)
    return list(steps.values())
