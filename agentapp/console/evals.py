"""Evals: the suites, the results of running them, and two evals side by side."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Count, F, OuterRef, Q, Subquery, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentapp import auth, evaluating
from agentapp.console.parts import render_part
from agentapp.console.shell import Forbidden, signed_in
from agentapp.evals import comparing, reporting, runner
from agentapp.models import Agent, EvalCase, EvalRun, EvalSuite
from agentapp.refused import Refused
from approvals import supposing
from approvals.digest import storable
from approvals.ids import uuid7

VIEW_RIGHT, RUN_RIGHT, WRITE_RIGHT = "agentapp.view_evalrun", "agentapp.run_eval", "agentapp.change_evalcase"
LATEST = 30
AGAINST = ("wrong", "harmful")
MAX_MODEL_CHARS = 120
MAX_DESCRIPTION_CHARS = 1000
HUES = {"passed": "ok", "failed": "bad", "skipped": "wait", "regressed": "bad", "fixed": "ok", "changed": "wait"}


@dataclass(frozen=True)
class Figure:
    """One figure of an eval as the page shows it. `about`: a share's counts and interval, or a sum's median."""

    name: str
    value: str
    about: str = ""
    is_bad: bool = False


NO_FIGURE = Figure("", "-", "not counted")


@require_http_methods(["GET", "HEAD", "POST"])
def suites(request: HttpRequest) -> HttpResponse:
    """Every suite with its latest result. A post starts a new suite."""
    may_view(request)
    user = signed_in(request)
    context: dict[str, Any] = {}
    if request.method == "POST":
        typed = {name: request.POST.get(name, "") for name in ("name", "description")}
        try:
            made = evaluating.start_suite(typed["name"].strip(), typed["description"][:MAX_DESCRIPTION_CHARS], user)
        except Refused as refused:
            if refused.code == "forbidden":
                raise Forbidden(refused.message, WRITE_RIGHT) from refused
            context = {"typed": typed, "refused": refused.message}
        else:
            return redirect("eval_case_new", suite=made.name)
    latest = EvalRun.objects.filter(suite=OuterRef("pk")).order_by("-created_at").values("pk")[:1]
    rows = list(EvalSuite.objects.annotate(number=Count("cases"), last=Subquery(latest)).order_by("name"))
    last = EvalRun.objects.defer("planned", "metrics", "versions").in_bulk([row.last for row in rows if row.last])
    context |= {"rows": [(row, last.get(row.last)) for row in rows], "may_write": evaluating.may_write(user)}
    return render(request, "console/evals.html", context, status=422 if request.method == "POST" else 200)


@require_safe
def suite(request: HttpRequest, suite: str) -> HttpResponse:
    """One suite: its cases, its evals, and the form that starts another eval."""
    may_view(request)
    return _suite(request, get_object_or_404(EvalSuite, name=suite))


@require_POST
def start(request: HttpRequest, suite: str) -> HttpResponse:
    """Have workers run a suite, or one of its cases."""
    may_view(request)
    found, user, post = get_object_or_404(EvalSuite, name=suite), signed_in(request), request.POST
    if not auth.may_mock(user):
        raise Forbidden("Running evals starts runs of agents with mocked tools.", RUN_RIGHT)
    try:
        baseline = evaluating.find_eval(post["baseline"]) if post.get("baseline") else None
        made = evaluating.start_eval(
            found,
            user,
            agent=storable(post.get("agent", "")),
            model=storable(post.get("model", "").strip())[:MAX_MODEL_CHARS],
            baseline=baseline,
            only=post.getlist("case") or None,
            with_drafts=[storable(name) for name in post.getlist("draft")],
            without_rules=[storable(name) for name in post.getlist("without")],
            key=_key(post.get("request_key", "")),
        )
    except Refused as refused:
        return _suite(request, found, refused.message, status=403 if refused.code == "forbidden" else 422)
    return redirect("eval_run", eval_run_id=made.pk)


@require_safe
def eval_run(request: HttpRequest, eval_run_id: Any) -> HttpResponse:
    """The results of an eval so far: its figures, and each case with why it failed."""
    may_view(request)
    found = _find(eval_run_id)
    outcomes = runner.outcomes(found)
    shown = [(outcome, HUES.get(outcome.verdict, "")) for outcome in _worst_first(outcomes) if outcome.results]
    context = {
        "found": found,
        "rows": shown,
        "existing": existing(found.suite_id),
        "counts": _counts(outcomes),
        "figures": list(figures(found.metrics)),
        "others": _others(found),
        "may_run": auth.may_mock(signed_in(request)),
        "refresh": request.get_full_path(),
    }
    return render_part(request, "console/eval_run.html", "results", context)


@require_POST
def cancel(request: HttpRequest, eval_run_id: Any) -> HttpResponse:
    may_view(request)
    found = _find(eval_run_id)
    try:
        evaluating.cancel_eval(found, signed_in(request))
    except Refused as refused:
        raise Forbidden(refused.message, RUN_RIGHT) from refused
    return redirect("eval_run", eval_run_id=found.pk)


@require_safe
def comparison(request: HttpRequest, eval_run_id: Any, other_id: Any) -> HttpResponse:
    """An eval next to an earlier one, case by case, the worst first."""
    may_view(request)
    after, before = _find(eval_run_id), _find(other_id)
    try:
        found = comparing.compare(before, after)
    except Refused as refused:
        context = {"before": before, "after": after, "refused": refused.message, "others": _others(after)}
        return render(request, "console/eval_compare.html", context, status=422)
    rows = [(each, HUES.get(each.kind, "")) for each in found.cases if each.kind != comparing.SAME]
    context = {
        "before": before,
        "after": after,
        "existing": existing(after.suite_id),
        "found": found,
        "rows": rows,
        "same": found.counts[comparing.SAME],
        "counts": [(kind, number) for kind, number in found.counts.items() if number],
        "figures": beside(before.metrics, after.metrics),
        "apart": {reporting.word(figure.name) for figure in found.figures if figure.apart},
    }
    return render(request, "console/eval_compare.html", context)


def may_view(request: HttpRequest) -> None:
    """Raises Forbidden for a person who may not look at evals."""
    if not signed_in(request).has_perm(VIEW_RIGHT):
        raise Forbidden("This page shows how agents did in situations that were written down.", VIEW_RIGHT)


def figures(metrics: dict[str, Any]) -> list[Figure]:
    """The figures of an eval in words."""
    found = []
    for name, value in metrics.items():
        word = reporting.word(name)
        if isinstance(value, dict) and "part" in value:
            if value["whole"]:
                about = f"{value['part']} of {value['whole']}, {value['low']:.0%} to {value['high']:.0%}"
                found.append(Figure(word, f"{value['value']:.1%}", about))
            else:
                found.append(Figure(word, "-", "nothing to measure"))
        elif isinstance(value, dict):
            spread = (
                "" if value["p50"] is None else f"median {_short(value['p50'])}, 95th percentile {_short(value['p95'])}"
            )
            found.append(Figure(word, _short(value["total"]), spread))
        else:
            found.append(Figure(word, str(value), "must be none", is_bad=bool(value)))
    return found


def beside(was: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Figure, Figure]]:
    """The figures of two evals by name. A figure that only one of them has is compared with an empty one."""
    before, after = ({figure.name: figure for figure in figures(each)} for each in (was, now))
    return [(name, before.get(name, NO_FIGURE), after.get(name, NO_FIGURE)) for name in {**after, **before}]


def existing(suite_id: Any) -> set[str]:
    """The names of a suite's cases that still exist, which a page can link to."""
    return set(EvalCase.objects.filter(suite=suite_id).values_list("name", flat=True))


