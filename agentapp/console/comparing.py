"""Two runs side by side, step by step: of one agent, or of two if both runs are mocked, as in evals."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from agentapp import auth, comparing
from agentapp.comparing import CallPair, StepPair
from agentapp.console import typed_text
from agentapp.console.json_tree import read
from agentapp.console.shell import signed_in
from agentapp.models import Run, ToolExecution
from approvals import lens
from approvals.masking import masked

_REFERENCE = re.compile(r"(?:run_)?([0-9a-f]{6})", re.IGNORECASE)
# How many of the differing arguments are named.
MOST_NAMED = 12


@dataclass(frozen=True)
class Value:
    """An argument that differs between the two runs, as it may be shown."""

    name: str
    was: str
    now: str


@dataclass(frozen=True)
class Line:
    """One call in both runs."""

    pair: CallPair
    values: Sequence[Value] = ()


@dataclass(frozen=True)
class Block:
    """One step in both runs, with its calls."""

    pair: StepPair
    lines: Sequence[Line]


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """`a` next to `b`, each the id of a run or its reference. Unless both are given, the form that asks for them."""
    user = signed_in(request)
    named = {name: request.GET.get(name, "").strip()[:100] for name in ("a", "b")}
    context: dict[str, object] = {"named": named}
    if not all(named.values()):
        return render(request, "console/runs_compare.html", context)
    was, now = (_run(user, text) for text in named.values())
    if was is None or now is None:
        missing = named["a"] if was is None else named["b"]
        context["problem"] = f"There is no run {missing!r}, or it is not for you to see."
        return render(request, "console/runs_compare.html", context, status=404)
    # Evals compare two agents in one situation. Comparing two agents in two situations would say nothing.
    if was.agent_id != now.agent_id and not (was.is_mocked and now.is_mocked):
        named_both = f"{was.agent_snapshot['name']} and {now.agent_snapshot['name']}"
        context["problem"] = f"These are runs of two agents, {named_both}. They are compared only if both are mocked."
        return render(request, "console/runs_compare.html", context, status=422)
    found = comparing.compare(was, now)
    blocks = [Block(step, [_line(call) for call in step.calls]) for step in found.steps]
    under_way = [run for run in (was, now) if not run.is_final]
    return render(
        request,
        "console/runs_compare.html",
        context
        | {"found": found, "blocks": blocks, "under_way": under_way, "two_agents": was.agent_id != now.agent_id},
    )


def _run(user: User, text: str) -> Run | None:
    runs = auth.visible_runs(user).select_related("agent", "retry_of")
    short = _REFERENCE.fullmatch(text)
    if short is not None:
        found = list(runs.filter(pk__iendswith=short[1])[:2])
        if len(found) > 1:
            raise Http404("Several runs have this reference. Give the id, as in the address of the page.")
        return found[0] if found else None
    try:
        return runs.filter(pk=uuid.UUID(text)).first()
    except ValueError:
        return None


def _line(pair: CallPair) -> Line:
    if pair.was is None or pair.now is None or "arguments" not in pair.differs:
        return Line(pair)
    was, now = _arguments(pair.was), _arguments(pair.now)
    names = [name for name in dict.fromkeys((*was, *now)) if was.get(name) != now.get(name)]
    shown = (_shown(pair.was, was), _shown(pair.now, now))
    return Line(pair, [Value(name, *(_text(side, name) for side in shown)) for name in names[:MOST_NAMED]])


def _arguments(call: ToolExecution) -> dict[str, object]:
    value, _ = read(call.arguments_text or "{}")
    return value if isinstance(value, dict) else {}


def _shown(call: ToolExecution, arguments: dict[str, object]) -> dict[str, object]:
    """Hide secrets and personal data from everybody: they can be revealed on the run's own page."""
    hidden = [*call.all_secret_fields, *call.all_pii_fields]
    shown: dict[str, object] = lens.seen(masked(arguments, hidden), (), is_open=False)
    return shown


def _text(shown: dict[str, object], name: str) -> str:
    return typed_text.inline(shown[name]) if name in shown else ""
