"""Codes of an authenticator app, each accepted only once for as long as it is valid.

allauth forgets a used code after the half minute in which it is shown. But to allow for clocks that differ, it
accepts the code a little earlier and later too, so anybody who saw it typed could have used it again.
"""

from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa import app_settings
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm, BaseAuthenticateForm, ReauthenticateForm
from allauth.mfa.base.internal.flows import check_rate_limit
from allauth.mfa.models import Authenticator
from django.core.cache import cache


class _Once(BaseAuthenticateForm):
    def clean_code(self) -> str:
        used = f"code-used:{self.user.pk}:{normalize_user_code(self.cleaned_data['code'])}"
        if cache.get(used):
            check_rate_limit(self.user)  # this counts as another failed try
            raise get_adapter().validation_error("incorrect_code")
        code: str = super().clean_code()
        if self.authenticator.type == Authenticator.Type.TOTP:
            cache.set(used, True, (2 * app_settings.TOTP_TOLERANCE + 1) * app_settings.TOTP_PERIOD)
        return code


class SignInCode(_Once, AuthenticateForm):
    """The second step of a sign-in."""


class RenewalCode(_Once, ReauthenticateForm):
    """Showing again who you are."""
