"""What following guidelines costs beyond the models' time: 20 guidelines, 40 tools, a script in the model's place.

    DEBUG=true python benchmarks/guided.py [--runs 30]

Drives runs here, in a throw-away database, without a worker. Each run looks at its guidelines, makes three read calls,
looks again and replies. Prints a JSON line for each figure, in milliseconds: the median with the fastest and the
slowest. A turn is one decision of the driver; a step is a turn plus storing it and its calls.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")
os.environ.setdefault("DEBUG", "true")

GUIDELINES, TOOLS = 20, 40


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=30)
    count = arguments.parse_args().runs
    django.setup()
    from django.conf import settings

    from agentapp import actions, loop
    from agentapp.demo import check, opening
    from agentapp.drivers.guided import GuidedDriver
    from agentapp.models import Run

    settings.ALLOW_SCRIPTED_RUNS = True
    turns: list[float] = []
    decide = GuidedDriver.next_step

    def timed(driver: GuidedDriver, state: Any) -> Any:
        began = time.perf_counter()
        try:
            return decide(driver, state)
        finally:
            turns.append((time.perf_counter() - began) * 1000)

    GuidedDriver.next_step = timed  # type: ignore[method-assign]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="countersign-benchmark-")))
        stack.enter_context(check.throw_away_database(folder))
        people = opening.open_shop()
        script = fill()
        steps: list[float] = []
        for number in range(count + 1):
            run = actions.start_run(actions.NewRun("guide", f"Question {number}.", script=script), people["sam"])
            began = time.perf_counter()
            loop.drive(run.pk)
            took = (time.perf_counter() - began) * 1000
            run = Run.objects.get(pk=run.pk)
            assert (run.state, run.step_count) == ("succeeded", 2), (run.state, run.stop_message)
            if number == 0:  # the first run does the imports
                turns.clear()
            else:
                steps.append(took / run.step_count)
        say("a turn, beyond the model, ms", turns)
        say("a step with its calls, beyond the model, ms", steps)


def fill() -> list[dict[str, Any]]:
    """An agent with this many guidelines and tools, and what a model would answer about them."""
    from agentapp.models import Agent, Guideline, GuidelineRelation, Tool, ToolRelation

    order = Tool.objects.get(name="get_order")
    agent = Agent.objects.create(name="guide", driver="guided", instructions="Be exact.")
    copies = Tool.objects.bulk_create(
        Tool(source=order.source, name=f"read_{n}", description=f"Read {n}.", input_schema=order.input_schema,
             effect_class="read", version=str(n))
        for n in range(TOOLS - 1)
    )  # fmt: skip
    agent.tools.set([order, *copies])
    made = [
        Guideline.objects.create(agent=agent, name=f"g-{n}", condition=f"they speak of {n}", action=f"Say {n}.")
        for n in range(GUIDELINES)
    ]
    for n, guideline in enumerate(made):
        guideline.tools.set([order, *copies[n * 2 : n * 2 + 2]])
    for first, second in zip(made[:5], made[5:10], strict=True):
        GuidelineRelation.objects.create(kind="entails", source=first, target=second)
        GuidelineRelation.objects.create(kind="priority", source=second, target=made[19])
    for first, second in zip(copies[::4], copies[1::4], strict=False):
        ToolRelation.objects.create(source=first, target=second)
    matched = {guideline.name: "They speak of it." for guideline in made}
    wanted = [{"order_id": number} for number in ("58213", "58214", "58215")]
    return [{"matched": matched, "evaluations": {"get_order": wanted}}, {"says": "Here they are."}]


def say(what: str, tries: list[float]) -> None:
    figures = {"median": statistics.median(tries), "min": min(tries), "max": max(tries)}
    print(json.dumps({"measured": what, **{name: round(value, 1) for name, value in figures.items()}}), flush=True)


if __name__ == "__main__":
    main()
