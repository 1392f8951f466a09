"""The admin: where agents, tools, rules and tokens are configured, one file per noun.

It is Django's own site in the console's colours. People sign in on the console's page.
"""

from functools import partial

from django.conf import settings
from django.contrib import admin

from agentapp.admin import (
    agents,
    controls,
    erasures,
    grants,
    guidelines,
    menu,
    people,
    rules,
    runs,
    sign_in,
    sources,
    tokens,
    tools,
    webhooks,
)

__all__ = [
    "agents",
    "controls",
    "erasures",
    "grants",
    "guidelines",
    "people",
    "rules",
    "runs",
    "sources",
    "tokens",
    "tools",
    "webhooks",
]

admin.site.site_header = admin.site.site_title = f"{settings.WORKSPACE_NAME} administration"
admin.site.index_title = "Configuration and records"
admin.site.login = sign_in.sign_in  # type: ignore[method-assign]
admin.site.password_change = sign_in.password  # type: ignore[assignment,method-assign]
admin.site.get_app_list = partial(menu.app_list, admin.site)  # type: ignore[method-assign]
