"""Forking a run from one of its steps, and replaying it: what is kept, what can change, and what could happen."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentapp import actions, auth, forking
from agentapp.console import call_form
from agentapp.console.call_form import Filled
from agentapp.console.parts import render_part
from agentapp.console.shell import Forbidden, signed_in
from agentapp.models import Run, ToolExecution
from agentapp.starting import steps_to_begin_with
from agentapp.transcript import StepRows, load_kept, load_steps
from approvals import supposing
from approvals.digest import MalformedJSON, parse, storable
from approvals.masking import MASK, STILL_MASKED

START_RIGHT = "agentapp.start_run"
START = "start"
# The fields of the form that are text, by their names in the agent's configuration.
_TEXTS = ("input", "instructions", "model", "model_settings")


@dataclass(frozen=True)
class Acts:
    """The run's calls that changed something, before and after the step it is forked from."""

    kept: Sequence[ToolExecution]
    stays: Sequence[ToolExecution]
    """Done later: the fork is not told of these, and does not repeat them."""


@require_http_methods(["GET", "HEAD", "POST"])
def run_fork(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The form for a step or for one of its calls. A post with `act=start` starts the fork."""
    user = _starter(request)
    found, hindrance = _found(run_id, user)
    if found is None:
        return render(request, "console/run_fork.html", {"hindrance": hindrance, "run_id": run_id}, status=409)
    given = request.POST if request.method == "POST" else request.GET
    last = steps_to_begin_with(found)
    step, call = min(_number(given, "step") or 1, last), _number(given, "call")
    execution = _proposal(found, step, call)
    posted = request.POST if request.method == "POST" else None
    starts = request.POST.get("act") == START
    filled = _filled(execution, posted, check=starts) if execution is not None else None
    context = {
        "run": found,
        "step": step,
        "last": last,
        "call": execution,
        "filled": filled,
        "values": {name: given.get(name, shown) for name, shown in _shown(found).items()},
        "sandbox": "sandbox" in given or found.is_mocked,
        **_rules(user, given),
        "request_key": request.POST.get("request_key") or uuid.uuid4(),
        "draft_url": reverse("run_fork", args=[run_id]),
        **_around(found, step, execution),
    }
    if not starts:
        return render_part(request, "console/run_fork.html", "request", context)
    if filled is not None and filled.is_wrong:
        return render(request, "console/run_fork.html", context, status=422)
    try:
        started = actions.fork_run(run_id, _fork(found, step, execution, filled, request.POST), user, _key(request))
    except actions.Refused as refused:
        context |= {"refused": refused.message, "refused_field": refused.field}
        return render(request, "console/run_fork.html", context, status=refused.status)
    messages.success(request, f"This is a fork of {found.reference}.")
    return redirect("run", run_id=started.pk)


@require_http_methods(["GET", "HEAD", "POST"])
def run_replay(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """What a replay is. A post starts the replay and leads to the comparison with the run."""
    user = _starter(request)
    found, hindrance = _found(run_id, user)
    context = {"run": found, "run_id": run_id, "hindrance": hindrance, "request_key": uuid.uuid4()}
    if found is None:
        return render(request, "console/run_replay.html", context, status=409)
    if request.method != "POST":
        return render(request, "console/run_replay.html", context)
    try:
        started = actions.replay_run(run_id, user, _key(request))
    except actions.Refused as refused:
        context |= {"refused": refused.message}
        return render(request, "console/run_replay.html", context, status=refused.status)
    return redirect(f"{reverse('runs_compare')}?a={found.pk}&b={started.pk}")


def _starter(request: HttpRequest) -> User:
    user = signed_in(request)
    if not auth.may_start(user):
        raise Forbidden("Forking or replaying a run starts another run.", START_RIGHT)
    return user


def _found(run_id: uuid.UUID, user: User) -> tuple[Run | None, str]:
    """The run; or None, and why it cannot be forked."""
    try:
        return forking.forkable(run_id, user), ""
    except actions.Refused as refused:
        if refused.code == "not_found":
            raise Http404 from refused
        return None, refused.message


def _number(given: QueryDict, name: str) -> int | None:
    text = given.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _proposal(found: Run, step: int, call: int | None) -> ToolExecution | None:
    if call is None:
        return None
    try:
        return forking.proposal_of(found, step, call)
    except actions.Refused as refused:
        raise Http404(refused.message) from refused


def _shown(found: Run) -> dict[str, str]:
    snapshot = found.agent_snapshot
    return {
        "input": found.input,
        "instructions": snapshot.get("instructions", ""),
        "model": snapshot.get("model", ""),
        "model_settings": json.dumps(snapshot.get("model_settings", {}), ensure_ascii=False),
    }


def _filled(execution: ToolExecution, posted: QueryDict | None, *, check: bool) -> Filled:
    tool = execution.tool
    assert tool is not None
    given = call_form.seen(tool, execution)
    begin = {k: v for k, v in given.items() if not call_form.is_masked(v)} if isinstance(given, dict) else {}
    return call_form.filled(tool, begin, posted, check=check)


def _around(found: Run, step: int, call: ToolExecution | None) -> dict[str, Any]:
    """What comes before the step and after it."""
    own, before = load_steps(found), load_kept(found)
    kept = [*before, *(rows for rows in own if rows.step.number < step)]
    here = next((rows for rows in own if rows.step.number == step), None)
    return {"here": here, "acts": _acts(own, kept, step, call), "kept_calls": sum(len(r.executions) for r in kept)}


def _acts(own: Sequence[StepRows], kept: Sequence[StepRows], step: int, call: ToolExecution | None) -> Acts:
    before = [act for rows in kept for act in rows.executions]
    later: list[ToolExecution] = []
    for rows in own:
        if rows.step.number == step and call is not None:
            before += rows.executions[: call.index]
            later += rows.executions[call.index :]
        elif rows.step.number >= step:
            later += rows.executions
    done, after = [a for a in before if _acted(a)], [a for a in later if _acted(a)]
    return Acts(done, after)


def _acted(call: ToolExecution) -> bool:
    return call.consequential and call.idempotency_key is not None and (call.took_effect or call.is_in_doubt)


def _fork(
    found: Run, step: int, execution: ToolExecution | None, filled: Filled | None, post: QueryDict
) -> actions.Fork:
    texts = {name: _typed(post.get(name), shown, name) for name, shown in _shown(found).items()}
    settings = texts.pop("model_settings")
    try:
        read = parse(settings) if settings is not None else None
    except MalformedJSON as error:
        raise actions.Refused("invalid", f"The settings are not valid JSON: {error}", "settings") from error
    return actions.Fork(
        step=step,
        call=execution.index if execution is not None else None,
        arguments=filled.arguments if filled is not None else None,
        model_settings=read,
        sandbox="sandbox" in post,
        without_rules=post.getlist("without"),
        with_drafts=post.getlist("draft"),
        **texts,
    )


def _rules(user: User, given: QueryDict) -> dict[str, Any]:
    """The rules a sandbox can leave out and the drafts it can include, for people who may view rules."""
    if not auth.may_suppose_rules(user):
        return {}
    chosen = {"without": given.getlist("without"), "draft": given.getlist("draft")}
    return {"rules_in_force": supposing.in_force(), "rules_drafted": supposing.drafted(), "chosen_rules": chosen}


def _typed(posted: str | None, shown: str, name: str) -> str | None:
    """What somebody typed in a field. None: it is unchanged, or only masks parts of what was there."""
    if posted is None:
        return None
    text, was = posted.replace("\r\n", "\n"), shown.replace("\r\n", "\n")
    if text == was or (MASK in text and _is_masked_of(text, was)):
        return None
    if MASK in text:
        raise actions.Refused("invalid", STILL_MASKED, name)
    return text


def _is_masked_of(text: str, was: str) -> bool:
    """Whether a text is another one with parts of it masked."""
    first, *middle, last = text.split(MASK)
    if not was.startswith(first) or not was.endswith(last) or len(first) + len(last) > len(was):
        return False
    at, until = len(first), len(was) - len(last)
    for piece in middle:
        at = was.find(piece, at, until)
        if at < 0:
            return False
        at += len(piece)
    return True


def _key(request: HttpRequest) -> str:
    return storable(request.POST.get("request_key", "")[:100])
