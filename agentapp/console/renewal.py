"""Showing again who you are, before something important: passkey, code or password, all on one page."""

from http import HTTPStatus
from typing import Any

from allauth.account.forms import ReauthenticateForm
from allauth.account.internal import flows
from allauth.account.views import BaseReauthenticateView
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import ReauthenticateWebAuthnForm
from allauth.mfa.webauthn.internal import auth as webauthn
from allauth.socialaccount.adapter import get_adapter as single_sign_on
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe

from agentapp.console import entrance
from agentapp.console.codes import RenewalCode
from agentapp.console.shell import signed_in
from agentapp.discretion import PasskeyOptions
from approvals import ledger


@method_decorator([never_cache, sensitive_post_parameters("password")], name="dispatch")
class Reauthenticate(BaseReauthenticateView):
    """`?next=` is where to go on. Each way is a form of its own; the posted field tells which."""

    template_name = "console/reauthenticate.html"

    def get_form_class(self) -> Any:
        if "code" in self.request.POST:
            return RenewalCode
        return ReauthenticateWebAuthnForm if "credential" in self.request.POST else ReauthenticateForm

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "user": self.request.user}

    def form_valid(self, form: Any) -> HttpResponse:
        user = signed_in(self.request)
        if isinstance(form, ReauthenticateForm):
            flows.reauthentication.reauthenticate_by_password(self.request)
        else:
            form.save()
        with ledger.transaction():
            data = {"user": user.get_username(), "by": entrance.methods(self.request, user)[-1]}
            ledger.record(ledger.CONFIGURATION, "signin.renewed", data, ledger.actor_of(user))
        return super().form_valid(form)

    def form_invalid(self, form: Any) -> HttpResponse:
        if not isinstance(form, ReauthenticateForm):  # a wrong password is recorded where it is checked
            by = "code" if isinstance(form, RenewalCode) else "passkey"
            entrance.record_failure(signed_in(self.request).get_username(), by, renewing=True)
        response = super().form_invalid(form)
        response.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        user = signed_in(self.request)
        kinds = set(Authenticator.objects.filter(user=user).values_list("type", flat=True))
        has_password = user.has_usable_password()
        return context | {
            "next": self.get_next_url() or "",
            "has_code": bool(kinds & {"totp", "recovery_codes"}),
            "has_passkey": "webauthn" in kinds,
            "has_password": has_password,
            "passkey_options": webauthn.begin_authentication(user) if "webauthn" in kinds else None,
            # People without anything else sign in through their provider again.
            "providers": [] if has_password or kinds else single_sign_on().list_providers(self.request),
            "failed": context["form"].is_bound and context["form"],
        }


reauthenticate = Reauthenticate.as_view()


@never_cache
@require_safe
def passkey_options(request: HttpRequest) -> PasskeyOptions:
    """The passkey challenge for a dialog that stays on its page. The answer is posted to the view above."""
    return PasskeyOptions(webauthn.begin_authentication(signed_in(request)))
