"""How somebody shows who they are: password, authenticator app, passkeys, recovery codes.

allauth's views do the work. Their changes are found by comparing rows, and recorded in the same transaction.
"""

from collections import Counter
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.forms import ChangePasswordForm
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes import views as recovery
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as webauthn
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from agentapp import account_changes
from agentapp.console.settings.sections import ALL, SECURITY, page, saved
from agentapp.console.shell import signed_in
from agentapp.renewed import renewal_required
from approvals import ledger

KINDS = {"totp": "totp", "webauthn": "passkey", "recovery_codes": "recovery_codes"}

type View = Callable[..., HttpResponse]


class PasswordForm(ChangePasswordForm):
    """The old password is checked as at sign-in: tries are counted, and too many lock the account."""

    def clean_oldpassword(self) -> str:
        if not get_adapter().reauthenticate(self.user, self.cleaned_data["oldpassword"]):
            raise get_adapter().validation_error("incorrect_password")
        return self.cleaned_data["oldpassword"]


@require_http_methods(["GET", "HEAD"])
def security(request: HttpRequest) -> HttpResponse:
    return page(request, SECURITY, _context(request))


@never_cache
@sensitive_post_parameters("oldpassword", "password1", "password2")
@require_http_methods(["POST"])
def password(request: HttpRequest) -> HttpResponse:
    """Change one's own password. This ends every other session."""
    user = User.objects.get(pk=signed_in(request).pk)
    form = PasswordForm(user=user, data=request.POST)
    if not user.has_usable_password() or not form.is_valid():
        return page(request, SECURITY, _context(request) | {"form": form}, HTTPStatus.UNPROCESSABLE_ENTITY)
    with ledger.transaction():
        get_adapter().set_password(user, form.cleaned_data["password1"])
        data = {"user": user.pk, "name": str(user), "usable": True}
        account_changes.record(user, account_changes.PASSWORD_CHANGED, data, ledger.actor_of(user))
    update_session_auth_hash(request, user)
    return saved(request, SECURITY)


def recorded(view: View) -> View:
    """The same view, but with added and removed ways to sign in recorded in the ledger."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method != "POST":
            return view(request, *args, **kwargs)
        user = signed_in(request)
        with ledger.transaction():
            before = _ways(user)
            response = view(request, *args, **kwargs)
            _record_changes(user, before, _ways(user))
        return response

    return wrapped


def _ways(user: User) -> dict[int, str]:
    return dict(Authenticator.objects.filter(user=user).values_list("pk", "type"))


def _record_changes(user: User, before: dict[int, str], after: dict[int, str]) -> None:
    changes = [(account_changes.FACTOR_REMOVED, before[key]) for key in before.keys() - after.keys()]
    changes += [(account_changes.FACTOR_ADDED, after[key]) for key in after.keys() - before.keys()]
    for (event, kind), number in Counter(changes).items():
        data = {"user": user.get_username(), "kind": KINDS[kind], "number": number}
        account_changes.record(user, event, data, ledger.actor_of(user))


def _context(request: HttpRequest) -> dict[str, Any]:
    user = signed_in(request)
    ways = [authenticator.wrap() for authenticator in Authenticator.objects.filter(user=user).order_by("created_at")]
    of_kind: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for way in ways:
        of_kind[way.instance.type].append(way)
    return {
        "passkeys": of_kind["webauthn"],
        "app": next(iter(of_kind["totp"]), None),
        "codes_left": sum(_codes_left(way) for way in of_kind["recovery_codes"]),
        "has_password": user.has_usable_password(),
    }


def _codes_left(way: Any) -> int:
    try:
        return len(way.get_unused_codes())
    except ValidationError:  # made with another SECRET_KEY: none of the codes can be used
        return 0


class _Framed:
    """Shown in the settings' frame; a refused form gets a status that says so."""

    request: HttpRequest

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)  # type: ignore[misc]
        return {**context, "sections": ALL, "here": SECURITY}

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)  # type: ignore[misc]
        response.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
        return response


class AddApp(_Framed, totp.ActivateTOTPView):
    template_name = "console/settings/app_add.html"


class RemoveApp(_Framed, totp.DeactivateTOTPView):
    template_name = "console/settings/app_remove.html"


class AddPasskey(_Framed, webauthn.AddWebAuthnView):
    template_name = "console/settings/passkey_add.html"


class RemovePasskey(_Framed, webauthn.RemoveWebAuthnView):
    template_name = "console/settings/passkey_remove.html"
    success_url = reverse_lazy("settings_security")


@method_decorator(never_cache, name="dispatch")
class Codes(_Framed, recovery.ViewRecoveryCodesView):
    template_name = "console/settings/codes.html"


class NewCodes(_Framed, recovery.GenerateRecoveryCodesView):
    template_name = "console/settings/codes_new.html"


add_app = renewal_required(recorded(AddApp.as_view()))
remove_app = renewal_required(recorded(RemoveApp.as_view()))
add_passkey = renewal_required(recorded(AddPasskey.as_view()))
remove_passkey = renewal_required(recorded(RemovePasskey.as_view()))
codes = renewal_required(Codes.as_view())
new_codes = renewal_required(recorded(NewCodes.as_view()))
