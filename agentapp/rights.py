"""What a person may do, read with one question instead of two: every page and every call of the API asks it."""

from typing import Any

from allauth.account.auth_backends import AuthenticationBackend
from django.contrib.auth.models import Permission
from django.db.models import Q


class RightsBackend(AuthenticationBackend):  # type: ignore[misc]
    """Sign-in as django-allauth has it. Rights are one's own and those of one's groups; nobody is asked about a row."""

    def get_all_permissions(self, user: Any, obj: Any = None) -> Any:
        if not user.is_active or user.is_anonymous or obj is not None:
            return set()
        if not hasattr(user, "_perm_cache"):
            rights = Permission.objects.order_by()
            if not user.is_superuser:
                rights = rights.filter(Q(user=user) | Q(group__user=user))
            found = rights.values_list("content_type__app_label", "codename")
            user._perm_cache = {f"{label}.{name}" for label, name in found}
        return user._perm_cache
