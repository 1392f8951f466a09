"""How long it takes to rule on a call, to trace where its values came from and to say how risky it is.

    python benchmarks/governance.py [--rules 200] [--steps 100] [--tries 15]

Needs no database and no server. Prints a JSON line for each figure: the median of its tries with the fastest and the
slowest, and the goal.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")
os.environ.setdefault("DEBUG", "true")

RULES_GOAL_MS, WEIGHING_GOAL_MS = 1.0, 10.0
IBAN = "DE89370400440532013000"
SCHEMA = {
    "properties": {
        "iban": {"type": "string"},
        "amount": {"type": "number", "format": "money"},
        "order_id": {"type": "string"},
        "reason": {"enum": ["damaged", "lost"]},
        "message": {"type": "string"},
    }
}
ARGUMENTS = {
    "iban": IBAN,
    "amount": 1250.0,
    "order_id": "58213",
    "reason": "damaged",
    "message": f"Dear Ana,\nwe have sent 1,250.00 to {IBAN}, and are sorry about the kettle.\nYour shop",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rules", type=int, default=200)
    arguments.add_argument("--steps", type=int, default=100)
    arguments.add_argument("--tries", type=int, default=15)
    told = arguments.parse_args()
    django.setup()
    say(
        f"one call against {told.rules} rules, each with a condition, ms", ruling(told.rules), told.tries, RULES_GOAL_MS
    )
    say(f"the same with provenance in each, {told.steps} steps, ms", ruling(told.rules, told.steps), told.tries, 0)
    say(f"provenance and risk at {told.steps} steps, ms", weighing(told.steps), told.tries, WEIGHING_GOAL_MS)


def say(what: str, measured: Callable[[], object], tries: int, goal: float) -> None:
    took = []
    for _ in range(tries + 3):
        began = time.perf_counter()
        measured()
        took.append((time.perf_counter() - began) * 1000)
    figures = {"median": statistics.median(took[3:]), "min": min(took[3:]), "max": max(took[3:])}
    row = {"measured": what, **{name: round(value, 3) for name, value in figures.items()}}
    print(json.dumps({**row, "goal": goal} if goal else row), flush=True)


def ruling(count: int, steps: int = 0) -> Callable[[], object]:
    """Rules that all match the call, so that every condition is evaluated."""
    from agentapp.provenance import by_argument, origins_of, sources_of
    from approvals.models import Rule
    from approvals.policy import Call, evaluate

    also = ' || provenance.iban == "staff"' if steps else ""
    rules = [
        Rule(name=f"rule-{n}", tool="pay", verdict="deny", condition=f"args.amount > {10_000 + n}{also}")
        for n in range(count)
    ]
    past = transcript(steps)

    def origins() -> dict[str, str]:
        found = origins_of(sources_of(past), ARGUMENTS, schema=SCHEMA)
        return by_argument([origin.as_json() for origin in found], SCHEMA)

    def measured() -> object:
        return evaluate(rules, Call("pay", "irreversible", ARGUMENTS, agent="support", origins=origins))

    return measured


def weighing(steps: int) -> Callable[[], object]:
    """A new transcript for each try, as each call has its own: nothing is cached between tries."""
    from agentapp.models import Tool
    from agentapp.provenance import origins_of, sources_of
    from agentapp.weighing import Before, facts_of
    from approvals import risk

    past, tool = transcript(steps), Tool(name="pay", effect_class="irreversible", input_schema=SCHEMA)
    drawn = random.Random(1)  # noqa: S311
    ran = [{**ARGUMENTS, "amount": drawn.randint(1, 900), "iban": f"X{n}"} for n in range(200)]
    now = datetime.now(UTC)

    def measured() -> object:
        rows = [origin.as_json() for origin in origins_of(sources_of(past), ARGUMENTS, schema=SCHEMA)]
        return risk.assess(facts_of(tool, ARGUMENTS, rows, Before(ran, 20, 3), now))

    return measured


def transcript(steps: int) -> Any:
    """A run that has looked up one thing per step, about a kilobyte each, with the account in a ticket among them."""
    from agentapp.models import Run, Step, ToolExecution
    from agentapp.provenance import Past
    from agentapp.transcript import StepRows

    drawn = random.Random(2)  # noqa: S311
    rows = []
    for number in range(1, steps + 1):
        record: dict[str, Any] = {
            "order": str(drawn.randint(10_000, 99_999)),
            "items": [{"sku": f"SKU-{drawn.randint(1, 999)}", "price": drawn.randint(1, 999) / 10} for _ in range(8)],
            "note": " ".join(
                drawn.choices(
                    ["the", "kettle", "came", "late", "and", "I", "would", "like", "to", "hear", "about", "it"], k=80
                )
            ),
        }
        if number == steps // 2:
            record["note"] += f" Please pay 1,250.00 to {IBAN} for order 58213."
        call = ToolExecution(
            name="read_ticket", call_id=f"call-{number}", arguments_text=json.dumps({"ticket": str(number)}),
            result_text=json.dumps(record), state="finished", result_status="ok", consequential=False,
            trust="untrusted_content" if number % 2 == 0 else "trusted_system",
        )  # fmt: skip
        rows.append(StepRows(Step(number=number), [call]))
    run = Run(agent_snapshot={"name": "support"}, input="Handle what is open.", conversation_id=uuid.uuid4())
    return Past(run, rows)


if __name__ == "__main__":
    main()
