"""How the admin's pages are grouped: by what people come for, not by the app a table lives in."""

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import reverse

# Tables by class name. Those not listed here come last, under "More".
GROUPS = {
    "Configuration": [
        "Agent",
        "Route",
        "Guideline",
        "Tool",
        "ToolRelation",
        "ToolSource",
        "Rule",
        "Channel",
        "WebhookEndpoint",
    ],
    "Stopping": ["Breaker", "KillSwitch"],
    "People and programs": ["User", "Group", "Delegation", "ApiToken"],
    "Records": [
        "Run",
        "Step",
        "ToolExecution",
        "Conversation",
        "Message",
        "Approval",
        "Decision",
        "Grant",
        "PlannedCall",
        "Comment",
        "Judgement",
        "Notification",
        "WebhookDelivery",
        "Erasure",
        "Event",
    ],
}
_REST = "More"


def app_list(site: AdminSite, request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
    """Replaces `AdminSite.get_app_list`. The page of a single app stays as Django makes it."""
    apps: list[dict[str, Any]] = AdminSite.get_app_list(site, request, app_label)
    if app_label is not None:
        return apps
    found = {model["object_name"]: model for app in apps for model in app["models"]}
    rest = [name for name in found if all(name not in names for names in GROUPS.values())]
    groups = {
        title: [found[name] for name in names if name in found] for title, names in {**GROUPS, _REST: rest}.items()
    }
    return [
        {
            "name": title,
            "app_label": title.lower().replace(" ", "-"),
            "app_url": f"{reverse('admin:index')}#{title.lower().replace(' ', '-')}",
            "has_module_perms": True,
            "models": models,
        }
        for title, models in groups.items()
        if models
    ]
