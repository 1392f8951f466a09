"""What is stopped, to look at. The console's page of controls changes it."""

from django.contrib import admin

from agentapp.models import Breaker, KillSwitch
from approvals.admin import ReadOnlyAdmin


@admin.register(Breaker)
class BreakerAdmin(ReadOnlyAdmin):
    list_display = ["key", "scope", "state", "failures", "threshold", "cooldown_seconds", "opened_at"]
    list_filter = ["scope", "state"]
    search_fields = ["key"]


@admin.register(KillSwitch)
class KillSwitchAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "scope", "reason", "engaged_by", "engaged_at"]
    list_filter = ["scope"]
    list_select_related = ["engaged_by"]
