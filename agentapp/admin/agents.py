from typing import Any

from django import forms
from django.contrib import admin

from agentapp import hooks
from agentapp.drivers import DRIVERS
from agentapp.models import Agent, Route
from approvals.admin import FORM_FIELDS, RecordedAdmin


class AgentForm(forms.ModelForm):
    driver = forms.ChoiceField(
        choices=lambda: [(name, name) for name in DRIVERS],
        initial="tool_calling",
        help_text="How the next step is decided: by a model that calls tools, or by a script.",
    )

    def clean_hooks(self) -> Any:
        paths = self.cleaned_data["hooks"] or []
        problems = hooks.check(paths)
        if problems:
            raise forms.ValidationError(problems)
        return paths


class RouteInline(admin.StackedInline):
    model = Route
    extra = 0
    formfield_overrides = FORM_FIELDS


@admin.register(Agent)
class AgentAdmin(RecordedAdmin):
    form = AgentForm
    inlines = [RouteInline]
    list_display = ["name", "driver", "model", "enabled"]
    list_filter = ["enabled", "driver"]
    search_fields = ["name", "description"]
    fieldsets = [
        (None, {"fields": ["name", "enabled", "description"]}),
        (
            "What it is told",
            {
                "fields": [
                    "instructions",
                    "driver",
                    "driver_settings",
                    "model",
                    "model_settings",
                    "parallel_tool_calls",
                    "tool_choice",
                    "reset_tool_choice",
                    "message_compiler",
                    "compiler_settings",
                    "on_new_message",
                ],
                "description": "A run keeps the configuration it was started with: a change counts for new runs.",
            },
        ),
        (
            "What it may use",
            {
                "fields": ["tools", "subagents", "denied_subagents", "max_depth"],
                "description": "Being listed here lets a tool be proposed. Whether a call runs is decided by rules.",
            },
        ),
        (
            "Limits",
            {
                "fields": [
                    "max_iterations",
                    "on_limit",
                    "max_steps",
                    "max_tokens",
                    "max_seconds",
                    "max_calls",
                    "finish_reasons",
                ],
            },
        ),
        ("Budget", {"fields": ["max_cost", "max_daily_cost", "on_budget"]}),
        (
            "When calls fail",
            {
                "fields": [
                    "on_reject",
                    "raise_on_tool_failure",
                    "fail_run_on_tool_error",
                    "stop_on_tool_block",
                ],
            },
        ),
        ("Hooks", {"fields": ["hooks", "hook_contract"]}),
    ]


@admin.register(Route)
class RouteAdmin(RecordedAdmin):
    list_display = ["name", "agent", "description"]
    list_filter = ["agent"]
    list_select_related = ["agent"]
    search_fields = ["name", "description"]
    fields = ["agent", "name", "description", "tools"]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return ["agent"] if obj else []
