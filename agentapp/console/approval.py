"""One request: decide with the facts in view, change it, send it back, or take a decision back."""

import contextlib
import uuid
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentapp import actions
from agentapp.console import assurance, beside, card, card_rows, inbox, signing, told
from agentapp.console.differences import differences
from agentapp.console.shell import signed_in
from agentapp.console.shown import Shown, show, tool_of
from agentapp.discretion import PasskeyOptions
from agentapp.tools.schema import check_arguments
from approvals import lens
from approvals.digest import parse
from approvals.masking import masked
from approvals.models import Approval, Decision, DecisionType, Risk
from approvals.step_up import NEEDS, SIGNED

VIEWS = ("form", "diff", "json")
DIALOGS = ("reject", "respond", "ask", "approve")
# The type sent by the second press, which approves a high risk. The first press sends "approve".
CONFIRMED = "confirm"
_ANOTHER_LOOK = "Some fields need another look. Nothing was decided."


@require_safe
def approval(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """The page of one request. `do` opens a dialog and `view` picks a view of it; neither changes anything."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    card_rows.note_shown(found, user)
    return render(request, "console/approval.html", context_of(request, found))


@require_safe
def state(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """What has become of a request while it is being read. Never its form, which may hold unsaved work."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    context = card.context(found, user)
    seen = request.GET.get("version", "")
    context["news"] = str(found.version) != seen or context["standing"] != "pending"
    # It asks again even then: what was decided may be taken back.
    context["seen"] = seen if seen.isdecimal() else ""
    return render(request, "console/approval.html#state", context)


@require_safe
def side(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """The right column again."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    return render(request, "console/_approval_side.html", _with_side(request, found, card.context(found, user)))


@never_cache
@require_safe
def assured(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """What the reader must still do before they may approve, in words. `was`: nothing was needed when last asked."""
    found = card_rows.visible_or_404(signed_in(request), approval_id)
    context = {"approval": found, "ended": "was" in request.GET, **_assurance(request, found)}
    return render(request, "console/_card.html#assurance", context)


@require_http_methods(["GET", "HEAD", "POST"])
def draft(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Check what was typed and show what it would do. Stores nothing; a reload starts from the proposal."""
    if request.method != "POST":
        return redirect(reverse("approval", args=[approval_id]))
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    context = context_of(request, found, _draft(request, found))
    _check(found, context["shown"])
    status = 422 if context["shown"].form.errors else 200
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "console/approval.html#request", context)
    return render(request, "console/approval.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def decide(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Take a decision. One that is refused comes back with the reason and everything that was typed.

    That page has this address, so a GET of it leads to the request.
    """
    if request.method != "POST":
        return redirect("approval", approval_id)
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    typed = _draft(request, found)
    try:
        new = _answer(request, found, user, typed)
        if _is_first_press(request, found, new):
            return _second_press(request, found, typed)
        signed = signing.presented(request, user, new.id)
        if signed is not None:
            new = replace(new, assertion=signed[0])
        actions.decide(approval_id, new, user)
    except actions.Refused as refused:
        return _refused(request, found, typed, refused)
    if signed is not None:
        signed[1].record_usage()
    if request.POST.get("next") == "chat":
        return redirect("run_chat", run_id=found.run_id)
    return redirect(inbox.after(request.POST, approval_id))


@never_cache
@require_POST
def sign(request: HttpRequest, approval_id: uuid.UUID) -> JsonResponse:
    """What a passkey must sign for the decision in this form. Checked like a decision, but decides nothing."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    try:
        asked = signing.options(request, found, _answer(request, found, user, _draft(request, found)), user)
    except actions.Refused as refused:
        return JsonResponse({"code": refused.code, "message": refused.message}, status=refused.status)
    return PasskeyOptions(asked)


@require_http_methods(["GET", "HEAD", "POST"])
def undo(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Take back one's own decision while it is held. A GET of this address leads to the request."""
    if request.method != "POST":
        return redirect("approval", approval_id)
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    edit = next((d for d in found.decisions.all() if _is_own_edit(d, user) and d.undone_at is None), None)
    again = f"?again={edit.pk}" if edit is not None else ""
    try:
        actions.undo_decision(approval_id, user)
    except actions.Refused as refused:
        return _refused(request, found, None, refused)
    place = request.POST.get("next")
    if place == "focus":
        # The person looks at it again, so claim it for them; somebody else may have claimed it first.
        with contextlib.suppress(actions.Refused):
            actions.claim_request(approval_id, user)
        return redirect(reverse("focus_one", args=[approval_id]) + again)
    if place == "batch":
        return redirect("batch_done")
    if place == "chat" and not again:
        return redirect("run_chat", run_id=found.run_id)
    if place != "inbox" or again:  # open the page on which the edit can be changed further
        return redirect(reverse("approval", args=[approval_id]) + again)
    return redirect(inbox.back(request.POST, approval_id))


def context_of(request: HttpRequest, found: Approval, typed: card.Draft | None = None) -> dict[str, Any]:
    """Everything the page needs: the request as it stands, and what was typed."""
    user = signed_in(request)
    asked = request.GET if request.method in ("GET", "HEAD") else request.POST
    view, dialog = asked.get("view") or asked.get("now", "form"), asked.get("do", "")
    typed = typed or _taken_back(found, user, asked.get("again", ""))
    context = _with_side(request, found, card.context(found, user, typed))
    context["view"] = view if view in VIEWS else "form"
    context["json"] = masked(context["shown"].form.arguments, lens.hidden(found.secret_fields, found.pii_fields))
    context["dialog"] = dialog if dialog in DIALOGS and context["may_decide"] else ""
    if found.assurance_needed and context["may_decide"]:
        context |= _assurance(request, found)
    context["anyway"] = "anyway" in asked or not context["claimed_by_other"]
    return context


def _is_own_edit(decision: Decision, user: User) -> bool:
    return decision.type == DecisionType.EDIT and decision.user_id == user.pk


def _taken_back(found: Approval, user: User, decision_id: str) -> card.Draft | None:
    """The edit somebody made and then took back, as their draft."""
    edit = next((d for d in found.decisions.all() if str(d.pk) == decision_id and _is_own_edit(d, user)), None)
    if edit is None or edit.undone_at is None or not edit.arguments_text or found.state not in Approval.UNDECIDED:
        return None
    if found.final_arguments_text:  # somebody has edited it since
        return None
    arguments = parse(edit.arguments_text)
    return card.Draft(uuid.uuid4(), found.version, card.current_digest(found), arguments=arguments)


def _with_side(request: HttpRequest, found: Approval, context: dict[str, Any]) -> dict[str, Any]:
    """Add what the right column needs. `comments=all` shows the older comments too."""
    everything = request.GET.get("comments") == "all"
    side = beside.beside(found, signed_in(request), context["questions"], everything)
    return {**context, **side, "told": told.of(request, found.pk)}


def _assurance(request: HttpRequest, found: Approval) -> dict[str, Any]:
    """Whether the reader has just shown who they are, as the request asks; else whether they could, and by passkey."""
    needed = found.assurance_needed
    shown = assurance.shown(request, needed) if needed != SIGNED else None
    has_passkey, lacks = (False, "") if shown else assurance.lacks(signed_in(request), needed)
    words = {"needs": NEEDS.get(needed, ""), "lacks": lacks}
    return {"assured": shown, "has_passkey": has_passkey, "signs": needed == SIGNED, **words}


def _answer(request: HttpRequest, found: Approval, user: User, typed: card.Draft) -> actions.NewDecision:
    """The decision that was posted. Approving arguments other than the waiting ones is an edit. Raises Refused."""
    kind, arguments_text = request.POST.get("type", ""), ""
    if kind == CONFIRMED:
        kind = DecisionType.APPROVE
    if kind == DecisionType.APPROVE and card.context(found, user)["may_edit"]:
        shown = show(found, typed.posted)
        if shown.form.errors:
            raise actions.Refused("invalid_arguments", _ANOTHER_LOOK)
        current = found.final_arguments_text or found.arguments_text
        if shown.text != show(found, None).text:
            kind, arguments_text = DecisionType.EDIT, shown.text or current
    return actions.NewDecision(
        typed=typed.word,
        assurance=assurance.level(request),
        id=typed.decision_id,
        type=str(kind),
        version=typed.version,
        action_digest=typed.action_digest,
        arguments_text=arguments_text,
        message=typed.words,
        stop_run=typed.stop_run,
    )


def _is_first_press(request: HttpRequest, found: Approval, new: actions.NewDecision) -> bool:
    """Whether this would approve a high risk without having been confirmed.

    A request that has changed or was already decided does not count: the decision will be refused. A decision that
    already counts does not either.
    """
    if found.risk != Risk.HIGH or new.type not in (DecisionType.APPROVE, DecisionType.EDIT):
        return False
    waits = found.version <= new.version and card.standing_of(found) == "pending"
    is_first = request.POST.get("type") != CONFIRMED
    return is_first and waits and not Decision.objects.filter(pk=new.id).exists()


def _second_press(request: HttpRequest, found: Approval, typed: card.Draft) -> HttpResponse:
    """Ask the person to confirm, in a browser without script, keeping everything typed. Raises Refused."""
    context = context_of(request, found, typed)
    forbidden, shown = context["forbidden"], context["shown"]
    if forbidden is not None:
        raise actions.Refused.by(forbidden, found)
    if found.assurance_needed:
        # The dialog names the act and says what else is needed.
        raise actions.Refused("confirmation", "Press again to confirm. Nothing was decided.")
    _check(found, shown)
    if shown.form.errors:
        raise actions.Refused("invalid_arguments", _ANOTHER_LOOK)
    kept = [(name, values) for name, values in request.POST.lists() if name not in ("csrfmiddlewaretoken", "type")]
    place = request.POST.get("next")
    if place == "chat":
        back = reverse("run_chat", args=[found.run_id])
    else:
        back = reverse("focus_one", args=[found.pk]) if place == "focus" else inbox.back(request.POST, found.pk)
    return render(request, "console/approval_confirm.html", context | {"kept": kept, "back": back})


def _draft(request: HttpRequest, found: Approval) -> card.Draft:
    """What was posted. A version that cannot be read matches nothing; an unreadable id is replaced by a new one."""
    post = request.POST
    version = post.get("version", "")
    try:
        decision_id = uuid.UUID(post.get("decision_id", ""))
    except ValueError:
        decision_id = uuid.uuid4()
    return card.Draft(
        decision_id=decision_id,
        version=int(version) if version.isascii() and version.isdigit() and len(version) < 10 else -1,
        action_digest=post.get("action_digest", ""),
        posted=post,
        reason=post.get("reason", "").strip(),
        message=post.get("message", "").strip(),
        stop_run="stop_run" in post,
        word=post.get("confirm", "")[:200],
    )


def _check(found: Approval, shown: Shown) -> None:
    """Show what the tool's own schema says about edited arguments next to their fields."""
    tool = tool_of(found)
    if tool is None or not shown.edited:
        return
    for problem in check_arguments(tool.input_schema, shown.form.arguments):
        if not shown.form.point_at(problem.field, problem.sentence):
            shown.form.errors.setdefault("", problem.sentence)


def refused_page(request: HttpRequest, found: Approval, refused: actions.Refused, **more: Any) -> HttpResponse:
    """The page as it stands now, and why something other than a decision was refused."""
    found = card_rows.visible_or_404(signed_in(request), found.pk)
    context = {**context_of(request, found), "refused": refused, "undecided": True, **more}
    return render(request, "console/approval.html", context, status=refused.status)


def _refused(request: HttpRequest, found: Approval, typed: card.Draft | None, refused: actions.Refused) -> HttpResponse:
    """The page as it stands now, and why the decision was refused. Nothing typed is lost."""
    found = card_rows.visible_or_404(signed_in(request), found.pk)
    status = refused.status
    if typed is not None and refused.code in ("changed", "action_changed"):
        # Use the current version and digest, so that the next decision is about what is on the screen now. The word
        # that confirms is typed again for it.
        mine = card.carried_over(found, typed)
        typed = replace(
            typed,
            decision_id=uuid.uuid4(),
            version=found.version,
            action_digest=card.current_digest(found),
            posted=None if mine else typed.posted,
            arguments=mine,
            word="",
        )
    context = context_of(request, found, typed)
    shown = context["shown"]
    _check(found, shown)
    if refused.code in ("invalid_arguments", "locked_field"):
        shown.form.point_at(refused.field, refused.message)
    context["refused"] = refused
    context["conflict"] = status == 409 and context["standing"] != "pending"
    if context["conflict"] and typed is not None:
        decided_text = found.final_arguments_text or found.arguments_text
        typed_text = show(found, typed.posted).text if typed.posted else decided_text
        context["differs"] = parse(decided_text) != parse(typed_text)
        context["difference"] = differences(typed_text, decided_text, found.secret_fields)
    unsure = refused.code in ("confirmation", "reauthenticate", "signature")
    kind = "approve" if unsure else request.POST.get("type", "")
    if unsure or (status == 422 and kind in ("reject", "respond")):
        context["dialog"] = kind
    return render(request, "console/approval.html", context, status=status)
