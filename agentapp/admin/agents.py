from typing import Any

from django import forms
from django.contrib import admin

from agentapp import agent_tools, hooks
from agentapp.drivers import DRIVERS, settings_problems
from agentapp.models import Agent, Route, Tool
from approvals import ledger
from approvals.admin import FORM_FIELDS, RecordedAdmin, actor_of


class AgentForm(forms.ModelForm):
    driver = forms.ChoiceField(
        choices=lambda: [(name, name) for name in DRIVERS],
        initial="tool_calling",
        help_text="Who decides a step: a model that calls tools, one that writes what it wants, or a script.",
    )

    def clean_hooks(self) -> Any:
        paths = self.cleaned_data["hooks"] or []
        problems = hooks.check(paths)
        if problems:
            raise forms.ValidationError(problems)
        return paths

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "tools" in self.fields:
            # Agents to be asked are named in `subagents`.
            tools = Tool.objects.exclude(source__kind=agent_tools.KIND)
            self.fields["tools"].queryset = tools  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if "driver" in cleaned and "driver_settings" in cleaned:
            for problem in settings_problems(cleaned["driver"], cleaned["driver_settings"]):
                self.add_error("driver_settings", problem)
        agents = list(Agent.objects.exclude(pk=self.instance.pk))
        known = {agent.name for agent in agents} | {cleaned.get("name")}
        for column in ("subagents", "denied_subagents"):
            listed = cleaned.get(column)
            if listed is None:
                continue
            if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
                self.add_error(column, 'A list of names of agents, as in ["refunds"].')
            elif unknown := [name for name in listed if name not in known and name != agent_tools.EVERY_AGENT]:
                self.add_error(column, f"There is no agent {unknown[0]!r}.")
        if not self.errors and "subagents" in cleaned:
            lists = {column: cleaned[column] for column in ("name", "subagents", "denied_subagents")}
            try:
                agent_tools.check_names([*agents, Agent(**lists)])
            except agent_tools.NameTaken as taken:
                raise forms.ValidationError(str(taken)) from taken
        return cleaned


class RouteInline(admin.StackedInline):
    model = Route
    extra = 0
    formfield_overrides = FORM_FIELDS


class AskedAdmin(RecordedAdmin):
    """What is part of the contract under which one agent is offered to another."""

    def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
        with ledger.transaction():
            super().save_related(request, form, formsets, change)
            agent_tools.sync(actor_of(request))

    def delete_model(self, request: Any, obj: Any) -> None:
        with ledger.transaction():
            super().delete_model(request, obj)
            agent_tools.sync(actor_of(request))

    def delete_queryset(self, request: Any, queryset: Any) -> None:
        with ledger.transaction():
            super().delete_queryset(request, queryset)
            agent_tools.sync(actor_of(request))


@admin.register(Agent)
class AgentAdmin(AskedAdmin):
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
class RouteAdmin(AskedAdmin):
    list_display = ["name", "agent", "description"]
    list_filter = ["agent"]
    list_select_related = ["agent"]
    search_fields = ["name", "description"]
    fields = ["agent", "name", "description", "tools"]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return ["agent"] if obj else []
