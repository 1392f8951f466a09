"""A person's settings, one page per section. allauth finds its own pages by the names that begin with mfa_."""

from django.urls import path

from agentapp.console.settings import absence, delegation, looks, notifications, profile, security, sessions, tokens

urlpatterns = [
    path("", profile.profile, name="settings"),
    path("notifications/", notifications.notifications, name="settings_notifications"),
    path("notifications/test/", notifications.test, name="settings_notifications_test"),
    path("keys/", looks.keys, name="settings_keys"),
    path("appearance/", looks.appearance, name="settings_appearance"),
    path("security/", security.security, name="settings_security"),
    path("security/", security.security, name="mfa_index"),
    path("security/password/", security.password, name="settings_password"),
    path("security/app/", security.add_app, name="mfa_activate_totp"),
    path("security/app/remove/", security.remove_app, name="mfa_deactivate_totp"),
    path("security/passkeys/", security.add_passkey, name="mfa_add_webauthn"),
    path("security/passkeys/<int:pk>/remove/", security.remove_passkey, name="mfa_remove_webauthn"),
    path("security/codes/", security.codes, name="mfa_view_recovery_codes"),
    path("security/codes/new/", security.new_codes, name="mfa_generate_recovery_codes"),
    path("sessions/", sessions.sessions, name="settings_sessions"),
    path("sessions/<int:session_id>/end/", sessions.end, name="settings_session_end"),
    path("sessions/end-others/", sessions.end_others, name="settings_sessions_end_others"),
    path("tokens/", tokens.tokens, name="settings_tokens"),
    path("tokens/new/", tokens.issue, name="settings_token_issue"),
    path("tokens/<uuid:token_id>/revoke/", tokens.revoke, name="settings_token_revoke"),
    path("absence/", absence.absence, name="settings_absence"),
    path("absence/end/", absence.end, name="settings_absence_end"),
    path("delegation/", delegation.delegation, name="settings_delegation"),
    path("delegation/<uuid:delegation_id>/end/", delegation.end, name="settings_delegation_end"),
]
