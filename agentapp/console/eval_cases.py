"""Eval cases: showing one, changing it, and making one from a run."""

import uuid
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import auth, evaluating
from agentapp.console.evals import HUES, WRITE_RIGHT, may_view
from agentapp.console.shell import Forbidden, signed_in
from agentapp.evals import files, recording
from agentapp.models import Agent, EvalCase, EvalResult, EvalSuite, Run
from agentapp.refused import Refused
from approvals.digest import storable
from approvals.ids import uuid7

LATEST = 10
MAX_CHARS = 200_000
SKETCH: dict[str, Any] = {
    "name": "a-name-of-letters-digits-and-hyphens",
    "kind": "positive",
    "description": "What it is about.",
    "input": "What the agent is given.",
    "tools": {"a_tool": {"result": "What it answers."}},
    "script": [
        {"tool_calls": [{"id": "a", "name": "a_tool", "arguments": {}}]},
        {"text": "What the model says in the end."},
    ],
    "people": [{"tool": "a_tool", "decide": "approve"}],
    "expect": {"tools_called": ["a_tool"], "final_status": "completed"},
}


@require_http_methods(["GET", "HEAD", "POST"])
def case(request: HttpRequest, suite: str, name: str) -> HttpResponse:
    """One case as it is written, with its latest results. A post replaces its text."""
    may_view(request)
    row = get_object_or_404(EvalCase.objects.select_related("suite", "made_of"), suite__name=suite, name=name)
    user = signed_in(request)
    context = _shown(row, user)
    if request.method != "POST":
        return render(request, "console/eval_case.html", context)
    text = _posted(request)
    try:
        saved = evaluating.save_case(row.suite, files.read_text(text), user, row=row, made_of=row.made_of)
    except (files.FilesRefused, Refused) as refused:
        return render(request, "console/eval_case.html", context | {"text": text, **_told(refused)}, status=422)
    return redirect("eval_case", suite=row.suite.name, name=saved.name)


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, suite: str) -> HttpResponse:
    """A case from scratch: a sketch to begin with. A post keeps it in the suite."""
    may_view(request)
    found, user = get_object_or_404(EvalSuite, name=suite), signed_in(request)
    if not evaluating.may_write(user):
        raise Forbidden("A case says what an agent is given, and what should come of it.", WRITE_RIGHT)
    context: dict[str, Any] = {"suite": found}
    if request.method != "POST":
        return render(request, "console/eval_case_new.html", context | {"text": _sketch(found)})
    text = _posted(request)
    try:
        saved = evaluating.save_case(found, files.read_text(text), user)
    except (files.FilesRefused, Refused) as refused:
        return render(request, "console/eval_case_new.html", context | {"text": text, **_told(refused)}, status=422)
    return redirect("eval_case", suite=found.name, name=saved.name)


@require_POST
def remove(request: HttpRequest, suite: str, name: str) -> HttpResponse:
    """Delete a case that somebody wrote."""
    may_view(request)
    row = get_object_or_404(EvalCase.objects.select_related("suite", "made_of"), suite__name=suite, name=name)
    try:
        evaluating.remove_case(row, signed_in(request))
    except Refused as refused:
        if refused.code == "forbidden":
            raise Forbidden(refused.message, WRITE_RIGHT) from refused
        context = _shown(row, signed_in(request)) | {"not_removed": refused.message}
        return render(request, "console/eval_case.html", context, status=409)
    messages.success(request, f"{row.name} is deleted.")
    return redirect("eval_suite", suite=row.suite.name)


@require_http_methods(["GET", "HEAD", "POST"])
def of_run(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Make a case from a run: a draft that goes as the run went, to be checked and kept in a suite."""
    may_view(request)
    user = signed_in(request)
    run = get_object_or_404(auth.visible_runs(user).select_related("agent"), pk=run_id)
    if not user.has_perm(WRITE_RIGHT):
        raise Forbidden("A case made from a run keeps what that run was given and what its tools said.", WRITE_RIGHT)
    context: dict[str, Any] = {
        "run": run,
        "problem": evaluating.hindrance_of(run),
        "suites": _suites(),
        "chosen": request.POST.get("suite", ""),
    }
    if request.method != "POST" or context["problem"]:
        text = "" if context["problem"] else files.written(recording.document_of(run, _name_of(run)))
        status = 422 if request.method == "POST" else 200
        return render(request, "console/eval_case_new.html", context | {"text": text}, status=status)
    text = _posted(request)
    try:
        saved = evaluating.save_case_of(run, files.read_text(text), user, context["chosen"])
    except (files.FilesRefused, Refused) as refused:
        return render(request, "console/eval_case_new.html", context | {"text": text, **_told(refused)}, status=422)
    return redirect("eval_case", suite=saved.suite.name, name=saved.name)


def _shown(row: EvalCase, user: User) -> dict[str, Any]:
    return {
        "row": row,
        "suite": row.suite,
        "text": files.written(row.document),
        "results": _results(row),
        "may_run": auth.may_mock(user),
        "request_key": uuid7(),
        "may_write": not row.suite.directory and evaluating.may_write(user),
        "made_of": row.made_of if row.made_of is not None and auth.may_see(user, row.made_of) else None,
    }


def _sketch(suite: EvalSuite) -> str:
    """A case to begin with, for the agent of the suite's latest case."""
    agent = suite.cases.order_by("-created_at").values_list("agent", flat=True).first()
    agent = agent or Agent.objects.filter(enabled=True).order_by("name").values_list("name", flat=True).first()
    return files.written({**SKETCH, "agent": agent or "the-name-of-an-agent"})


def _suites() -> list[str]:
    return list(EvalSuite.objects.filter(directory="").order_by("name").values_list("name", flat=True))


def _results(row: EvalCase) -> list[tuple[EvalResult, str]]:
    """The results of the case in the latest evals of its suite."""
    found = EvalResult.objects.filter(eval_run__suite=row.suite_id, case=row.name).select_related("eval_run", "run")
    shown = found.defer("observed", "eval_run__planned", "eval_run__metrics", "eval_run__versions")
    return [(result, HUES.get(result.verdict, "")) for result in shown.order_by("-created_at")[:LATEST]]


def _posted(request: HttpRequest) -> str:
    return storable(request.POST.get("text", ""))[:MAX_CHARS]


def _told(refused: files.FilesRefused | Refused) -> dict[str, Any]:
    if isinstance(refused, Refused):
        return {"refused": [refused.message]}
    return {"refused": [f"Line {each.line}{f', {each.field}' if each.field else ''}: {each.message}" for each in
                        refused.problems]}  # fmt: skip


def _name_of(run: Run) -> str:
    """Do not use the run's words: case names remain when those are erased."""
    return f"run-{run.id.hex[-6:]}"
