"""How people sign in, in whatever way: allauth asks these three adapters, and every answer goes into the ledger.

Nobody signs up here. A person is let in, turned away or locked out, and no answer reveals whether a name exists.
"""

import base64
import ipaddress
import math
import time
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.core.internal import ratelimit
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.utils.crypto import salted_hmac
from django.utils.http import url_has_allowed_host_and_scheme

from agentapp.renewed import has_provider_alone, is_anew, renew_last, was_asked
from approvals import ledger
from approvals.digest import storable

# A name field may contain a password typed there by mistake: keep only enough to recognise a person.
NAME_KEPT = 40
# A provider's words about a failure are read by people, once.
SAID_KEPT = 300
# Says since when this browser was signed in. Used only for the words on the sign-in page.
SIGNED_IN_COOKIE = "signed_in_at"
_REMEMBERED_SECONDS = 30 * 24 * 3600
# Set in the state of a provider sign-in that began in the session of the person it leads to.
_RENEWS = "renews"
_METHODS = {"webauthn": "passkey", "totp": "totp", "recovery_codes": "recovery_code"}


def methods(request: HttpRequest, user: User) -> list[str]:
    """The ways in which this session has shown that it belongs to this person, in order."""
    named = [_method(record) for record in get_authentication_records(request, user)]
    # Keep the last of each method: one that was renewed comes at the end.
    return list(reversed(dict.fromkeys(reversed(named))))


def record_failure(name: str, by: str, **more: Any) -> None:
    """Record a failed sign-in. Leaves out an unknown name: people type passwords into the wrong field."""
    kept = storable(name)[:NAME_KEPT]
    known = bool(kept) and User.objects.filter(username=kept).exists()
    with ledger.transaction():
        data = {"user": kept if known else "", "known": known, "by": by, **more}
        ledger.record(ledger.CONFIGURATION, "signin.failed", data)


class AccountAdapter(DefaultAccountAdapter):
    """Names, passwords, sessions."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "incorrect_password": "That is not your password. Nothing was changed.",
        "too_many_login_attempts": "Too many tries have failed.",
        "rate_limited": "Too many tries have failed. Wait a few minutes, then try again.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def add_message(self, request: HttpRequest, level: int, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the pages say what happened, in their own words."""

    def is_safe_url(self, url: str) -> bool:
        """Only this host, whatever else is served next to it."""
        return url_has_allowed_host_and_scheme(url, {self.request.get_host()}, self.request.is_secure())

    def get_client_ip(self, request: HttpRequest) -> str:
        """The address. IPv4 over an IPv6 socket is given as IPv4: else all of it would count as one IPv6 prefix."""
        address = ipaddress.ip_address(super().get_client_ip(request))
        return str(getattr(address, "ipv4_mapped", None) or address)

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """The name alone, in any spelling that finds the same person.

        allauth also uses the request's `Host`, which an attacker may choose: a different port is enough to count as
        another host. Databases compare in capitals, where some letters of other alphabets become S or I.
        """
        name = str(credentials.get("email", credentials.get("username", "")))
        return name.upper().lower()

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        user = super().authenticate(request, **credentials)
        if user is not None and not user.is_active:
            # The right password of a disabled account is answered like a wrong one.
            self.authentication_failed(request, **credentials)
            return None
        return user

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        name = str(credentials.get("username", ""))
        renewing = request.user.is_authenticated
        locks = {} if renewing or minutes_locked(request, name) == 0 else {"locked": True}
        record_failure(name, "password", **({"renewing": True} if renewing else {}), **locks)

    def pre_login(self, request: HttpRequest, user: Any, **kwargs: Any) -> HttpResponse | None:
        through = (kwargs.get("signal_kwargs") or {}).get("sociallogin")
        if through is not None and through.state.get(_RENEWS):
            renew_last(request, user)
        answer: HttpResponse | None = super().pre_login(request, user, **kwargs)
        return answer

    def login(self, request: HttpRequest, user: Any) -> None:
        """One transaction: nobody is signed in without the event that records it."""
        by = methods(request, user)
        with ledger.transaction():
            super().login(request, user)
            data = {"user": user.get_username(), "by": by}
            ledger.record(ledger.CONFIGURATION, "signin.succeeded", data, ledger.actor_of(user))

    def post_login(self, request: HttpRequest, user: Any, **kwargs: Any) -> HttpResponse:
        response = super().post_login(request, user, **kwargs)
        response.set_cookie(
            SIGNED_IN_COOKIE, str(int(time.time())), max_age=_REMEMBERED_SECONDS, httponly=True,
            secure=settings.SESSION_COOKIE_SECURE, samesite="Lax",
        )  # fmt: skip
        return response

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """One page for all methods."""
        return [{"id": "reauthenticate", "description": "", "url": resolve_url("reauthenticate")}]


