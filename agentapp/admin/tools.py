from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest

from agentapp.models import Tool, ToolSource
from agentapp.tool_sync import is_weaker
from approvals.admin import RecordedAdmin


class ToolForm(forms.ModelForm):
    """Safety settings. Fields are named from the tool's own schema, so that none can be mistyped."""

    locked_fields = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Arguments an approver cannot change.",
    )
    secret_fields = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Arguments that are masked on every page.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("locked_fields", "secret_fields"):
            # What is set stays selectable when a new contract no longer has it.
            known = dict.fromkeys([*self.instance.input_schema.get("properties", {}), *getattr(self.instance, name)])
            if name in self.fields:
                self.fields[name].choices = [(field, field) for field in known]  # type: ignore[attr-defined]


@admin.register(Tool)
class ToolAdmin(RecordedAdmin):
    form = ToolForm
    list_display = ["name", "effect_class", "approval_mode", "enabled", "is_there", "source", "owner"]
    list_filter = ["enabled", "effect_class", "approval_mode", "source"]
    list_select_related = ["source"]
    search_fields = ["name", "description", "owner"]
    readonly_fields = [
        "name",
        "source",
        "description",
        "input_schema",
        "title_template",
        "sentence_template",
        "effects_template",
        "button_template",
        "declared_effect_class",
        "takes_snapshot",
        "output_schema",
        "business_key_template",
        "return_direct",
        "version",
        "missing_since",
    ]
    fieldsets = [
        (None, {"fields": ["name", "description", "enabled", "owner"]}),
        (
            "Safety",
            {
                "fields": ["effect_class", "declared_effect_class", "approval_mode", "trust"],
                "description": "Yours to set: reading the tools from code again never touches it.",
            },
        ),
        ("Arguments", {"fields": ["locked_fields", "secret_fields", "additional_arguments"]}),
        (
            "Execution",
            {"fields": ["timeout_seconds", "max_attempts", "idempotency", "repeatable", "stop_on_failure"]},
        ),
        ("Limits", {"fields": ["max_calls_per_run", "cost_per_call", "result_max_kb"]}),
        (
            "Contract, from code",
            {
                "classes": ["collapse"],
                "fields": [
                    "source",
                    "input_schema",
                    "title_template",
                    "sentence_template",
                    "effects_template",
                    "button_template",
                    "takes_snapshot",
                    "output_schema",
                    "business_key_template",
                    "return_direct",
                    "version",
                    "missing_since",
                ],
            },
        ),
    ]

    @admin.display(boolean=True, description="In code")
    def is_there(self, tool: Tool) -> bool:
        return tool.missing_since is None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # tools come from code: see sync_tools

    def has_delete_permission(self, request: HttpRequest, obj: Tool | None = None) -> bool:
        """Only what is gone from code; anything else would come back with its first settings."""
        return obj is not None and obj.missing_since is not None and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Tool, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        before = (form.stored_before or {}).get("effect_class", obj.effect_class)
        if is_weaker(obj.effect_class, before):
            messages.warning(
                request,
                f"{obj.name} was {before} and is now {obj.effect_class}: calls that waited for a person may run "
                "without one. Requests that wait already keep waiting.",
            )
        if obj.declared_effect_class and is_weaker(obj.effect_class, obj.declared_effect_class):
            messages.warning(request, f"The code of {obj.name} declares it {obj.declared_effect_class}.")


@admin.register(ToolSource)
class ToolSourceAdmin(RecordedAdmin):
    list_display = ["name", "kind", "location"]
    readonly_fields = ["kind", "location"]
    fields = ["name", "kind", "location"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # sources are named in TOOL_MODULES
