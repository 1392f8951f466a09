from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agentapp.admin import guideline_parts, naming
from agentapp.guidance import extensions
from agentapp.models import Guideline, GuidelineMatch, GuidelineRelation, Tool, ToolRelation
from approvals.admin_pages import FORM_FIELDS, RecordedAdmin, SwitchedAdmin


class GuidelineForm(naming.OwnToolsForm):
    class Meta:
        help_texts = {
            "agent": "The agent it belongs to. A guideline stays with its agent.",
            "name": "For example refund-in-time. People read it in the record, and scripts of runs use it.",
            "criticality": "The order in which the agent is told about those that hold: the critical ones first.",
            "matcher": "Who says whether it holds. Code needs no model.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "tools" in self.fields and self.instance.pk and not self.instance._state.adding:
            own = Tool.objects.filter(agents=self.instance.agent) | self.instance.tools.all()
            self.fields["tools"].queryset = own.distinct()  # type: ignore[attr-defined]

    def clean_python(self) -> str:
        path: str = self.cleaned_data["python"]
        if path and (wrong := extensions.problem(path)):
            raise forms.ValidationError(wrong)
        return path


class RelationForm(forms.ModelForm):
    class Meta:
        help_texts = {
            "source": "The guideline that the relation is about.",
            "kind": "If priority relates two, the one with the higher number goes first; if they are equal, this one.",
        }


class RelationInline(admin.StackedInline):
    model = GuidelineRelation
    form = RelationForm
    fk_name = "source"
    extra = 0
    formfield_overrides = FORM_FIELDS

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "target":
            kwargs["queryset"] = Guideline.objects.select_related("agent")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(Guideline)
class GuidelineAdmin(SwitchedAdmin):
    form = GuidelineForm
    inlines = [RelationInline]
    about = (
        "What agents with the guided driver do in each situation, and the tools they may call in it. A tool that no "
        "guideline asks for is not called."
    )
    when_empty = "A guideline is a condition, what the agent does then, and the tools it may call for that."
    actions = ["switch_on", "switch_off"]
    list_display = ["name", "agent", "words", "criticality", "priority", "cited", "enabled"]
    list_filter = ["agent", "enabled", "criticality", "matcher"]
    list_select_related = ["agent"]
    search_fields = ["name", "condition", "action"]
    search_help_text = "Name, condition or action."
    readonly_fields = ["version", "cited", "versions"]
    fieldsets = [
        (None, {"fields": ["agent", "name", "enabled"]}),
        (
            "When and what",
            {
                "fields": ["condition", "action", "description", "tools"],
                "description": "A run keeps the guidelines it was started with: a change applies to new runs.",
            },
        ),
        ("Who says whether it holds", {"fields": ["matcher", "python"]}),
        ("How it weighs", {"fields": ["criticality", "priority"]}),
        ("Record", {"fields": ["version", "cited", "versions"]}),
    ]

    @admin.display(description="What it says")
    def words(self, guideline: Guideline) -> str:
        when = f"When {guideline.condition}: " if guideline.condition else ""
        return f"{when}{guideline.action or 'look only'}"[:200]

    @admin.display(description="Cited", ordering="cited_times")
    def cited(self, guideline: Guideline) -> str:
        """How often it held when a conversation was looked at."""
        times: int = getattr(guideline, "cited_times", 0) or 0
        return f"{times} time{'' if times == 1 else 's'}"

    @admin.display(description="Versions")
    def versions(self, guideline: Guideline) -> SafeString:
        return guideline_parts.versions(guideline)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Guideline]:
        found = GuidelineMatch.objects.filter(
            guideline=OuterRef("name"), run__agent=OuterRef("agent"), matched=True, version__gt=0
        )
        counted = found.order_by().values("guideline").annotate(times=Count("pk")).values("times")
        guidelines: QuerySet[Guideline] = super().get_queryset(request)
        return guidelines.annotate(cited_times=Subquery(counted))

    def get_fieldsets(self, request: HttpRequest, obj: Guideline | None = None) -> Any:
        # A new one has no record to look at.
        return super().get_fieldsets(request, obj) if obj is not None else self.fieldsets[:-1]

    def get_readonly_fields(self, request: HttpRequest, obj: Guideline | None = None) -> list[str]:
        return [*self.readonly_fields, "agent"] if obj else list(self.readonly_fields)


class OverlapForm(forms.ModelForm):
    class Meta:
        help_texts = {
            "kind": "How the two are related.",
            "source": "One of the two.",
            "target": "The other.",
        }


@admin.register(ToolRelation)
class ToolRelationAdmin(RecordedAdmin):
    form = OverlapForm
    about = "Tools that can serve the same need. Agents with guidance look at them together, so that one is chosen."
    when_empty = "Two tools overlap if either would do. Agents with guidance look at such tools in one question."
    list_display = ["source", "target", "kind"]
    list_select_related = ["source", "target"]
    search_fields = ["source__name", "target__name"]
    fields = ["source", "target", "kind"]
