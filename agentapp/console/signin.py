"""Sign in and out: passkey, single sign-on, password, second factor. All are recorded in the ledger; secrets never."""

import logging
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import requests
from allauth.account.forms import LoginForm
from allauth.account.views import LoginView
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.webauthn.views import LoginWebAuthnView
from allauth.socialaccount.adapter import get_adapter as single_sign_on
from allauth.socialaccount.providers.openid_connect import views as openid
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from agentapp import renewed
from agentapp.console import entrance, reset
from agentapp.console.codes import SignInCode
from approvals import ledger
from approvals.models import Approval

logger = logging.getLogger(__name__)


class SignInForm(LoginForm):
    """A name and a password, under the names that browsers and password managers know."""

    def add_prefix(self, field_name: str) -> str:
        return super().add_prefix("username" if field_name == "login" else field_name)


class SignIn(LoginView):
    """The sign-in page. A wrong name and a wrong password get the same answer."""

    template_name = "console/signin.html"
    form_class = SignInForm

    def get_form_class(self) -> type[SignInForm]:
        return self.form_class

    def form_invalid(self, form: SignInForm) -> HttpResponse:
        response = super().form_invalid(form)
        locked = entrance.is_locked(form.non_field_errors().as_data())
        response.status_code = HTTPStatus.TOO_MANY_REQUESTS if locked else HTTPStatus.UNPROCESSABLE_ENTITY
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        form = context["form"]
        name = form.data.get("username", "") if form.is_bound else ""
        locked = form.is_bound and entrance.is_locked(form.non_field_errors().as_data())
        return context | {
            "name": name,
            "next": self.get_next_url() or "",
            "destination": destination(self.get_next_url() or ""),
            "signed_out": signed_out(self.request),
            "can_reset": settings.PASSWORD_RESET,
            "password_changed": self.request.session.pop(reset.CHANGED, False),
            # At least one minute: it was locked a moment ago.
            "minutes": max(1, entrance.minutes_locked(self.request, name.strip())) if locked else 0,
            "providers": single_sign_on().list_providers(self.request),
        }


class SecondFactor(AuthenticateView):
    """After the password: a code from the app, a recovery code, or a passkey."""

    template_name = "console/signin_second.html"

    def get_form_class(self) -> type[SignInCode]:
        return SignInCode

    def form_invalid(self, form: Any) -> HttpResponse:
        by = "code" if "code" in self.request.POST else "passkey"
        user = self.stage.login.user
        entrance.record_failure(user.get_username() if user else "", by)
        response = super().form_invalid(form)
        response.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        kinds = set(self.stage.login.user.authenticator_set.values_list("type", flat=True))
        return context | {"has_app": "totp" in kinds, "has_passkey": "webauthn" in kinds, "failed": self.form}


class Passkey(LoginWebAuthnView):
    """Signing in with a passkey alone. It is both something one has and something one knows or is."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not entrance.may_ask_for_passkey(request):
            return JsonResponse({"detail": "Too many tries."}, status=HTTPStatus.TOO_MANY_REQUESTS)
        response = super().get(request, *args, **kwargs)
        if isinstance(response, JsonResponse):
            response["Cache-Control"] = "no-store"
        return response

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return entrance.too_many(request) or super().post(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        entrance.record_failure("", "passkey")
        context = {"why": "passkey", "next": self.request.POST.get("next", "")}
        return render(self.request, "console/signin_refused.html", context, status=HTTPStatus.UNAUTHORIZED)


sign_in = SignIn.as_view()
second_factor = SecondFactor.as_view()
passkey = Passkey.as_view()


@login_not_required
def single_sign_on_begin(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Send somebody to their provider."""
    # allauth can do more here than sign in, and reads the post too. We have no pages for the rest.
    asked, posted = request.GET.copy(), request.POST.copy()
    for form in (asked, posted):
        form.pop("process", None)
    if request.user.is_authenticated:  # showing again who they are: the provider must not rely on what it remembers
        asked["auth_params"] = renewed.ask_provider(request)
    request.GET, request.POST = asked, posted  # type: ignore[assignment]
    return _through_provider(openid.login, request, provider_id)


@login_not_required
def single_sign_on_end(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Somebody returns from their provider."""
    return _through_provider(openid.callback, request, provider_id)


@login_not_required
@never_cache
def switched_off(request: HttpRequest) -> HttpResponse:
    """Where people with a disabled account end up, after showing that it is theirs."""
    return render(request, "console/signin_refused.html", {"why": "switched_off"}, status=HTTPStatus.FORBIDDEN)


@login_not_required
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session; or, in the middle of signing in, start over."""
    user = request.user
    with ledger.transaction():
        if isinstance(user, User):
            ledger.record(ledger.CONFIGURATION, "signout", {"user": user.get_username()}, ledger.actor_of(user))
        logout(request)
    response = redirect("login")
    response.delete_cookie(entrance.SIGNED_IN_COOKIE)
    return response


def _through_provider(view: Callable[[HttpRequest, str], HttpResponse], request: HttpRequest, id: str) -> HttpResponse:
    try:
        return entrance.too_many(request) or view(request, id)
    except (requests.RequestException, ValueError, LookupError):
        logger.warning("The provider %s could not be used.", id, exc_info=True)
        entrance.record_failure("", f"sso:{id}", reason="unreachable")
        name = next(app.name for app in single_sign_on().list_apps(request) if app.provider_id == id)
        context = {"provider": name, "why": "unreachable"}
        return render(request, "console/signin_refused.html", context, status=HTTPStatus.BAD_GATEWAY)


def signed_out(request: HttpRequest) -> str:
    """Why a person who was signed in no longer is, in words; empty if they were not."""
    try:
        since = int(request.COOKIES.get(entrance.SIGNED_IN_COOKIE, ""))
    except ValueError:
        return ""
    if time.time() - since < settings.SESSION_COOKIE_AGE:
        return "Your session was ended."
    hours = settings.SESSION_COOKIE_AGE // 3600
    return f"You were signed out after {hours} hours."


def destination(url: str) -> str:
    """The page to which the person will return, in words; empty for the usual one."""
    parts = urlsplit(url).path.strip("/").split("/")
    if parts[0] == "approvals" and len(parts) > 1:
        try:
            return Approval(pk=uuid.UUID(parts[1])).reference
        except ValueError:
            return "the request you opened"
    if parts[0] == "runs":
        return "the run you opened" if len(parts) > 1 else "the runs"
    return {"settings": "your settings", "admin": "the administration"}.get(parts[0], "")
