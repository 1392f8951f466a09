"""The steps of a run with their calls, as rows. `compilers` and `answers` decide what of them a model is sent."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, UUIDField, When, prefetch_related_objects

from agentapp.descent import line_of
from agentapp.models import Run, Step, Tool, ToolExecution
from approvals.prepared import Given, Prepared

TAKEN_BACK = Exists(
    ToolExecution.objects.filter(
        Q(approval__isnull=True) | Q(approval__final_digest=F("approval__action_digest")),
        Q(control__took_effect__isnull=True) | Q(control__took_effect=True),
        run__undoes=OuterRef("pk"),
        result_status=ToolExecution.ResultStatus.OK,
    ).exclude(executed_text="")
)
"""Whether another run has taken a call back, with the call that its tool names for this. An answer that people gave in
its place does not count, nor a call that they changed: that took back something else.
"""


@dataclass
class StepRows:
    """One step with its calls, in the model's order."""

    step: Step
    executions: list[ToolExecution]
    is_part: bool = False
    """For a kept step: only its first calls are kept, and the following step goes on with the next one."""

    @property
    def open(self) -> list[ToolExecution]:
        return [execution for execution in self.executions if not execution.is_answered]


def load_kept(run: Run) -> list[StepRows]:
    """The steps of earlier runs that a run takes as done, the earliest first. No query for a run that takes none."""
    runs = goes_on_from(run)
    if not runs:
        return []
    kept = kept_of(run, load_lines(runs))
    mark_taken_back(kept)
    return kept


def goes_on_from(run: Run) -> list[Run]:
    """The runs whose steps a run takes as done, the latest first. One query; none for a run that takes none."""
    found: list[Run] = []
    if run.steps_kept or run.branch:
        line_of(run)
    while run.retry_of is not None and (run.steps_kept or run.branch):
        run = run.retry_of
        found.append(run)
    return found


def kept_of(run: Run, lines: Mapping[uuid.UUID, list[StepRows]]) -> list[StepRows]:
    """The steps that a run takes as done, from the steps already read, by run."""
    kept: list[StepRows] = []
    later = run
    for earlier in goes_on_from(run):
        kept = [*_kept_of(lines[earlier.pk], later), *kept]
        later = earlier
    return kept


def decided(kept: Iterable[StepRows]) -> int:
    """How many decisions these steps stand for: a partly kept step counts with the step after it."""
    return sum(not rows.is_part for rows in kept)


def load_done(run: Run) -> list[ToolExecution]:
    """The acts of the runs that a fork comes from, and of those that they asked: all of it stays done. No query for
    other runs.

    The runs that a fork asks take the same as done, and so does a replay of it.
    """
    while run.parent is not None:
        run = run.parent
    while run.branch == Run.Branch.REPLAY and run.retry_of is not None:
        run = run.retry_of
    if run.branch != Run.Branch.FORK or run.is_mocked:
        return []
    acts = _family_of(_forked_from(run)).filter(consequential=True, idempotency_key__isnull=False)
    found = acts.exclude(TAKEN_BACK).select_related("tool")
    return [act for act in found if act.took_effect or act.is_in_doubt or act.may_have_acted]


def _forked_from(run: Run) -> list[Run]:
    """The runs that have done something, from the last fork back to the run that the first was forked from."""
    found: list[Run] = []
    for earlier in line_of(run):
        if run.branch != Run.Branch.FORK:
            break
        run = earlier
        found.append(run)
    return found


def _family_of(runs: Iterable[Run]) -> QuerySet[ToolExecution]:
    """The calls of some runs and of all runs below them. One query for each level."""
    level = [run.pk for run in runs]
    known = set(level)
    while level:
        level = list(Run.objects.filter(parent__in=level).values_list("pk", flat=True))
        known.update(level)
    return ToolExecution.objects.filter(run__in=known)


