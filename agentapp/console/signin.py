"""Sign in and out, each written to the ledger's configuration chain. Never a password."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth import logout
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from approvals import ledger
from approvals.digest import storable

# What was typed as a name may be a password in the wrong field: enough to recognise a person by.
_NAME_KEPT = 40


class SignIn(LoginView):
    """The sign-in page. A wrong name and a wrong password get the same answer."""

    template_name = "console/signin.html"
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        # One transaction: nobody is signed in without the event that says so.
        with ledger.transaction():
            response = super().form_valid(form)
            ledger.record(ledger.CONFIGURATION, "signin.succeeded", {"user": user.get_username()}, _actor(user))
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        name = storable(str(form.data.get("username", "")))[:_NAME_KEPT]
        known = User.objects.filter(username=name).exists()
        with ledger.transaction():
            # An unknown name is left out: people type passwords into the wrong field.
            ledger.record(ledger.CONFIGURATION, "signin.failed", {"user": name if known else "", "known": known})
        response = super().form_invalid(form)
        response.status_code = 422
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        return {**context, "destination": _destination(self.get_redirect_url())}


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    user = request.user
    with ledger.transaction():
        if isinstance(user, User):
            ledger.record(ledger.CONFIGURATION, "signout", {"user": user.get_username()}, _actor(user))
        logout(request)
    return redirect("login")


def _actor(user: Any) -> str:
    return ledger.actor_of(user)


def _destination(url: str) -> str:
    """The page a person will return to, in words; empty for the usual one."""
    path = urlsplit(url).path
    if path.startswith("/approvals/"):
        return "the request you opened"
    if path.startswith("/runs/"):
        return "the run you opened" if path.strip("/") != "runs" else "the runs"
    return "the settings" if path.startswith("/admin/") else ""