class MfaAdapter(DefaultMFAAdapter):
    """Second factors and passkeys."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "That did not match. Codes are valid for about a minute, and each works once.",
    }

    def encrypt(self, text: str) -> str:
        """Encrypt an app's secret, so that the table alone is useless to a thief."""
        return _ciphers().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Under a different SECRET_KEY a secret cannot be decrypted, so its codes count as wrong."""
        try:
            return _ciphers().decrypt(encrypted_text.encode()).decode()
        except InvalidToken as error:
            raise self.validation_error("incorrect_code") from error

    def get_totp_label(self, user: Any) -> str:
        name: str = user.get_username()
        return name

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        return {**super().get_public_key_credential_rp_entity(), "name": settings.WORKSPACE_NAME}

    def generate_authenticator_name(self, user: Any, type: Any) -> str:
        return "Passkey"


class SingleSignOnAdapter(DefaultSocialAccountAdapter):
    """People whom a provider vouches for. They must have an account here with the address the provider verified."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Find whose identity it is. For a signed-in person with no other way, it also renews their sign-in."""
        if not sociallogin.is_existing:
            self._connect(request, sociallogin)
        if request.user == sociallogin.user and (asked := was_asked(request)) is not None:
            self._demand_anew(request, sociallogin, asked)
            sociallogin.state[_RENEWS] = has_provider_alone(sociallogin.user)

    def _demand_anew(self, request: HttpRequest, sociallogin: Any, asked: float) -> None:
        """Refuse if the provider did not ask the person to sign in again, or does not say that it did."""
        app, token = sociallogin.provider.app, sociallogin.account.extra_data.get("id_token") or {}
        told = token.get("auth_time")
        if is_anew(told, asked) or (told is None and app.settings.get("trust_renewal")):
            return
        why = "not_told" if told is None else "not_anew"
        record_failure(request.user.get_username(), f"sso:{app.provider_id}", renewing=True, reason=why)
        context = {"provider": sociallogin.provider.name, "why": why, "next": sociallogin.state.get("next", "")}
        raise ImmediateHttpResponse(_refused(request, context, 403))

    def _connect(self, request: HttpRequest, sociallogin: Any) -> None:
        """Tie a new identity to the one account with its verified address, or say that there is none."""
        provider = sociallogin.provider
        # Some providers send it as text, and the text "false" would count as true.
        addresses = {each.email for each in sociallogin.email_addresses if each.verified in (True, "true")} - {""}
        addresses = _as_written(addresses, sociallogin.account.extra_data)
        found = [user for address in addresses for user in _people_of(address)]
        if len(found) != 1 or not found[0].is_active:
            record_failure("", f"sso:{provider.app.provider_id}", reason="no_account")
            why = "no_account" if addresses else "no_address"
            raise ImmediateHttpResponse(_refused(request, {"provider": provider.name, "why": why}, 403))
        user = found[0]
        with ledger.transaction():
            sociallogin.connect(request, user)
            data = {"user": user.get_username(), "provider": provider.app.provider_id}
            ledger.record(ledger.CONFIGURATION, "signin.provider_connected", data, ledger.actor_of(user))

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Show what the provider says. It is text from outside and stays text."""
        said = request.GET.get("error_description") or request.GET.get("error") or _reason(exception)
        said = storable(said)[:SAID_KEPT]
        record_failure("", f"sso:{provider.app.provider_id}", reason=str(error or "unknown")[:40])
        raise ImmediateHttpResponse(_refused(request, {"provider": provider.name, "why": "failed", "said": said}, 401))


def minutes_locked(request: HttpRequest, name: str) -> int:
    """For how many more minutes nobody may sign in under this name or from this address. 0: not locked."""
    now, longest = time.time(), 0.0
    key = AccountAdapter(request)._get_login_attempts_cache_key(request, username=name)
    for rate in ratelimit.get_rates(app="allauth.account", action="login_failed"):
        where = ratelimit.get_cache_key(request, app="allauth.account", action="login_failed", rate=rate, key=key)
        tries = [at for at in cache.get(where, []) if at > now - rate.duration]
        if len(tries) >= rate.amount:
            longest = max(longest, min(tries) + rate.duration - now)
    return math.ceil(longest / 60)


def may_ask_for_passkey(request: HttpRequest) -> bool:
    """Whether this address has not asked for too many passkey challenges. Counts this one."""
    return bool(ratelimit.consume(request, app="allauth.account", action="passkey_options", limit_get=True))


def too_many(request: HttpRequest) -> HttpResponse | None:
    """The answer to an address that tries too often in ways other than a password. Counts this try.

    Every try through a provider starts a session, and its failures are recorded, whoever makes it.
    """
    answer: HttpResponse | None = ratelimit.consume_or_429(
        request, app="allauth.account", action="other_ways", limit_get=True
    )
    return answer


def is_locked(errors: list[ValidationError]) -> bool:
    """Whether a form was refused because of too many failed tries."""
    return any(error.code in ("too_many_login_attempts", "rate_limited") for error in errors)


def _as_written(addresses: set[str], told: dict[str, Any]) -> set[str]:
    """Addresses as the provider wrote them. allauth lowercases them, which can make different letters equal."""
    claims = [told, *(each for each in told.values() if isinstance(each, dict))]
    written = {str(each["email"]) for each in claims if each.get("email")}
    return {found for address in addresses for found in ({w for w in written if w.lower() == address} or {address})}


def _people_of(address: str) -> list[User]:
    """Whose address this is. Databases may treat different letters as equal; addresses that only look alike differ."""
    alike = User.objects.filter(email__iexact=address).order_by("pk")[:10]
    return [user for user in alike if user.email == address or (address + user.email).isascii()]


def _ciphers() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet(
        [
            Fernet(base64.urlsafe_b64encode(salted_hmac("countersign.factors", "", key, algorithm="sha256").digest()))
            for key in keys
        ]
    )


def _method(record: dict[str, Any]) -> str:
    kind = str(record.get("method", ""))
    if kind == "mfa":
        return _METHODS.get(str(record.get("type")), "code")
    return f"sso:{record.get('provider')}" if kind == "socialaccount" else kind


def _reason(exception: Any) -> str:
    return str(exception) if exception else "The answer did not belong to a sign-in that began here."


def _refused(request: HttpRequest, context: dict[str, Any], status: int) -> HttpResponse:
    return render(request, "console/signin_refused.html", context, status=status)
