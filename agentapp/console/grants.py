"""What people have allowed for a while: made from a request, viewed, and revoked."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentapp import actions, auth
from agentapp.console import card_rows
from agentapp.console.shell import Forbidden, signed_in
from agentapp.console.shown import execution_of
from agentapp.granting import Asked, covered, hidden_of, terms_of, why_not
from agentapp.models import Tool, ToolExecution
from agentapp.refused import status_of
from approvals import granted, lens
from approvals.digest import canonical
from approvals.grants import MAX_REASON, RIGHT
from approvals.masking import MASK, masked
from approvals.models import Approval, Grant, GrantLimit

PAGE = 50
DEFAULT_DAYS = 7


@dataclass(frozen=True)
class Shown:
    """A grant as it stands, in words."""

    grant: Grant
    words: list[tuple[str, str]]
    limits: list[tuple[str, str, str]]
    """What is limited, how much of it is used, and the limit."""
    ended: str
    """Why it no longer allows anything; empty while it does."""


@dataclass(frozen=True)
class Page:
    """Some of the grants of a list, newest first. None: from its top, or to its end."""

    rows: list[Shown]
    start: uuid.UUID | None
    older: uuid.UUID | None


@dataclass(frozen=True)
class Argument:
    """One argument of the request, and what the form says about it."""

    name: str
    shown: str
    is_secret: bool
    is_number: bool
    rule: str
    most: str
    sum: str
    error: str


@require_safe
def grants(request: HttpRequest) -> HttpResponse:
    """The grants in force and those that have ended, newest first."""
    user = signed_in(request)
    if not auth.may_see_grants(user):
        raise Forbidden("Grants are calls that people have allowed for a while.", "approvals.view_grant")
    visible = auth.visible_grants(user).select_related("made_by", "revoked_by", "approval").prefetch_related("limits")
    standing = Q(revoked_at__isnull=True, expires_at__gt=timezone.now())
    context = {
        "in_force": _page(visible.filter(standing), _key(request, "standing")),
        "ended": _page(visible.exclude(standing), _key(request, "from")),
    }
    return render(request, "console/grants.html", context)


def _page(rows: QuerySet[Grant], start: uuid.UUID | None) -> Page:
    found = list((rows.filter(pk__lte=start) if start else rows).order_by("-id")[: PAGE + 1])
    return Page(_shown(found[:PAGE]), start, found[PAGE].pk if len(found) > PAGE else None)


@require_safe
def grant(request: HttpRequest, grant_id: uuid.UUID) -> HttpResponse:
    """One grant, how much of it has been used, and the calls it has allowed."""
    return render(request, "console/grant.html", _one(request, grant_id))


@require_POST
def revoke(request: HttpRequest, grant_id: uuid.UUID) -> HttpResponse:
    """Revoke a grant, with a reason."""
    user, why = signed_in(request), request.POST.get("reason", "")
    if not auth.visible_grants(user).filter(pk=grant_id).exists():
        raise Http404
    try:
        revoked = actions.revoke_grant(grant_id, why, user)
    except actions.Refused as refused:
        context = {**_one(request, grant_id), "refused": refused, "reason": why}
        return render(request, "console/grant.html", context, status=refused.status)
    messages.success(request, f"{revoked.reference} is revoked. Calls like these ask again.")
    return redirect("grant", grant_id)


@require_http_methods(["GET", "HEAD", "POST"])
def grant_new(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Allow calls like the requested one. A post without `make` only shows what that would mean."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    if not user.has_perm(RIGHT):
        raise Forbidden("Only people with this right can allow calls for a while.", RIGHT)
    asked = Asked.read(found, execution_of(found))
    if refusal := why_not(asked, user):
        context = {"approval": found, "impossible": refusal.message}
        return render(request, "console/grant_new.html", context, status=status_of(refusal.code))
    if request.method != "POST":
        return render(request, "console/grant_new.html", _form(asked, user, None))
    refused = None
    if "make" in request.POST:
        try:
            made = actions.make_grant(approval_id, _typed(request.POST), user)
        except actions.Refused as error:
            refused = error
        else:
            messages.success(request, f"{made.reference} is made. The request it came from is still yours to decide.")
            return redirect("grant", made.pk)
    context = _form(asked, user, request.POST, refused)
    status = refused.status if refused is not None else 200
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "console/grant_new.html#meaning", context)
    return render(request, "console/grant_new.html", context, status=status)


def _form(asked: Asked, user: User, posted: QueryDict | None, refused: actions.Refused | None = None) -> dict[str, Any]:
    """The form as it stands, and what it means."""
    found = asked.approval
    typed = _typed(posted) if posted is not None else _first(asked)
    means: dict[str, Any] = {}
    try:
        terms = terms_of(asked, typed)
        looked = covered(asked, terms, user)
    except actions.Refused as error:
        # A half-typed form is not wrong until it is sent.
        refused = refused or (error if posted is not None and posted.get("make") else None)
        means = {"unclear": error.message}
    else:
        constraints = masked_constraints(terms.constraints, lens.hidden(found.secret_fields, found.pii_fields))
        means = {"words": granted.in_words(constraints), "covered": looked, "terms": terms}
        means["limits"] = [(_of(kind, name), granted.plain(most)) for kind, name, most in terms.limits]
    arguments = [_argument(name, asked, typed, refused) for name in asked.arguments]
    counts = [(kind, typed.counts.get(kind, "")) for kind in asked.counted]
    return {
        "approval": found,
        "arguments": arguments,
        "counts": counts,
        "typed": typed,
        "refused": refused,
        "max_days": settings.GRANT_MAX_DAYS,
        "max_reason": MAX_REASON,
        **means,
    }


def _first(asked: Asked) -> actions.NewGrant:
    """What the form begins with: this exact call, for a week at most."""
    arguments = asked.arguments
    rules = {name: granted.ANY for name in arguments if _holds_secret(name, arguments, asked.approval)}
    return actions.NewGrant(rules=rules, days=str(min(DEFAULT_DAYS, settings.GRANT_MAX_DAYS)))


def _typed(post: QueryDict) -> actions.NewGrant:
    def of(kind: str) -> dict[str, str]:
        return {
            key.removeprefix(f"{kind}:"): str(value)[:200] for key, value in post.items() if key.startswith(f"{kind}:")
        }

    return actions.NewGrant(
        rules=of("rule"),
        most=of("most"),
        sums=of("sum"),
        counts=of("count"),
        days=post.get("days", "")[:20],
        max_hits=post.get("max_hits", "")[:20],
        reason=post.get("reason", "")[: MAX_REASON + 1],
    )


def _argument(name: str, asked: Asked, typed: actions.NewGrant, refused: actions.Refused | None) -> Argument:
    found, value = asked.approval, asked.arguments[name]
    properties = asked.tool.input_schema.get("properties", {}) if asked.tool is not None else {}
    schema = properties.get(name, {})
    shown = masked({name: value}, lens.hidden(found.secret_fields, found.pii_fields))[name]
    number = granted.number_of(value)
    fields = (name, f"limit:{name}")
    return Argument(
        name=name,
        shown=shown if isinstance(shown, str) else canonical(shown),
        is_secret=_holds_secret(name, {name: value}, found),
        is_number=number is not None and _is_amount(name, value, schema),
        rule=typed.rules.get(name, granted.IS),
        most=typed.most.get(name, granted.plain(number) if number is not None else ""),
        sum=typed.sums.get(name, ""),
        error=refused.message if refused is not None and refused.field in fields else "",
    )


def _is_amount(name: str, value: Any, schema: dict[str, Any]) -> bool:
    """Whether a limit makes sense for a number: a customer's number is not an amount."""
    if name.lower() == "id" or name.endswith(("_id", "Id")):
        return False
    kinds = {kind for each in (schema, *schema.get("anyOf", ())) for kind in [each.get("type")] if kind}
    return not isinstance(value, str) or "number" in kinds or "." in value


