"""What a person may do, read with one query instead of two: every page and every API call needs it."""

from typing import Any

from allauth.account.auth_backends import AuthenticationBackend
from django.contrib.auth.models import Permission
from django.db.models import IntegerField, Q

from approvals.prepared import Given, Prepared

_USER = Given("user", IntegerField())
_RIGHTS = Permission.objects.order_by().values_list("content_type__app_label", "codename")
_EVERY = Prepared(_RIGHTS.all)
_OF_ONE = Prepared(lambda: _RIGHTS.filter(Q(user=_USER) | Q(group__user=_USER)))


class RightsBackend(AuthenticationBackend):  # type: ignore[misc]
    """Sign-in as in django-allauth. Rights are a person's own and their groups'; there are none for single rows."""

    def get_all_permissions(self, user: Any, obj: Any = None) -> Any:
        if not user.is_active or user.is_anonymous or obj is not None:
            return set()
        if not hasattr(user, "_perm_cache"):
            found = _EVERY.rows() if user.is_superuser else _OF_ONE.rows(user=user.pk)
            user._perm_cache = {f"{label}.{name}" for label, name in found}
        return user._perm_cache