def _key(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _short(value: float) -> str:
    """A number with at most four decimals, without trailing zeros."""
    return f"{value:.4f}".rstrip("0").rstrip(".")


def _suite(request: HttpRequest, found: EvalSuite, refused: str = "", status: int = 200) -> HttpResponse:
    runs = found.runs.select_related("starter").defer("planned", "versions").annotate(base=_BASE)
    user = signed_in(request)
    latest = list(runs[:LATEST])
    context = {
        "suite": found,
        "cases": list(found.cases.order_by("name").defer("document")),
        "runs": [(row, HUES.get(row.verdict, "")) for row in latest],
        "finished": [row for row in latest if row.state == EvalRun.State.FINISHED],
        "agents": _agents(found),
        "judged": _judged(found, latest),
        "refused": refused,
        "may_run": auth.may_mock(user),
        "request_key": uuid7(),
        **(_rules(request) if auth.may_mock(user) and auth.may_suppose_rules(user) else {}),
        "may_write": not found.directory and evaluating.may_write(user),
    }
    return render(request, "console/eval_suite.html", context, status=status)


# Only a finished eval can be a baseline. Rows from before this was checked may have an unfinished one.
_FINISHED = Q(baseline__state=EvalRun.State.FINISHED, baseline__suite=F("suite"))
_BASE = Case(When(_FINISHED, then=F("baseline__id")), default=None)


def _judged(found: EvalSuite, latest: Sequence[EvalRun]) -> dict[str, Any]:
    """How many cases come from decisions judged wrong or harmful, and whether they would be made again."""
    names = dict(found.cases.filter(judged__in=AGAINST).values_list("name", "judged"))
    last = next((row for row in latest if row.state == EvalRun.State.FINISHED), None) if names else None
    said: dict[str, Any] = {mark: list(names.values()).count(mark) for mark in AGAINST}
    if last is not None:
        outcomes = [each for each in runner.outcomes(_find(last.pk)) if each.case.name in names and each.results]
        said |= {"last": last, "of": len(outcomes), "again": sum(each.verdict == "failed" for each in outcomes)}
    return said if names else {}


def _rules(request: HttpRequest) -> dict[str, Any]:
    """The drafts that can be treated as in force, the rules that can be left out, and what was chosen."""
    chosen = {name: request.POST.getlist(name) for name in ("without", "draft")}
    return {"rules_in_force": supposing.in_force(), "rules_drafted": supposing.drafted(), "chosen_rules": chosen}


def _agents(found: EvalSuite) -> list[tuple[str, str]]:
    """The agents that can run its cases instead of the cases' own."""
    own = list(found.cases.order_by("agent").values_list("agent", flat=True).distinct())
    others = list(Agent.objects.filter(enabled=True).order_by("name").values_list("name", flat=True))
    return [(f"{old}={new}", f"{new} instead of {old}") for old in own for new in others if new != old]


def _find(eval_run_id: Any) -> EvalRun:
    return get_object_or_404(EvalRun.objects.select_related("suite", "starter", "baseline"), pk=eval_run_id)


def _others(found: EvalRun) -> list[EvalRun]:
    """Earlier evals of the suite with which this one can be compared, its baseline first."""
    earlier = EvalRun.objects.filter(suite=found.suite_id, state=EvalRun.State.FINISHED).exclude(pk=found.pk)
    others = list(earlier.defer("planned", "metrics", "versions")[:LATEST])
    return sorted(others, key=lambda row: row.pk != found.baseline_id)


def _worst_first(outcomes: Sequence[runner.CaseOutcome]) -> list[runner.CaseOutcome]:
    order = ("failed", "skipped", "passed")
    return sorted(outcomes, key=lambda each: (order.index(each.verdict), not each.is_gate, each.case.name))


def _counts(outcomes: Sequence[runner.CaseOutcome]) -> list[tuple[str, int]]:
    done = [outcome.verdict for outcome in outcomes if outcome.results]
    return [(verdict, done.count(verdict)) for verdict in ("passed", "failed", "skipped") if verdict in done]
