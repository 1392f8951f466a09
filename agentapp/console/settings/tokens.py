"""One's own API tokens: made with no more rights than their owner has, shown once, revoked."""

import uuid
from datetime import timedelta
from http import HTTPStatus

from django import forms
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import auth
from agentapp.console.settings.sections import TOKENS, page, saved
from agentapp.console.shell import signed_in
from agentapp.models import ApiToken
from agentapp.renewed import renewal_required
from approvals import clock, ledger

# What a person must be allowed to do for their token to do it; any one of these is enough.
NEEDS: dict[str, tuple[str, ...]] = {
    "runs:create": ("agentapp.start_run",),
    "approvals:decide": ("approvals.decide_approval", "agentapp.resolve_outcome"),
    # This scope speaks as the customer: it is for programs, whose tokens administrators make.
    "conversations:write": ("agentapp.add_apitoken",),
    "configuration:read": (
        "agentapp.start_run",
        "agentapp.view_agent",
        "agentapp.view_tool",
        "agentapp.engage_killswitch",
        "agentapp.view_breaker",
        "agentapp.view_killswitch",
    ),
    "controls:operate": ("agentapp.engage_killswitch",),
}
LASTS = {"30": "30 days", "90": "90 days", "365": "A year", "": "Until it is revoked"}


def scopes_of(user: User) -> dict[str, str]:
    """The scopes that this person's tokens can have, and what each allows."""
    return {
        scope: meaning
        for scope, meaning in auth.SCOPES.items()
        if scope not in NEEDS or any(user.has_perm(right) for right in NEEDS[scope])
    }


class TokenForm(forms.Form):
    name = forms.CharField(max_length=80)
    scopes = forms.MultipleChoiceField(validators=[auth.check_scopes])
    days = forms.ChoiceField(choices=list(LASTS.items()), required=False)

    def __init__(self, user: User, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        self.fields["scopes"].choices = list(scopes_of(user).items())  # type: ignore[attr-defined]


@never_cache
@require_http_methods(["GET", "HEAD"])
def tokens(request: HttpRequest) -> HttpResponse:
    user = signed_in(request)
    return page(request, TOKENS, _context(user, TokenForm(user)))


@never_cache
@renewal_required
def issue(request: HttpRequest) -> HttpResponse:
    """Make a token and show it this once. An open screen is not enough for that."""
    user = signed_in(request)
    if request.method != "POST":  # the person comes back here after showing who they are
        return page(request, TOKENS, _context(user, TokenForm(user)))
    form = TokenForm(user, request.POST)
    if not form.is_valid():
        return page(request, TOKENS, _context(user, form), HTTPStatus.UNPROCESSABLE_ENTITY)
    days = form.cleaned_data["days"]
    ends = clock.asked() + timedelta(days=int(days)) if days else None
    made = form.cleaned_data
    token, secret = auth.issue_token(user, made["name"], made["scopes"], ledger.actor_of(user), ends)
    return page(request, TOKENS, _context(user, TokenForm(user)) | {"made": token, "secret": secret})


@require_POST
def revoke(request: HttpRequest, token_id: uuid.UUID) -> HttpResponse:
    user = signed_in(request)
    token = ApiToken.objects.filter(user=user, pk=token_id).first()
    if token is None:
        raise Http404("There is no such token of yours.")
    revoked = auth.revoke_token(token, ledger.actor_of(user))
    return saved(request, TOKENS, "Revoked" if revoked else "It was already revoked")


def _context(user: User, form: TokenForm) -> dict[str, object]:
    return {
        "form": form,
        "scopes": scopes_of(user),
        "lasts": LASTS,
        "tokens": ApiToken.objects.filter(user=user, revoked_at__isnull=True),
        "now": timezone.now(),
    }
