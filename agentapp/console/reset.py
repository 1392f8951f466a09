"""A forgotten password: asking for a link by mail, and choosing a new password with it. allauth's views do the work.

The answer to an address is the same and takes as long whether or not the account exists: only a worker looks it up.
A link does not sign anybody in: afterwards the person signs in like everybody else.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from http import HTTPStatus
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.forms import ResetPasswordForm
from allauth.account.internal import flows
from allauth.account.views import PasswordResetDoneView, PasswordResetFromKeyView, PasswordResetView
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from agentapp import password_reset, tasks
from agentapp.console import entrance
from agentapp.console.settings.sessions import known_device
from approvals import broker, ledger

# Set in the session of a person who has just chosen a password: the sign-in page says so, once.
CHANGED = "password_changed"

type View = Callable[..., HttpResponse]


class AddressForm(ResetPasswordForm):
    """The page must not know whether the account exists."""

    def clean_email(self) -> str:
        address: str = self.cleaned_data["email"]
        return address

    def save(self, request: HttpRequest, **kwargs: Any) -> str:
        address: str = self.cleaned_data["email"]
        asked = (address, asdict(_asking(request)))
        broker.tell(tasks.mail_reset_links, asked, about="to mail a link for a new password")
        return address


class Ask(PasswordResetView):
    template_name = "console/reset.html"
    form_class = AddressForm

    def get_success_url(self) -> str:
        return reverse("account_reset_password_done")

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        response.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "minutes": settings.PASSWORD_RESET_TIMEOUT // 60}


class Asked(PasswordResetDoneView):
    template_name = "console/reset_asked.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "minutes": settings.PASSWORD_RESET_TIMEOUT // 60}


class Choose(PasswordResetFromKeyView):
    """The link itself only puts its key into the session and leads on to an address without it."""

    template_name = "console/reset_new.html"
    reset_user: User | None

    def logout(self) -> None:
        """Do nothing: opening a link signs nobody out; choosing a password with it does."""

    def form_valid(self, form: Any) -> HttpResponse:
        user = self.reset_user
        if user is None or not password_reset.use(user, self.key, form.cleaned_data["password1"]):
            return self.render_to_response(self.get_context_data(token_fail=True))
        # People who locked their own name by guessing can sign in with their new password.
        get_adapter()._delete_login_attempts_cached_email(self.request, username=user.get_username())
        flows.password_reset.finalize_password_reset(self.request, user)
        _sign_out(self.request, user)
        self.request.session[CHANGED] = True
        response = redirect("login")
        response.delete_cookie(entrance.SIGNED_IN_COOKIE)
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        response.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
        return response

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        if context.get("token_fail"):
            kwargs["status"] = HTTPStatus.GONE
        return super().render_to_response({**context, "account": self.reset_user}, **kwargs)


def _guarded(view: View) -> View:
    """Available only where mail can be sent. Browsers must not keep the pages, nor pass on the address of the link."""

    @wraps(view)
    @never_cache
    @sensitive_post_parameters("password1", "password2")
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.PASSWORD_RESET:
            raise Http404("Passwords are not reset by mail here.")
        response = view(request, *args, **kwargs)
        if kwargs.get("key", Choose.reset_url_key) != Choose.reset_url_key:
            # Not for the form: without a referrer its post would be refused.
            response["Referrer-Policy"] = "no-referrer"
        return response

    return guarded


ask = _guarded(Ask.as_view())
asked = _guarded(Asked.as_view())
choose = _guarded(Choose.as_view())


def _asking(request: HttpRequest) -> password_reset.Asking:
    try:
        ip = get_adapter().get_client_ip(request)
    except PermissionDenied:
        ip = ""
    who = request.user.get_username() if request.user.is_authenticated else ""
    return password_reset.Asking(ip, known_device(request.headers.get("User-Agent", "")), who)


def _sign_out(request: HttpRequest, changed: User) -> None:
    """Sign out this browser's user, whoever it is: the next to use it is the person who chose a password."""
    user = request.user
    with ledger.transaction():
        if isinstance(user, User) and user.pk != changed.pk:
            ledger.record(ledger.CONFIGURATION, "signout", {"user": user.get_username()}, ledger.actor_of(user))
        logout(request)
