"""Where people sign in. allauth finds its own pages by the names listed next to ours."""

from django.urls import path, re_path

from agentapp.console import renewal, reset, setup, signin

urlpatterns = [
    path("login/", signin.sign_in, name="login"),
    path("login/", signin.sign_in, name="account_login"),
    path("login/passkey/", signin.passkey, name="mfa_login_webauthn"),
    path("login/second/", signin.second_factor, name="mfa_authenticate"),
    path("login/switched-off/", signin.switched_off, name="account_inactive"),
    path("login/reset/", reset.ask, name="account_reset_password"),
    path("login/reset/asked/", reset.asked, name="account_reset_password_done"),
    re_path(
        "^login/reset/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>[0-9A-Za-z-]+)/$",
        reset.choose,
        name="account_reset_password_from_key",
    ),
    path("login/sso/<slug:provider_id>/", signin.single_sign_on_begin, name="openid_connect_login"),
    path("login/sso/<slug:provider_id>/callback/", signin.single_sign_on_end, name="openid_connect_callback"),
    path("logout/", signin.sign_out, name="logout"),
    path("setup/", setup.setup, name="setup"),
    path("reauthenticate/", renewal.reauthenticate, name="reauthenticate"),
    path("reauthenticate/", renewal.reauthenticate, name="account_reauthenticate"),
    path("reauthenticate/passkey/", renewal.passkey_options, name="reauthenticate_passkey"),
]
