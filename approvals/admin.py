"""Admin pages: channels to edit, and the records to read. What other apps' admin pages share is here too."""

from collections.abc import Iterable
from typing import Any

import pydantic
from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models
from django.http import HttpRequest, HttpResponse

from approvals import channels, configuration, ledger
from approvals.digest import MalformedJSON, canonical, parse
from approvals.masking import MASK, masked
from approvals.models import Approval, Channel, Decision, Event, Notification


class StrictJSONField(forms.JSONField):
    """JSON that means the same to every part of the system: no NaN, no key twice, no numbers that lose digits."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and value.strip():
            try:
                parse(value)
            except MalformedJSON as error:
                raise ValidationError(str(error), code="invalid") from error
        return super().to_python(value)


# Checkboxes need no script, and a screen reader can tell what they are.
FORM_FIELDS: dict[Any, dict[str, Any]] = {
    models.JSONField: {"form_class": StrictJSONField},
    models.ManyToManyField: {"widget": forms.CheckboxSelectMultiple},
}


class RecordedAdmin(admin.ModelAdmin):
    """Writes one event, with before and after, for every row it changes. Nothing changed, nothing written."""

    formfield_overrides = FORM_FIELDS

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        # Links are stored later, in save_related; the event is about both.
        form.stored_before = configuration.before(obj)
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Iterable[Any], change: bool) -> None:
        with ledger.transaction():
            form.save_m2m()
            configuration.record_change(form.instance, form.stored_before, actor_of(request))
            for formset in formsets:
                self.save_formset(request, form, formset, change)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        rows = formset.save(commit=False)
        before = [configuration.before(row) for row in rows]
        for row in formset.deleted_objects:
            configuration.delete(row, actor_of(request))
        for row in rows:
            row.save()
        formset.save_m2m()
        for row, was in zip(rows, before, strict=True):
            configuration.record_change(row, was, actor_of(request))

    def delete_model(self, request: HttpRequest, obj: models.Model) -> None:
        configuration.delete(obj, actor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> None:
        with ledger.transaction():
            for obj in queryset:
                configuration.delete(obj, actor_of(request))


class ReadOnlyAdmin(admin.ModelAdmin):
    """A record: it can be looked at, by those with the right to view it, and by nobody changed."""

    actions = None
    ordering = ["-pk"]
    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if request.method == "POST":
            raise PermissionDenied
        return super().changelist_view(request, extra_context)


class ChannelForm(forms.ModelForm):
    kind = forms.ChoiceField(choices=lambda: [(kind, kind) for kind in channels.CHANNELS])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "kind" in cleaned and "config" in cleaned:
            try:
                channels.make(cleaned["kind"], cleaned["config"])
            except pydantic.ValidationError as error:
                for problem in error.errors():
                    place = ".".join(str(part) for part in problem["loc"])
                    message = str(problem.get("ctx", {}).get("error", problem["msg"]))
                    self.add_error("config", f"{place}: {message}" if place else message)
        return cleaned


@admin.register(Channel)
class ChannelAdmin(RecordedAdmin):
    form = ChannelForm
    list_display = ["name", "kind", "active"]
    list_filter = ["kind", "active"]
    fieldsets = [
        (None, {"fields": ["name", "active", "kind", "config"]}),
        (
            "Who is told",
            {
                "fields": ["groups"],
                "description": "A message leads to the signed-in page. It shows no arguments and cannot decide.",
            },
        ),
    ]


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    list_display = ["reference", "tool", "title", "agent", "risk", "state", "created_at", "decided_at"]
    list_filter = ["state", "risk", "effect_class"]
    search_fields = ["id", "tool", "run_id"]
    fieldsets = [
        (None, {"fields": ["reference", "state", "title", "final_title", "reason", "rule", "risk"]}),
        (
            "The call",
            {"fields": ["tool", "tool_version", "effect_class", "proposed", "final", "agent", "route", "run_id"]},
        ),
        (
            "Terms",
            {
                "fields": [
                    "groups",
                    "approvals_needed",
                    "allowed_decisions",
                    "starter",
                    "starter_excluded",
                    "hold_seconds",
                    "on_expiry",
                ]
            },
        ),
        ("Times", {"fields": ["created_at", "expires_at", "decided_at", "runs_at", "use_by", "used_at"]}),
        (
            "Proof",
            {"fields": ["version", "action_digest", "final_digest", "view_digest", "execution_id", "supersedes"]},
        ),
    ]

    @admin.display(description="Proposed arguments")
    def proposed(self, approval: Approval) -> str:
        return masked_arguments(approval.arguments_text, approval.secret_fields)

    @admin.display(description="Arguments that were approved")
    def final(self, approval: Approval) -> str:
        return masked_arguments(approval.final_arguments_text, approval.secret_fields)


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    list_display = ["approval", "type", "user", "via", "decided_at", "undone_at"]
    list_filter = ["type", "via"]
    list_select_related = ["approval", "user"]
    search_fields = ["id", "approval__id", "user__username"]
    fields = [
        "approval",
        "user",
        "type",
        "arguments",
        "message",
        "stop_run",
        "via",
        "decided_at",
        "undone_at",
        "approval_version",
        "action_digest",
        "view_digest",
    ]

    @admin.display(description="Arguments")
    def arguments(self, decision: Decision) -> str:
        return masked_arguments(decision.arguments_text, decision.approval.secret_fields)


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    list_display = ["approval", "channel", "state", "attempts", "created_at", "sent_at"]
    list_filter = ["state", "channel"]
    list_select_related = ["approval", "channel"]


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["at", "chain", "seq", "type", "actor"]
    ordering = ["-at", "-id"]
    search_fields = ["run_id", "type", "actor"]


def actor_of(request: HttpRequest) -> str:
    """The name an event gives the person behind an admin page."""
    if not request.user.is_authenticated:
        raise PermissionDenied
    return ledger.actor_of(request.user, "admin")


def masked_arguments(text: str, secret_fields: list[str]) -> str:
    """Arguments for people to read, without the values of secret fields."""
    if not text or not secret_fields:
        return text
    try:
        arguments = parse(text)
    except MalformedJSON:
        arguments = None
    if not isinstance(arguments, dict):
        return MASK  # what cannot be read may hold a secret anywhere
    return canonical(masked(arguments, secret_fields))
