"""People and groups: Django's own pages, with every change recorded. No event holds a password."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from agentapp import account_changes, factors
from agentapp.admin import sign_in
from approvals import configuration, ledger, rule_versions
from approvals.admin_pages import RecordedAdmin, actor_of

# Providers are configured in the environment. Nobody may read or edit people's secrets and sessions here.
admin.site.unregister([User, Group, Authenticator, EmailAddress, SocialAccount, SocialApp, SocialToken, UserSession])

_EVERYWHERE = [admin.ActionLocation.CHANGE_LIST, admin.ActionLocation.CHANGE_FORM]


class NewUserForm(AdminUserCreationForm):
    """The admin's own script focuses the first field; browsers warn about a second autofocus."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].widget.attrs.pop("autofocus", None)


class PersonForm(UserChangeForm):
    def clean_username(self) -> str:
        """Sign-in ignores case: if two names differed only in case, neither person could sign in."""
        name = str(self.cleaned_data["username"])
        was = self.initial.get("username", name)
        if was != name and User.objects.filter(username__iexact=name).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError("Somebody already has this name; capitals make no difference.")
        return name


class RenewedAdmin(RecordedAdmin):
    """Rows that say what people may do and how they sign in. Finding an unlocked screen is not enough to change one."""

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        asked = sign_in.renewal(request) if request.method == "POST" else None
        return asked or super().changeform_view(request, object_id, form_url, extra_context)


@admin.register(User)
class UserAdmin(RenewedAdmin, DjangoUserAdmin):
    """Nobody gives rights beyond their own: only superusers change superusers."""

    form = PersonForm
    add_form = NewUserForm
    about = "Who can sign in. Their groups say what they may do."
    list_display = ["username", "first_name", "last_name", "email", "is_active", "is_staff", "last_login"]
    list_filter = ["is_active", "is_staff", "groups"]
    filter_horizontal = []
    readonly_fields = ["last_login", "date_joined"]  # what happened, not what is set
    actions = ["forget_factors"]

    @admin.action(
        permissions=["change"], description="Remove passkeys and second factors, and end sessions", location=_EVERYWHERE
    )
    def forget_factors(self, request: HttpRequest, queryset: QuerySet[User]) -> HttpResponse | None:
        """For people who have lost their device. Nobody can do it to those above them."""
        if asked := sign_in.renewal(request):
            return asked
        people = [user for user in queryset if not _is_above(request, user)]
        gone = sum(factors.forget(user, actor_of(request)) for user in people)
        self.message_user(request, f"{gone} removed; their sessions have ended.", messages.SUCCESS)
        return None

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        return sign_in.renewal(request, holds_password=True) or super().add_view(request, form_url, extra_context)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if change and "email" in form.changed_data:
            account_changes.address_changed(obj, form.initial["email"])

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and not _is_above(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not _is_above(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        return fields if _is_superuser(request) else [*fields, "is_superuser", "user_permissions"]

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        if asked := sign_in.renewal(request, holds_password=True):
            return asked
        if request.method != "POST":
            return super().user_change_password(request, id, form_url)
        with ledger.transaction():
            user = self.get_object(request, unquote(id))
            response = super().user_change_password(request, id, form_url)
            changed = User.objects.filter(pk=user.pk).exclude(password=user.password).first() if user else None
            if changed is not None:
                data = {"user": changed.pk, "name": str(changed), "usable": changed.has_usable_password()}
                account_changes.record(changed, account_changes.PASSWORD_CHANGED, data, actor_of(request))
        return response


class GroupForm(forms.ModelForm):
    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        was = self.initial.get("name", name)
        if was != name and (rules := rule_versions.naming(was)):
            listed = ", ".join(rule.name for rule in rules[:5])
            raise forms.ValidationError(
                f"Thresholds, steps or drafts refer to this group by name: {listed}. Make them name another first."
            )
        return name


@admin.register(Group)
class GroupAdmin(RenewedAdmin, DjangoGroupAdmin):
    form = GroupForm
    filter_horizontal = []
    about = "Roles and teams. A group's rights are its members'; rules and channels name groups."
    readonly_fields = ["rights"]

    def get_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        only_looks = obj is not None and not self.has_change_permission(request, obj)
        return ["name", "rights" if only_looks else "permissions"]

    @admin.display(description="Permissions")
    def rights(self, group: Group) -> str:
        """One per line, for people who can only look: Django would run them together like a sentence."""
        return "\n".join(sorted(permission.name for permission in group.permissions.all())) or "-"

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """A rule or request without its group would be open to everybody, so such a group cannot be deleted."""
        listed, counts, missing, protected = super().get_deleted_objects(objs, request)
        rows = [row for group in objs for row in (*configuration.naming(group), *rule_versions.naming(group.name))]
        named = list(dict.fromkeys(f"{type(row)._meta.verbose_name} {row}" for row in rows))
        return listed, counts, missing, [*protected, *named]


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_authenticated and request.user.is_superuser


def _is_above(request: HttpRequest, user: User | None) -> bool:
    return user is not None and user.is_superuser and not _is_superuser(request)
