"""The admin's sign-in is the console's, and so is changing one's password: one page each, one set of rules."""

from typing import Any

from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme


@login_not_required
def sign_in(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """Send people to the console's page. Somebody who is signed in already lacks the right to be here."""
    if request.user.is_authenticated:
        raise PermissionDenied
    back = request.GET.get(REDIRECT_FIELD_NAME, "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        back = resolve_url("admin:index")
    return redirect_to_login(back)


def password(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """Django's own page would change it without a word in the ledger."""
    return redirect("settings_security")
