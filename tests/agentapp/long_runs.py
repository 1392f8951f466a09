"""Runs of thousands of steps and lists of thousands of runs, written in bulk: for what must stay quick."""

import uuid
from datetime import timedelta
from decimal import Decimal

from django.contrib.auth.models import User
from django.utils import timezone

from agentapp.models import Run, Step, ToolExecution
from tests.agentapp.run_builder import RunBuilder, make_agent, make_tool

SECOND = timedelta(seconds=1)


def a_long_run(starter: User, steps: int, calls: int = 1, last_calls: int = 0) -> Run:
    """Each step thinks for a second and makes its calls in the next; every hundredth call fails."""
    run = RunBuilder(starter).claim().run
    began = timezone.now() - 3 * steps * SECOND
    tool = make_tool("get_order")
    made = Step.objects.bulk_create(
        Step(
            run_id=run.pk,
            number=number,
            text=f"Thought {number}.",
            model="large",
            input_tokens=1000,
            cached_tokens=700,
            output_tokens=20,
            cost=Decimal("0.001"),
            started_at=began + 2 * number * SECOND,
            finished_at=began + (2 * number + 1) * SECOND,
        )
        for number in range(1, steps + 1)
    )
    ToolExecution.objects.bulk_create(
        ToolExecution(
            run_id=run.pk,
            step=step,
            index=index,
            call_id=f"{step.number}-{index}",
            name="get_order",
            tool=tool,
            effect_class="read",
            consequential=False,
            arguments_text=f'{{"order": {step.number}}}',
            result_text=f'{{"parcel": "needle-{step.number}"}}',
            state="finished",
            result_status="fatal_error" if step.number % 100 == 0 and index == 0 else "ok",
            proposed_at=step.finished_at,
            started_at=step.finished_at,
            finished_at=step.finished_at + SECOND,
        )
        for step in made
        for index in range(last_calls if last_calls and step.number == steps else calls)
    )
    Run.objects.filter(pk=run.pk).update(
        step_count=steps,
        created_at=began,
        cost=Decimal("0.001") * steps,
        input_tokens=1000 * steps,
        cached_tokens=700 * steps,
        output_tokens=20 * steps,
    )
    return Run.objects.get(pk=run.pk)


def many_runs(starter: User, count: int) -> list[Run]:
    """Runs that succeeded a second apart."""
    agent, now = make_agent(), timezone.now()
    return Run.objects.bulk_create(
        Run(
            id=uuid.uuid4(),
            agent=agent,
            agent_snapshot={},
            title=f"Run {number}",
            input="Hello",
            starter=starter,
            state="succeeded",
            stop_reason="completed",
            created_at=now - (count - number) * SECOND,
            finished_at=now,
            updated_at=now,
        )
        for number in range(count)
    )
