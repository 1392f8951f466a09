from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers

from agentapp import auth
from agentapp.admin import sign_in
from agentapp.models import ApiToken
from approvals.admin_pages import RowAdmin, actor_of
from approvals.clock import is_too_far


class NewTokenForm(forms.ModelForm):
    """What a token is for. Only the person it acts as can make one that decides or comments."""

    scopes = forms.MultipleChoiceField(
        choices=[(scope, f"{scope}: {meaning}") for scope, meaning in auth.SCOPES.items()],
        validators=[auth.check_scopes],
        widget=forms.CheckboxSelectMultiple,
        help_text="A token that starts runs cannot decide.",
    )
    maker: User

    class Meta:
        model = ApiToken
        fields = ["name", "user", "scopes", "expires_at"]
        help_texts = {
            "name": "What uses it, for example 'nightly import'.",
            "user": "The person it acts as, with at most their rights. You cannot decide about runs that it starts "
            "in another person's name.",
            "expires_at": "When it stops working. Empty means never; a date is safer.",
        }

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise forms.ValidationError("This moment has passed.")
        if expires_at is not None and is_too_far(expires_at):
            raise forms.ValidationError("This is more than ten years from now. Leave it empty for a token without end.")
        return expires_at

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if auth.FOR_ONESELF & set(cleaned.get("scopes", [])) and cleaned.get("user") != self.maker:
            self.add_error("user", auth.ONLY_FOR_ONESELF)
        return cleaned


class StandingFilter(admin.SimpleListFilter):
    """Tokens that work, and those that no longer do."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("active", "Active"), ("expired", "Expired"), ("revoked", "Revoked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
        expired = Q(expires_at__lte=timezone.now())
        chosen = {
            "active": Q(revoked_at=None) & ~expired,
            "expired": Q(revoked_at=None) & expired,
            "revoked": Q(revoked_at__isnull=False),
        }.get(self.value() or "")
        return queryset.filter(chosen) if chosen is not None else queryset


@admin.register(ApiToken)
class ApiTokenAdmin(RowAdmin):
    """Tokens are made and revoked; they are never changed, and their rows stay."""

    about = (
        "Keys for programs. A token acts as one person, within its scopes and that person's rights. It is shown once, "
        "when it is made; if you lose it, revoke it and make another."
    )
    when_empty = "A program that starts runs or reads records needs a token. Each is shown once, when it is made."
    actions = ["revoke"]
    list_display = ["name", "prefix", "user", "may", "standing", "expires_at", "last_used_at"]
    list_filter = [StandingFilter, "user"]
    list_select_related = ["user"]
    search_fields = ["name", "prefix", "user__username"]
    search_help_text = "Name, first characters of the token, or user."
    fields = ["name", "user", "scopes", "expires_at"]
    shown = [
        "name",
        "prefix",
        "user",
        "may",
        "issuer",
        "standing",
        "created_at",
        "expires_at",
        "last_used_at",
        "revoked_at",
    ]

    @admin.display(description="Scopes")
    def may(self, token: ApiToken) -> str:
        return ", ".join(token.scopes)

    @admin.display(description="Made by")
    def issuer(self, token: ApiToken) -> str:
        return str(token.issued_by) if token.issued_by else "The person it acts as, or a command"

    @admin.display(description="State")
    def standing(self, token: ApiToken) -> str:
        if token.revoked_at is not None:
            return "Revoked"
        if token.expires_at is not None and token.expires_at <= timezone.now():
            return "Expired"
        return "Active"

    @admin.action(
        permissions=["change"],
        description="Revoke the token, at once and for good",
        description_plural="Revoke the selected tokens, at once and for good",
        location=[admin.ActionLocation.CHANGE_LIST, admin.ActionLocation.CHANGE_FORM],
    )
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        revoked = sum(auth.revoke_token(token, actor_of(request)) for token in queryset)
        self.message_user(request, f"{revoked} revoked.", messages.SUCCESS)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Finding an unlocked screen is not enough to make a token. Revoking one is safe, so it asks nothing."""
        return sign_in.renewal(request) or super().add_view(request, form_url, extra_context)

    def get_form(self, request: HttpRequest, obj: ApiToken | None = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        form: Any = super().get_form(request, obj, change, **{**kwargs, "form": NewTokenForm})
        form.maker = request.user
        person = form.base_fields["user"].widget
        person.can_add_related = person.can_change_related = person.can_view_related = False
        return form

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        return self.shown if obj else self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        return self.shown if obj else []

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if kwargs.get("change"):
            context |= {"show_save": False, "show_save_and_continue": False, "is_record": True}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        if change:
            return
        token, secret = auth.issue_token(
            obj.user, obj.name, form.cleaned_data["scopes"], actor_of(request), obj.expires_at, form.maker
        )
        # The page that follows is about the row that was made.
        obj.pk, obj.prefix = token.pk, token.prefix
        form.instance.secret = secret

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Show the token in this answer only: a message on the next page would travel in a cookie."""
        shown = {"title": "Token", "opts": self.opts, "row": obj, "secret": obj.secret}
        answer = TemplateResponse(request, "admin/token_made.html", self.admin_site.each_context(request) | shown)
        add_never_cache_headers(answer)
        return answer
