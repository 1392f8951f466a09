"""One conversation: ask the agent, watch it, answer it, speak for it."""

import uuid
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentapp import actions, auth, discretion, drafts, takeover
from agentapp.console import personal, talk
from agentapp.console.parts import render_part, wants_part
from agentapp.console.run_control import act_on
from agentapp.console.shell import signed_in
from agentapp.models import Run
from approvals.digest import storable
from approvals.masking import STILL_MASKED, with_masks

_CONFLICTS = ("conversation_changed", "not_taken_over", "taken_over")


@require_http_methods(["GET", "HEAD", "POST"])
def chat(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The conversation of a run, or its live part. A post says something in it."""
    user = signed_in(request)
    run = _find(user, run_id)
    if request.method == "POST":
        return _say(request, run, user)
    context = _context(request, run, talk.of(run, user, _number(request.GET.get("before"))))
    return render_part(request, "console/chat.html", "talk", context)


@require_safe
def draft(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """What the model has said so far, for the page that shows it."""
    user = signed_in(request)
    run = _find(user, run_id)
    going = auth.visible_runs(user).filter(state=Run.State.RUNNING)
    going = going.filter(conversation=run.conversation) if run.conversation else going.filter(pk=run.pk)
    found = drafts.under_way(going.values_list("pk", flat=True))
    context = {"run": run, "draft": next(iter(found.values()), None)}
    return render(request, "console/chat.html#draft", context)


@require_POST
def stop(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Cancel the run under way."""

    def cancel(user: User) -> str:
        cancelled = actions.cancel_run(run_id, user)
        if cancelled.is_final:
            return "Stopped."
        return "The agent stops before its next model or tool call. The call under way finishes first."

    return act_on(request, run_id, cancel, "run_chat")


@require_POST
def take_over(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Speak for the agent."""

    def take(user: User) -> str:
        taken = actions.take_over_run(run_id, user)
        if taken.state == Run.State.RUNNING:
            return "You have taken over. The agent finishes its current call, then it is silent."
        return "You have taken over. The agent is silent until you hand back."

    return act_on(request, run_id, take, "run_chat")


@require_POST
def hand_back(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Let the agent speak again."""

    def hand(user: User) -> str:
        run = actions.hand_back_run(run_id, user)
        return "The agent answers the next message." if run.is_final else "The agent goes on, and knows what was said."

    return act_on(request, run_id, hand, "run_chat")


def _say(request: HttpRequest, run: Run, user: User) -> HttpResponse:
    """Say what was typed: as the customer, which starts a run, or for the agent."""
    post = request.POST
    text, seen = post.get("text", ""), _number(post.get("version"))
    key = storable(post.get("request_key", "")[:100])
    # Without a conversation there is no version to have seen.
    expected = seen if run.conversation is not None else None
    try:
        if with_masks(text):
            raise actions.Refused("invalid", STILL_MASKED, "text")
        if post.get("as") == "agent":
            taken = talk.of(run, user).taken_over or run
            actions.write_message(taken.pk, text, user, expected, key)
            said_in = run.pk
        else:
            new = actions.NewRun(
                agent=run.agent.name, input=text, customer=run.customer, conversation_version=expected,
                request_key=key, follows=run.pk,
            )  # fmt: skip
            started = actions.start_run_once(new, user)
            said_in = run.pk if started.kept else started.run.pk
    except actions.Refused as refused:
        run = _find(user, run.pk)
        context = _context(request, run, talk.of(run, user, seen=seen if refused.code in _CONFLICTS else None))
        context |= {"refused": refused, "text": text, "conflict": refused.code in _CONFLICTS}
        return render(request, "console/chat.html", context, status=refused.status)
    return redirect(reverse("run_chat", args=[said_in]) + "#say-text")


def _context(request: HttpRequest, run: Run, found: talk.Talk) -> dict[str, Any]:
    user = signed_in(request)
    under_way = found.run
    taken = found.taken_over
    is_mine = run.parent_id is None and taken is not None and taken.taken_over_by_id == user.pk
    talk_of = found.conversation
    joins = talk_of is None or (talk_of.erased_at is None and auth.may_join(user, talk_of))
    may_pause = auth.may_pause(user, under_way)
    braked = auth.brake(user, under_way) if may_pause and taken is None else ""
    held_back = takeover.held_back(user, taken) if taken is not None else ""
    # The fragment that refreshes itself is above the box and leaves it alone.
    boxed = not wants_part(request)
    return {
        "run": run,
        "talk": found,
        "draft": found.draft,
        "current": under_way,
        "before": request.GET.get("before", ""),
        "is_mine": is_mine,
        "may_stop": not under_way.is_final and auth.may_cancel(user, under_way),
        "may_resume": may_pause and not braked,
        "braked": braked,
        "may_take_over": taken is None and auth.offers_take_over(user, under_way, found.may_decide),
        "may_hand_back": taken is not None and auth.may_hand_back(user, taken) and not held_back,
        "held_back": held_back,
        "may_say": boxed and run.parent_id is None and run.agent.enabled and auth.may_start(user) and joins,
        "request_key": uuid.uuid4(),
        **personal.of(request, run.pk),
    }


def _find(user: User, run_id: uuid.UUID) -> Run:
    """The run, if this person may see it. Others are not told whether it exists."""
    runs = auth.visible_runs(user).select_related("agent", "starter", "conversation", "parent", "taken_over_by")
    found = get_object_or_404(runs.annotate(has_marks=discretion.marks()), pk=run_id)
    discretion.note_marks(found.has_marks)  # type: ignore[attr-defined]
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
