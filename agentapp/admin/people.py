"""People and groups: Django's own pages, with every change recorded. No event holds a password."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse

from approvals import configuration, ledger
from approvals.admin import RecordedAdmin, actor_of

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(RecordedAdmin, DjangoUserAdmin):
    """Nobody gives rights beyond their own reach: superusers are changed by superusers alone."""

    list_display = ["username", "first_name", "last_name", "email", "is_active", "is_staff", "last_login"]
    filter_horizontal = []
    readonly_fields = ["last_login", "date_joined"]  # what happened, not what is set

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and not _is_above(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not _is_above(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        return fields if _is_superuser(request) else [*fields, "is_superuser", "user_permissions"]

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        if request.method != "POST":
            return super().user_change_password(request, id, form_url)
        with ledger.transaction():
            user = self.get_object(request, unquote(id))
            response = super().user_change_password(request, id, form_url)
            changed = User.objects.filter(pk=user.pk).exclude(password=user.password).first() if user else None
            if changed is not None:
                data = {"user": changed.pk, "name": str(changed), "usable": changed.has_usable_password()}
                ledger.record(ledger.CONFIGURATION, "user.password_changed", data, actor_of(request))
        return response


@admin.register(Group)
class GroupAdmin(RecordedAdmin, DjangoGroupAdmin):
    filter_horizontal = []

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """A rule or request without its group would be open to everybody, so such a group stays."""
        listed, counts, missing, protected = super().get_deleted_objects(objs, request)
        named = [f"{type(row)._meta.verbose_name} {row}" for group in objs for row in configuration.naming(group)]
        return listed, counts, missing, [*protected, *named]


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_authenticated and request.user.is_superuser


def _is_above(request: HttpRequest, user: User | None) -> bool:
    return user is not None and user.is_superuser and not _is_superuser(request)
