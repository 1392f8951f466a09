"""Before a decision: ask the agent, answer for it, reveal what is masked, and see who else is looking."""

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from agentapp import actions
from agentapp.console import approval as page
from agentapp.console import card, card_rows
from agentapp.console.shell import signed_in
from approvals import presence as viewers
from approvals.models import Approval


@require_POST
def ask(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Put a question to the agent: one that the tool offers, or the person's own."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    typed = request.POST.get("text", "").strip() or request.POST.get("offered", "").strip()
    try:
        actions.ask_agent(approval_id, typed, user)
    except actions.Refused as refused:
        dialog = "ask" if refused.code == "message_required" else ""
        return page.refused_page(request, found, refused, dialog=dialog, asking=request.POST.get("text", ""))
    return redirect(f"{reverse('approval', args=[approval_id])}#evidence")


@require_POST
def ask_again(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Ask people again about a call that nobody decided in time."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    try:
        actions.ask_again(approval_id, user)
    except actions.Refused as refused:
        return page.refused_page(request, found, refused)
    return redirect("approval", approval_id)


@require_POST
def answer(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Answer a question for the agent."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    question = next((q for q in card.questions_of(found) if str(q.pk) == request.POST.get("question", "")), None)
    if question is None:
        return redirect(reverse("approval", args=[approval_id]))
    try:
        actions.answer_question(question.pk, request.POST.get("text", ""), user)
    except actions.Refused as refused:
        return page.refused_page(request, found, refused, answering=request.POST.get("text", ""))
    return redirect(f"{reverse('approval', args=[approval_id])}#evidence")


@require_safe
def evidence(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """The evidence, refreshed with new answers."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    return render(request, "console/approval.html#evidence", card.context(found, user))


@never_cache
@require_POST
def reveal(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Show one masked argument, once, and record who has seen it."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    name = request.POST.get("reveal", "")
    try:
        value = actions.reveal_secret(approval_id, name, user)
    except actions.Refused as refused:
        return page.refused_page(request, found, refused)
    context: dict[str, Any] = {"revealed": name, "revealed_value": value}
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "console/approval.html#fixed", {**card.context(found, user), **context})
    return render(request, "console/approval.html", {**page.context_of(request, found), **context})


@require_POST
def presence(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Sent by an open page every few seconds. Answers with who else has it open."""
    user = signed_in(request)
    found: Approval = card_rows.visible_or_404(user, approval_id)
    doing = request.POST.get("doing", "")
    viewers.note(found, user, doing)
    context = {"approval": found, "others": viewers.others(found, user), "doing": doing}
    return render(request, "console/approval.html#presence", context)
