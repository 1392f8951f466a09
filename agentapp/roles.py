"""The five roles as Django groups, and what each may do."""

from collections.abc import Collection, Iterable

from django.contrib.auth.models import Group, Permission
from django.db.models import Q

from approvals import configuration, ledger

_READ = [
    "agentapp.view_run",
    "agentapp.view_step",
    "agentapp.view_toolexecution",
    "agentapp.view_conversation",
    # A person who may see what agents did may also see what they can do.
    "agentapp.view_tool",
]
_EVALS = ["agentapp.view_evalsuite", "agentapp.view_evalcase", "agentapp.view_evalrun", "agentapp.view_evalresult"]
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
    "viewer": [*_READ],
    "approver": [
        *_READ,
        "approvals.decide_approval",
        "approvals.reveal_pii",
        "approvals.reveal_secret",
        "agentapp.resolve_outcome",
        "agentapp.start_run",
        "agentapp.undo_call",
    ],
    "operator": [
        *_READ,
        "approvals.reveal_pii",
        "agentapp.start_run",
        *_EVALS,
        "agentapp.run_eval",
        "agentapp.change_evalcase",
        "agentapp.cancel_run",
        "agentapp.pause_run",
        "agentapp.undo_call",
        "agentapp.try_tool",
    ],
    "manager": [
        *_READ,
        "agentapp.pause_run",
        "agentapp.raise_budget",
        "approvals.view_approval",
        "approvals.view_decision",
        "approvals.view_event",
        "approvals.view_grant",
        "approvals.view_notification",
        "approvals.view_delegation",
        "approvals.revoke_delegation",
        "approvals.judge_decision",
        "approvals.view_judgement",
        "agentapp.view_insights",
        *_EVALS,
        *_CONTROLS,
    ],
    "admin": [
        *_READ,
        *_CONFIGURE,
        *_CONTROLS,
        "agentapp.start_run",
        *_EVALS,
        "agentapp.run_eval",
        "agentapp.change_evalcase",
        "agentapp.try_tool",
        "agentapp.cancel_run",
        "agentapp.pause_run",
        "agentapp.raise_budget",
        "agentapp.add_apitoken",
        "agentapp.erase_content",
        "agentapp.view_erasure",
        "approvals.reveal_pii",
        "agentapp.change_apitoken",
        "agentapp.view_apitoken",
        "agentapp.view_webhookdelivery",
        "agentapp.view_insights",
        "approvals.view_approval",
        "approvals.view_decision",
        "approvals.view_event",
        "approvals.view_grant",
        "approvals.view_notification",
        "approvals.view_delegation",
        "approvals.revoke_delegation",
        "approvals.judge_decision",
        "approvals.view_judgement",
        "auth.view_user",
        "auth.add_user",
        "auth.change_user",
        "auth.view_group",
    ],
}


def ensure_roles() -> list[str]:
    """Create the roles' groups that are missing. Returns those created; existing groups are left alone."""
    made = []
    for name, wanted in ROLES.items():
        group, created = Group.objects.get_or_create(name=name)
        if not created:
            continue
        group.permissions.set(_permissions(wanted))
        made.append(name)
    return made


def lacking() -> dict[str, list[str]]:
    """The permissions that each role's group has in a new installation but not here. Complete groups are left out.

    An upgrade brings permissions that older groups lack. Others were removed on purpose: the two cannot be told apart.
    """
    found: dict[str, list[str]] = {}
    for group in Group.objects.filter(name__in=ROLES).order_by("name").prefetch_related("permissions__content_type"):
        has = {f"{each.content_type.app_label}.{each.codename}" for each in group.permissions.all()}
        if lacks := [permission for permission in ROLES[group.name] if permission not in has]:
            found[group.name] = lacks
    return found


def complete(names: Collection[str], actor: str) -> dict[str, list[str]]:
    """Give these roles' groups what they lack, on record, and remove nothing. Returns what each was given."""
    with ledger.transaction():
        given = {name: lacks for name, lacks in lacking().items() if name in names}
        for group in Group.objects.filter(name__in=given).order_by("name"):
            has = group.permissions.all()
            configuration.save(group, actor, {"permissions": [*has, *_permissions(given[group.name])]})
    return given


def _permissions(names: Iterable[str]) -> list[Permission]:
    chosen = Q(pk__in=[])
    for name in names:
        app, codename = name.split(".")
        chosen |= Q(content_type__app_label=app, codename=codename)
    return list(Permission.objects.filter(chosen))