def _holds_secret(name: str, arguments: dict[str, Any], found: Approval) -> bool:
    value = {name: arguments[name]}
    return bool(masked(value, found.secret_fields) != value)


def _one(request: HttpRequest, grant_id: uuid.UUID) -> dict[str, Any]:
    user = signed_in(request)
    visible = auth.visible_grants(user).select_related("made_by", "revoked_by", "approval")
    found = visible.prefetch_related("limits").filter(pk=grant_id).first()
    if found is None:
        raise Http404
    ran = ToolExecution.objects.filter(grant=found, run__in=auth.visible_runs(user)).select_related("run", "step")
    start = _key(request, "from")
    calls = list((ran.filter(pk__lte=start) if start else ran).order_by("-pk")[: PAGE + 1])
    [shown] = _shown([found])
    return {
        "shown": shown,
        "grant": found,
        "calls": calls[:PAGE],
        "older": calls[PAGE].pk if len(calls) > PAGE else None,
        "from_top": start is None,
        "may_revoke": found.revoked_at is None and not shown.ended and auth.may_revoke_grant(user, found),
        "request_visible": auth.visible_approvals(user).filter(pk=found.approval_id).exists(),
    }


def _shown(found: Sequence[Grant]) -> list[Shown]:
    """Grants in words, given what the tools are like now. One query for all."""
    tools = {tool.name: tool for tool in Tool.objects.filter(name__in={each.tool for each in found})} if found else {}
    now = timezone.now()
    shown = []
    for each in found:
        tool = tools.get(each.tool)
        constraints = masked_constraints(each.constraints, hidden_of(each, tool))
        limits = [
            (_of(limit.kind, limit.name), granted.plain(limit.used), granted.plain(limit.most))
            for limit in each.limits.all()
        ]
        ended = _ended(each, tool, now)
        shown.append(Shown(each, granted.in_words(constraints), limits, ended))
    return shown


def _ended(grant: Grant, tool: Tool | None, now: Any) -> str:
    """Why a grant no longer allows anything, in a word or two."""
    if grant.revoked_at is not None:
        return "Revoked"
    if grant.expires_at <= now:
        return "Over"
    if grant.max_hits is not None and grant.hits >= grant.max_hits:
        return "Used up"
    if tool is None or (tool.version, tool.effect_class) != (grant.tool_version, grant.effect_class):
        return "Void: the tool has changed"
    return "Used up" if any(limit.left <= 0 for limit in grant.limits.all()) else ""


def masked_constraints(constraints: Any, secrets: Sequence[str]) -> list[dict[str, Any]]:
    """Constraints as they may be shown: values that have become secret since are masked."""
    return [
        {**each, "value": MASK if each["name"] in secrets else masked(each.get("value"), secrets)}
        for each in constraints
    ]


def _of(kind: str, name: str) -> str:
    return f"the sum of {name}" if kind == GrantLimit.Kind.SUM else name


def _key(request: HttpRequest, name: str) -> uuid.UUID | None:
    """Where a page begins. Anything but a key begins at the top."""
    try:
        return uuid.UUID(request.GET.get(name, ""))
    except ValueError:
        return None
