"""What this process has counted and timed: requests, tasks, and what it wrote to the ledger.

Prometheus reads it from `/metrics`. With PROMETHEUS_MULTIPROC_DIR, the client's own variable, the processes of one
machine count into files there, and any of them answers for all.
"""

import os
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, multiprocess

from agentapp import isolation
from approvals.ledger import Fact

# Further names are counted together: labels must not multiply with the names that people or models make up.
MOST_TOOLS, MOST_MODELS = 200, 50
OTHER = "other"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

own = CollectorRegistry()
requests = Histogram(
    "countersign_http_request_seconds",
    "Requests answered.",
    ["method", "view", "status"],
    buckets=_SECONDS,
    registry=own,
)
tasks = Histogram("countersign_task_seconds", "Celery tasks done.", ["task", "outcome"], buckets=_SECONDS, registry=own)
events = Counter("countersign_events", "Events written to the ledger.", ["kind"], registry=own)
runs_ended = Counter("countersign_runs_ended", "Runs that have ended.", ["state"], registry=own)
calls = Counter("countersign_tool_calls", "Tool calls that have a result.", ["tool", "status"], registry=own)
decisions = Counter("countersign_decisions", "Requests to people that were settled.", ["outcome"], registry=own)
steps = Counter("countersign_steps", "Steps that models decided.", ["model"], registry=own)
tokens = Counter("countersign_model_tokens", "Tokens read and written by models.", ["model", "direction"], registry=own)
cost = Counter("countersign_model_cost_usd", "What models cost, where the price is known.", ["model"], registry=own)

_ENDS = {"run.succeeded", "run.failed", "run.stopped", "run.cancelled"}
_SETTLED = {
    f"approval.{state}" for state in ("approved", "rejected", "responded", "expired", "withdrawn", "superseded")
}
_known: dict[str, set[str]] = {"tool": set(), "model": set()}


def registry() -> CollectorRegistry:
    """What is read: this process alone, or all processes that count into one folder."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return own
    together = CollectorRegistry()
    multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
    return together


def hear(facts: Sequence[Fact]) -> None:
    """A ledger listener. What mocked runs do is not counted."""
    for fact in facts if not isolation.is_on() else ():
        kind, _, what = fact.type.partition(".")
        events.labels(kind).inc()
        if fact.type in _ENDS:
            runs_ended.labels(what).inc()
        elif fact.type in _SETTLED:
            decisions.labels(what).inc()
        elif fact.type == "tool_call.completed":
            calls.labels(_name("tool", fact.data.get("tool"), MOST_TOOLS), fact.data.get("status", "")).inc()
        elif fact.type == "step.recorded":
            _count_step(fact)


def _count_step(fact: Fact) -> None:
    model = _name("model", fact.data.get("model"), MOST_MODELS)
    steps.labels(model).inc()
    for direction in ("input", "output"):
        tokens.labels(model, direction).inc(fact.data.get(f"{direction}_tokens", 0))
    cost.labels(model).inc(float(fact.data.get("cost") or 0))


def _name(label: str, name: str | None, most: int) -> str:
    known = _known[label]
    if name and (name in known or len(known) < most):
        known.add(name)
        return name
    return OTHER
