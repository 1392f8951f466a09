"""Grants, masked as the fields of their tools are marked now, not only as they were when the grant was made."""

from django.contrib import admin

from agentapp import granting
from agentapp.models import Tool
from approvals import admin as of_approvals
from approvals.models import Grant

admin.site.unregister(Grant)


@admin.register(Grant)
class GrantAdmin(of_approvals.GrantAdmin):
    def hidden_of(self, grant: Grant) -> list[str]:
        return granting.hidden_of(grant, Tool.objects.filter(name=grant.tool).first())