def _kept_of(steps: list[StepRows], later: Run) -> list[StepRows]:
    whole = [rows for rows in steps if rows.step.number <= later.steps_kept]
    parts = [rows for rows in steps if later.calls_kept and rows.step.number == later.steps_kept + 1]
    return [*whole, *(StepRows(rows.step, rows.executions[: later.calls_kept], is_part=True) for rows in parts)]


def mark_taken_back(steps: Iterable[StepRows]) -> None:
    """Mark each act that another run has taken back since. No query if nothing took effect."""
    acts = {each.pk: each for rows in steps for each in rows.executions if each.consequential and each.took_effect}
    for pk in taken_back(acts):
        acts[pk].taken_back = True


def taken_back(acts: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Which of these calls another run has taken back. No query if there are none."""
    return set(ToolExecution.objects.filter(TAKEN_BACK, pk__in=acts).values_list("pk", flat=True)) if acts else set()


def load_steps(run: Run, tools: Iterable[Tool] = ()) -> list[StepRows]:
    """All steps of a run with their calls. Two queries, however long the run, prepared once.

    `tools`: rows that have already been read, with their sources. Anything else that calls refer to is then queried.
    """
    calls = _CALLS.rows(run=run.pk) if tools else _calls(run=run.pk)
    return _lines([run], _STEPS.rows(run=run.pk), calls, tools)[run.pk]


def load_lines(runs: Collection[Run]) -> dict[uuid.UUID, list[StepRows]]:
    """All steps of some runs with their calls, by run. Two queries, however many runs."""
    keys = [run.pk for run in runs]
    return _lines(runs, _steps(run__in=keys), _calls(run__in=keys), ())


def _steps(**of: Any) -> QuerySet[Step]:
    return Step.objects.filter(**of).order_by("number")


def _calls(**of: Any) -> QuerySet[ToolExecution]:
    # After a question about its call, the agent may have proposed another: compare with what people were asked about.
    own = Q(approval__editor__isnull=True, executed_text=F("approval__arguments_text"))
    calls = ToolExecution.objects.filter(**of).order_by("step__number", "index")
    return calls.annotate(as_asked=Case(When(own, approval__isnull=False, then=True), default=False))


_STEPS = Prepared(lambda: _steps(run=Given("run", UUIDField())))
_CALLS = Prepared(lambda: _calls(run=Given("run", UUIDField())))


def _lines(
    runs: Collection[Run], steps_of: Iterable[Step], calls: Iterable[ToolExecution], tools: Iterable[Tool]
) -> dict[uuid.UUID, list[StepRows]]:
    keys = {run.pk: run for run in runs}
    steps = {step.pk: StepRows(step, []) for step in steps_of}
    for execution in _with_what_they_refer_to(calls, {tool.pk: tool for tool in tools}):
        execution.by_agent = execution.as_asked  # type: ignore[attr-defined]
        execution.step, execution.run = steps[execution.step_id].step, keys[execution.run_id]
        steps[execution.step_id].executions.append(execution)
    lines: dict[uuid.UUID, list[StepRows]] = {key: [] for key in keys}
    for rows in steps.values():
        lines[rows.step.run_id].append(rows)
    return lines


def _with_what_they_refer_to(
    calls: Iterable[ToolExecution], tools: Mapping[uuid.UUID, Tool]
) -> Iterable[ToolExecution]:
    """Calls with their tool, the call they repeat and the evaluation they came from.

    In one query; or, if the tools are given, without their wide rows, plus queries for what is missing.
    """
    if isinstance(calls, QuerySet) and not tools:
        return calls.select_related("tool__source", "replay_of__tool", "evaluation")
    found = list(calls)
    for execution in found:
        if execution.tool_id is None or execution.tool_id in tools:
            execution.tool = tools.get(execution.tool_id) if execution.tool_id else None
    prefetch_related_objects(
        [each for each in found if each.tool_id is not None and each.tool_id not in tools], "tool__source"
    )
    prefetch_related_objects([each for each in found if each.replay_of_id is not None], "replay_of__tool")
    prefetch_related_objects([each for each in found if each.evaluation_id is not None], "evaluation")
    return found
