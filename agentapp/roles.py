"""The five roles as Django groups, and what each may do."""

from django.contrib.auth.models import Group, Permission
from django.db.models import Q

_RUNS_READ = ["agentapp.view_run", "agentapp.view_step", "agentapp.view_toolexecution", "agentapp.view_conversation"]
_CONTROLS = ["agentapp.engage_killswitch", "agentapp.view_killswitch", "agentapp.view_breaker"]
_CONFIGURED = {
    "agentapp": [
        "agent",
        "route",
        "contextvariable",
        "tool",
        "toolsource",
        "guideline",
        "guidelinerelation",
        "toolrelation",
        "webhookendpoint",
    ],
    "approvals": ["rule", "channel"],
}
_CONFIGURE = [
    f"{app}.{verb}_{model}"
    for app, models in _CONFIGURED.items()
    for model in models
    for verb in ("add", "change", "delete", "view")
]

ROLES: dict[str, list[str]] = {
    "viewer": [*_RUNS_READ],
    "approver": [
        *_RUNS_READ,
        "approvals.decide_approval",
        "agentapp.resolve_outcome",
        "agentapp.start_run",
        "agentapp.undo_call",
    ],
    "operator": [*_RUNS_READ, "agentapp.start_run", "agentapp.cancel_run", "agentapp.pause_run", "agentapp.undo_call"],
    "manager": [
        *_RUNS_READ,
        "agentapp.pause_run",
        "agentapp.raise_budget",
        "approvals.view_approval",
        "approvals.view_decision",
        "approvals.view_event",
        "approvals.view_grant",
        "approvals.view_notification",
        "approvals.view_delegation",
        "approvals.revoke_delegation",
        *_CONTROLS,
    ],
    "admin": [
        *_RUNS_READ,
        *_CONFIGURE,
        *_CONTROLS,
        "agentapp.start_run",
        "agentapp.cancel_run",
        "agentapp.pause_run",
        "agentapp.raise_budget",
        "agentapp.add_apitoken",
        "agentapp.change_apitoken",
        "agentapp.view_apitoken",
        "agentapp.view_webhookdelivery",
        "approvals.view_approval",
        "approvals.view_decision",
        "approvals.view_event",
        "approvals.view_grant",
        "approvals.view_notification",
        "approvals.view_delegation",
        "approvals.revoke_delegation",
        "auth.view_user",
        "auth.add_user",
        "auth.change_user",
        "auth.view_group",
    ],
}


def ensure_roles() -> list[str]:
    """Make the roles' groups where they are missing. Returns those made; an existing one is left alone."""
    made = []
    for name, wanted in ROLES.items():
        group, created = Group.objects.get_or_create(name=name)
        if not created:
            continue
        chosen = Q(pk__in=[])
        for permission in wanted:
            app, codename = permission.split(".")
            chosen |= Q(content_type__app_label=app, codename=codename)
        group.permissions.set(Permission.objects.filter(chosen))
        made.append(name)
    return made
