"""Judging afterwards whether a decision was good, and making an eval case from it."""

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from agentapp import actions, auth, evaluating
from agentapp.console import approval as page
from agentapp.console import card_rows
from agentapp.console.evals import may_view
from agentapp.console.shell import Forbidden, signed_in
from agentapp.models import Run
from approvals.models import Judgement

CASE_RIGHT = "agentapp.change_evalcase"


@require_POST
def judge(request: HttpRequest, approval_id: uuid.UUID, decision_id: uuid.UUID) -> HttpResponse:
    """Mark one decision. `event`: the audit event on whose page it was marked, to go back to."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    if not any(decision.pk == decision_id for decision in found.decisions.all()):
        raise Http404("There is no such decision.")
    mark, reason = request.POST.get("mark", ""), request.POST.get("reason", "")
    try:
        actions.judge_decision(decision_id, mark, reason, user)
    except actions.Refused as refused:
        typed = {"judging": decision_id, "judging_mark": mark, "judging_reason": reason}
        return page.refused_page(request, found, refused, **typed)
    try:
        return redirect("audit_event", event_id=uuid.UUID(request.POST.get("event", "")))
    except ValueError:
        return redirect(f"{reverse('approval', args=[approval_id])}#judged")


@require_POST
def make_case(request: HttpRequest, approval_id: uuid.UUID, decision_id: uuid.UUID) -> HttpResponse:
    """Keep a case for a judged decision, and show it for review."""
    may_view(request)
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    judgement = Judgement.that_count().filter(approval=found, decision=decision_id).first()
    if judgement is None:
        raise Http404("Nobody has judged such a decision.")
    if not evaluating.may_write(user):
        raise Forbidden("A case made from a run keeps what that run was given and what its tools said.", CASE_RIGHT)
    run = get_object_or_404(auth.visible_runs(user).filter(pk=found.run_id).select_related("agent"))
    try:
        saved = evaluating.save_judged(Run.objects.get(pk=run.pk), judgement, user)
    except actions.Refused as refused:
        return page.refused_page(request, found, refused)
    return redirect("eval_case", suite=saved.suite.name, name=saved.name)
