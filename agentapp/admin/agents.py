from collections.abc import Collection
from typing import Any

from django import forms
from django.contrib import admin

from agentapp import agent_settings, agent_tools
from agentapp.admin import naming
from agentapp.drivers import DRIVERS
from agentapp.models import Agent, ContextVariable, Guideline, Route, Tool
from approvals import ledger, rule_versions
from approvals.admin_pages import FORM_FIELDS, SwitchedAdmin, actor_of
from approvals.models import EffectClass

# The fields that say which agents this one may ask.
_ASKED = ("subagents", "denied_subagents")


class AgentForm(forms.ModelForm):
    driver = forms.ChoiceField(
        choices=lambda: [(name, name) for name in DRIVERS],
        initial="tool_calling",
        help_text="Who decides each step: a model that calls tools or writes what it wants, guidelines, or a script.",
    )

    class Meta:
        help_texts = {
            "name": "For example support-triage. People who start runs choose it; rules and the API use this name.",
            "tools": "What it may propose. Fewer is safer and cheaper: the model is told about every tool each time.",
            "on_limit": "What it does when it has used all its rounds.",
            "on_reject": "What it does when a person rejects a call.",
            "hook_contract": "How strictly hooks are held to what they may change.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "tools" in self.fields:
            # Agents it may ask are listed in `subagents`.
            tools = Tool.objects.exclude(source__kind=agent_tools.KIND)
            self.fields["tools"].queryset = tools  # type: ignore[attr-defined]

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        was = self.initial.get("name") or name
        if was != name:
            naming.refuse_rename("agent", [*naming.of_agent(was), *naming.of_asking(was, name)])
            naming.refuse_taken(was, name)
        return name

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        agents = list(Agent.objects.exclude(pk=self.instance.pk))
        names = agent_settings.Names(
            agents={agent.name for agent in agents} | {str(cleaned.get("name", ""))},
            tools={tool.name for tool in cleaned.get("tools", ())},
        )
        columns = {field.name for field in Agent._meta.concrete_fields}
        wanted = Agent(**{name: value for name, value in cleaned.items() if name in columns})
        for column, problem in agent_settings.problems(wanted, names, agent_settings.whole(set(cleaned))):
            self.add_error(column, problem)
        if not self.errors and "subagents" in cleaned:
            lists = {column: cleaned[column] for column in ("name", *_ASKED)}
            try:
                agent_tools.check_names([*agents, Agent(**lists)])
            except agent_tools.NameTaken as taken:
                raise forms.ValidationError(str(taken)) from taken
            if "tools" in cleaned:
                # For routes and variables, which are checked against the agent as typed.
                self.instance.may_call = agent_settings.tools_to_call(wanted, names)
                # If nobody changed these lists, untouched routes and guidelines are not checked again.
                self.instance.calls_others = not {"tools", *_ASKED}.isdisjoint(self.changed_data)
                if self.instance.calls_others:
                    self._check_guidelines(self.instance.may_call)
        return cleaned

    def _check_guidelines(self, may_call: Collection[str]) -> None:
        """Guidelines have their own pages, so their stored tools are checked here."""
        if self.instance._state.adding:
            return
        used = Guideline.tools.through.objects.filter(guideline__agent=self.instance).exclude(tool__name__in=may_call)
        for guideline, tool in used.values_list("guideline__name", "tool__name"):
            self.add_error("tools", f"The guideline {guideline} may call {tool}: give it another tool first.")


class RouteForm(forms.ModelForm):
    class Meta:
        help_texts = {
            "agent": "The agent whose task it is. A route stays with its agent.",
            "name": "For example refunds. Whoever starts a run may choose it, and rules can apply to it.",
            "description": "What kind of task this is, for people who start runs.",
            "tools": "Which of the agent's tools the model is offered for this task. If you choose none, it gets none.",
        }

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        was = self.initial.get("name") or name
        if was != name:
            rules = rule_versions.about(self.instance.agent.name, was)
            naming.refuse_rename("route", [f"rule {rule.name}" for rule in rules])
        return name


class RoutePageForm(naming.OwnToolsForm, RouteForm):
    pass


class RouteFormSet(forms.BaseInlineFormSet):
    def clean(self) -> None:
        super().clean()
        deleted = self.deleted_forms
        if kept := naming.keeping(form.instance for form in deleted):
            raise forms.ValidationError(f"These name a route you want to delete: {', '.join(kept)}.")
        may_call = getattr(self.instance, "may_call", None)
        if may_call is None:  # the agent itself is refused, or not to be changed here
            return
        for form in self.forms:
            looked_at = form.has_changed() or self.instance.calls_others
            if looked_at and hasattr(form, "cleaned_data") and form not in deleted:
                naming.refuse_foreign(form, may_call)


class RouteInline(admin.StackedInline):
    model = Route
    form = RouteForm
    formset = RouteFormSet
    extra = 0
    formfield_overrides = FORM_FIELDS


class VariableFormSet(forms.BaseInlineFormSet):
    def clean(self) -> None:
        super().clean()
        may_call = getattr(self.instance, "may_call", None)
        if may_call is None:  # the agent itself is refused, or not to be changed here
            return
        for form in self.forms:
            tool = getattr(form, "cleaned_data", {}).get("tool")
            if tool is not None and tool.name not in may_call and form not in self.deleted_forms:
                form.add_error("tool", f"{tool.name} is not among the agent's tools.")


class VariableInline(admin.StackedInline):
    model = ContextVariable
    formset = VariableFormSet
    verbose_name = "context variable"
    extra = 0
    formfield_overrides = FORM_FIELDS

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "tool":
            kwargs["queryset"] = Tool.objects.filter(effect_class=EffectClass.READ).order_by("name")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


class AskedAdmin(SwitchedAdmin):
    """Rows that are part of the contract under which one agent is offered to another."""

    def get_deleted_objects(self, objs: Any, request: Any) -> Any:
        """A rule or an agent that named a deleted row would mean nothing, so a row in use cannot be deleted."""
        listed, counts, missing, protected = super().get_deleted_objects(objs, request)
        return listed, counts, missing, [*protected, *naming.keeping(objs)]

    def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
        with ledger.transaction():
            super().save_related(request, form, formsets, change)
            agent_tools.sync(actor_of(request))

    def set_all(self, request: Any, queryset: Any, column: str, value: Any) -> None:
        with ledger.transaction():
            super().set_all(request, queryset, column, value)
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
    inlines = [RouteInline, VariableInline]
    about = "Who works here: what each agent is told, which model it asks, what it may propose and where it stops."
    when_empty = "An agent needs a name, a model and instructions. What it may do to the world is decided by rules."
    actions = ["switch_on", "switch_off"]
    search_help_text = "Name or description."
    list_display = ["name", "driver", "model", "enabled"]
    list_filter = ["enabled", "driver"]
    search_fields = ["name", "description"]
    fieldsets = [
        (None, {"fields": ["name", "enabled", "description"]}),
        ("For people", {"fields": ["input_schema", "streams"]}),
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
                "description": "A run keeps the configuration it was started with: a change applies to new runs.",
            },
        ),
        (
            "What it may use",
            {
                "fields": ["tools", "subagents", "denied_subagents", "max_depth"],
                "description": "The agent may propose the tools listed here. Rules decide whether a call runs.",
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
                    "on_call_limit",
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

    def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
        with ledger.transaction():
            if change and form.stored_before is not None:
                agent_tools.rename(form.stored_before["name"], form.instance.name, actor_of(request))
            super().save_related(request, form, formsets, change)


@admin.register(Route)
class RouteAdmin(AskedAdmin):
    form = RoutePageForm
    about = "Named kinds of task of an agent. A route offers the model only the tools that task needs."
    when_empty = "An agent without routes offers all of its tools. Add a route to offer fewer for one kind of task."
    list_display = ["name", "agent", "description"]
    list_filter = ["agent"]
    list_select_related = ["agent"]
    search_fields = ["name", "description"]
    fields = ["agent", "name", "description", "tools"]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return ["agent"] if obj else []
