from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString

from agentapp import doubts
from agentapp.admin import mcp, naming, tool_parts, tool_words
from agentapp.admin.parts import answer, part
from agentapp.contracts import is_weaker
from agentapp.models import Tool
from agentapp.models.tools import validate_questions
from approvals.admin_pages import SwitchedAdmin


class ToolForm(forms.ModelForm):
    """Safety settings. Fields are named from the tool's own schema, so that none can be mistyped."""

    locked_fields = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Arguments an approver cannot change, such as the order a refund is for. To change one, they reject.",
    )
    secret_fields = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Arguments that are masked on every page, such as a PIN. Revealing one is recorded.",
    )

    pii_fields = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Arguments and fields of results that say something about a person. Those who decide see them; "
        "others need the right to see personal data.",
    )

    class Meta:
        help_texts = {
            "approval_mode": "As the rules say: a rule can let it run. Always ask: no rule and no grant can.",
            "timeout_seconds": "A call that takes longer is given up. A write that was given up is shown to a person.",
            "idempotency": "Whether it acts only once if it is called twice with the same key.",
            "trust": "Whether a result may hold text from customers or the web. People see such text marked.",
            "questions": 'Offered to people who ask before they decide. A list such as ["Which policy allows this?"].',
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("locked_fields", "secret_fields", "pii_fields"):
            # A field that is set stays selectable if a new contract no longer has it.
            given = tool_parts.result_names_of(self.instance) if name == "pii_fields" else []
            known = dict.fromkeys([*tool_parts.names_of(self.instance), *given, *getattr(self.instance, name)])
            if name in self.fields:
                self.fields[name].choices = [(field, field) for field in known]  # type: ignore[attr-defined]

    def clean_questions(self) -> Any:
        questions = self.cleaned_data["questions"]
        validate_questions(questions)
        return questions


@admin.register(Tool)
class ToolAdmin(mcp.McpTools, SwitchedAdmin):
    form = ToolForm
    about = "What agents can do here. Contracts come from code, documents and servers; you set what is safe."
    when_empty = "Name a module of tools in TOOL_MODULES and run manage.py sync_tools, or import an OpenAPI document."
    actions = ["switch_on", "switch_off", "always_ask"]
    list_display = ["name", "effect", "asks", "words", "enabled", "is_there", "source", "owner"]
    list_filter = ["enabled", "effect_class", "approval_mode", "source"]
    list_select_related = ["source"]
    search_fields = ["name", "description", "owner"]
    search_help_text = "Name, description or owner."
    readonly_fields = [
        "name",
        "new_contract",
        "server_says",
        "source",
        "description",
        "card",
        "declared_effect_class",
        "rules_on_it",
        "arguments",
        "takes_snapshot",
        "takes_preview",
        "undone_by",
        "business_key_template",
        "return_direct",
        "version",
        "earlier_versions",
        "missing_since",
    ]
    fieldsets = [
        ("Identity", {"fields": ["name", "description", "enabled", "source"]}),
        (
            "What people see",
            {
                "fields": ["card", "questions"],
            },
        ),
        (
            "Safety",
            {
                "fields": [
                    "effect_class",
                    "declared_effect_class",
                    "approval_mode",
                    "starters",
                    "rules_on_it",
                    "locked_fields",
                    "secret_fields",
                    "pii_fields",
                    "trust",
                ],
            },
        ),
        ("Arguments", {"fields": ["arguments", "additional_arguments"]}),
        (
            "Execution",
            {"fields": ["timeout_seconds", "max_attempts", "idempotency", "repeatable", "stop_on_failure"]},
        ),
        ("Limits", {"fields": ["max_calls_per_run", "cost_per_call", "result_max_kb"]}),
        ("Owners", {"fields": ["owner"]}),
        (
            "Contract and its versions",
            {
                "fields": [
                    "takes_snapshot",
                    "takes_preview",
                    "undone_by",
                    "business_key_template",
                    "return_direct",
                    "version",
                    "earlier_versions",
                    "missing_since",
                ],
            },
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Tool | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:
            return fieldsets
        said = tool_words.descriptions(obj.source)
        described = [(name, {**options, "description": said.get(str(name), "")}) for name, options in fieldsets]
        return [*self.server_fieldsets(obj), *described]

    @admin.display(boolean=True, description="Unchanged")
    def is_there(self, tool: Tool) -> bool:
        """Whether its source still has it, as people know it."""
        return tool.missing_since is None and tool.waiting_contract is None

    @admin.display(description="Effect", ordering="effect_class")
    def effect(self, tool: Tool) -> str:
        return tool.get_effect_class_display().partition(":")[0]

    @admin.display(description="Asks", ordering="approval_mode")
    def asks(self, tool: Tool) -> str:
        return "Always" if tool.approval_mode == Tool.ApprovalMode.ALWAYS else "By rules"

    @admin.display(description="Words")
    def words(self, tool: Tool) -> str:
        """Whether what people would read names every argument. Empty for a read: only a rule asks about one."""
        if not tool.consequential:
            return ""
        left_out = tool_parts.unnamed(tool)
        return f"Leave out “{'”, “'.join(left_out)}”" if left_out else "Name every argument"

    @admin.display(description="The request people would read")
    def card(self, tool: Tool) -> SafeString:
        text, real = tool_parts.example(tool, tool.looker)  # type: ignore[attr-defined]
        context = tool_parts.card_context(tool, text)
        return part(
            "tool_card", context | {"example": text, "real": real, "url": reverse("admin:tool_card", args=[tool.pk])}
        )

    @admin.display(description="Risk, undo and the rules on it")
    def rules_on_it(self, tool: Tool) -> SafeString:
        return tool_parts.rules_on(tool)

    @admin.display(description="Schema")
    def arguments(self, tool: Tool) -> SafeString:
        return tool_parts.arguments_table(tool)

    @admin.display(description="Earlier versions")
    def earlier_versions(self, tool: Tool) -> SafeString:
        return tool_parts.versions(tool)

    @admin.action(permissions=["change"], description="Always ask a person")
    def always_ask(self, request: HttpRequest, queryset: Any) -> None:
        self.set_all(request, queryset, "approval_mode", Tool.ApprovalMode.ALWAYS)

    def get_urls(self) -> list[Any]:
        return [
            path("<path:object_id>/card/", self.admin_site.admin_view(self.card_view), name="tool_card"),
            *self.contract_urls(),
            *super().get_urls(),
        ]

    def card_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What a request would say for other arguments. Nothing is called or kept."""
        tool = self.get_object(request, unquote(object_id))
        if tool is None:
            raise Http404
        if not self.has_view_permission(request, tool):
            raise PermissionDenied
        context = tool_parts.card_context(tool, request.POST.get("_example", ""))
        return answer(request, f"What people see of {tool.name}", "tool_card_shown", context)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Tool | None:
        tool: Tool | None = super().get_object(request, object_id, from_field)
        if tool is not None:
            tool.looker = request.user  # type: ignore[attr-defined]
        return tool

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # tools come from their sources

    def has_delete_permission(self, request: HttpRequest, obj: Tool | None = None) -> bool:
        """Only a tool that its source no longer has; any other would come back with its first settings."""
        return obj is not None and obj.missing_since is not None and super().has_delete_permission(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """A rule for a deleted tool would apply to nothing, and a file could not name it."""
        listed, counts, missing, protected = super().get_deleted_objects(objs, request)
        return listed, counts, missing, [*protected, *naming.keeping(objs)]

    def save_model(self, request: HttpRequest, obj: Tool, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        before = (form.stored_before or {}).get("effect_class", obj.effect_class)
        if is_weaker(obj.effect_class, before):
            messages.warning(
                request,
                f"{obj.name} was {before} and is now {obj.effect_class}: calls that waited for a person may run "
                "without one. Requests that already wait keep waiting.",
            )
        if obj.declared_effect_class and is_weaker(obj.effect_class, obj.declared_effect_class):
            who = tool_words.BY_KIND[obj.source.kind].declares
            messages.warning(request, f"{who} {obj.name} declares it {obj.declared_effect_class}.")
        for doubt in doubts.about(obj):
            messages.warning(request, f"Worth a second look: {obj.name}. {doubt}")
