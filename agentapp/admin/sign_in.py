"""The admin uses the console's pages for signing in and for changing a password, so one set of rules applies."""

from typing import Any
from urllib.parse import urlencode

from allauth.account.internal.flows import reauthentication
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme

from agentapp.renewed import is_renewed


@login_not_required
def sign_in(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """Send people to the console's page. A person who is already signed in lacks the right to be here."""
    if request.user.is_authenticated:
        raise PermissionDenied
    back = request.GET.get(REDIRECT_FIELD_NAME, "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        back = resolve_url("admin:index")
    return redirect_to_login(back)


def password(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """Django's own page would change it without recording it in the ledger."""
    return redirect("settings_security")


def renewal(request: HttpRequest, *, holds_password: bool = False) -> HttpResponse | None:
    """Where people confirm who they are; None if this person did so within the last five minutes.

    What they posted is kept in their session until then, and goes on. A password typed for somebody else is not kept.
    """
    if is_renewed(request):
        return None
    page, back = resolve_url("account_reauthenticate"), request.get_full_path()
    # A post left there earlier must not be the one that goes on now.
    request.session.pop(reauthentication.STATE_SESSION_KEY, None)
    if request.method == "POST" and not holds_password:
        reauthentication.suspend_request(request, page)
        back = request.path  # by which it is found; the query string is kept with it
    return redirect(f"{page}?{urlencode({REDIRECT_FIELD_NAME: back})}")
