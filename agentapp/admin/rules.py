from collections.abc import Iterable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentapp.admin import rule_parts
from agentapp.admin.parts import answer, part
from agentapp.models import Agent, Route, Tool
from approvals import policy
from approvals.admin import SwitchedAdmin
from approvals.models import DecisionType, EffectClass, Rule, every_decision
from approvals.rule_words import in_words


class RuleForm(forms.ModelForm):
    """Names are chosen, not typed: a rule for a tool that does not exist would protect nothing."""

    agent = forms.ChoiceField(required=False, help_text="For calls of one agent, or of every one.")
    route = forms.ChoiceField(required=False, help_text="For calls on one route of an agent, or on every one.")
    tool = forms.ChoiceField(
        required=False, help_text="For which tool. A rule that allows must name one, or only reads."
    )
    effect_class = forms.ChoiceField(
        required=False,
        choices=[("", "Every effect class"), *EffectClass.choices],
        help_text="For calls that do this to the world, whichever tool makes them.",
    )
    allowed_decisions = forms.MultipleChoiceField(
        choices=DecisionType.choices,
        initial=every_decision,
        widget=forms.CheckboxSelectMultiple,
        help_text="What people may do with a call this rule asks about.",
    )

    class Meta:
        widgets = {
            "condition": forms.Textarea(
                attrs={"class": "code", "rows": 3, "spellcheck": "false", "autocomplete": "off"}
            )
        }
        help_texts = {
            "active": "Only active rules decide. A rule that is not active stays as a draft.",
            "condition": "Which of these calls, as an expression that is true or false, as in args.amount > 100.0. "
            "Empty means all of them. One that cannot be evaluated asks a person.",
            "verdict": "Deny beats ask, and ask beats allow, whatever the order of the rules.",
            "risk": "How loudly people are told. High needs a second key to approve, critical two people, a typed word "
            "and a sign-in of the last five minutes.",
            "answered_by": "A customer confirms in their conversation. People decide where there is none to ask, and "
            "as well at high and critical risk.",
            "on_expiry": "What becomes of a request that nobody decided in time. It is never approved.",
            "expires_seconds": f"How long people have, in seconds, as in 900 for a quarter of an hour. Empty means "
            f"{settings.APPROVAL_EXPIRES_SECONDS}.",
            "hold_seconds": "For how many seconds a decision can be undone before it takes effect, 60 at most. 0 runs "
            f"at once. Empty means {settings.UNDO_HOLD_SECONDS}.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("agent", "Every agent", Agent.objects.values_list("name", flat=True))
        self._offer("route", "Every route", Route.objects.values_list("name", flat=True))
        self._offer("tool", "Every tool", Tool.objects.values_list("name", flat=True))

    def clean_condition(self) -> str:
        condition: str = self.cleaned_data["condition"]
        policy.validate_condition(condition)
        return condition

    def clean_allowed_decisions(self) -> list[str]:
        decisions: list[str] = self.cleaned_data["allowed_decisions"]
        policy.validate_allowed_decisions(decisions)
        return decisions

    def as_typed(self) -> tuple[Rule, list[str]]:
        """The rule this form would make, as far as it can be read, and the names of its groups. Not stored."""
        self.is_valid()
        columns = {field.name for field in Rule._meta.concrete_fields}
        rule = Rule(
            **{name: value for name, value in self.cleaned_data.items() if name in columns and value is not None}
        )
        # What is refused is said of the condition as it stands.
        rule.condition = str(self.data.get("condition", ""))
        return rule, [group.name for group in self.cleaned_data.get("groups", [])]

    def _offer(self, field: str, every: str, names: Iterable[str]) -> None:
        if field not in self.fields:  # a page to look at only
            return
        current = getattr(self.instance, field)
        offered = sorted({*names, *([current] if current else [])})
        self.fields[field].choices = [("", every), *((name, name) for name in offered)]  # type: ignore[attr-defined]


@admin.register(Rule)
class RuleAdmin(SwitchedAdmin):
    form = RuleForm
    switch = "active"
    about = (
        "Which calls run, wait for a person or are refused. Of all rules that fit a call the strictest verdict wins: "
        "deny, then ask, then allow. The order says which of several names the terms."
    )
    when_empty = "Without a rule reads run, and every other call waits for a person. A rule can allow, ask or refuse."
    actions = ["switch_on", "switch_off"]
    list_display = ["order", "name", "words", "ruled", "risk", "active"]
    list_display_links = ["name"]
    list_filter = ["active", "verdict", "risk", "effect_class", "tool"]
    search_fields = ["name", "description", "tool", "condition"]
    search_help_text = "Name, description, tool or condition."
    readonly_fields = ["version", "meaning"]
    fieldsets = [
        (None, {"fields": ["name", "active", "description", "order", "version"]}),
        (
            "Which calls",
            {
                "fields": ["agent", "route", "tool", "effect_class", "condition"],
                "description": "A call must fit all of it.",
            },
        ),
        ("What the rule means", {"fields": ["meaning"]}),
        (
            "What happens",
            {
                "fields": ["verdict", "risk"],
                "description": "Requests that wait already keep the terms they were made with.",
            },
        ),
        (
            "Who decides, and how long",
            {
                "fields": [
                    "answered_by",
                    "groups",
                    "approvals_needed",
                    "starter_excluded",
                    "allowed_decisions",
                    "expires_seconds",
                    "on_expiry",
                    "hold_seconds",
                ],
                "description": "For rules that ask.",
            },
        ),
    ]

    @admin.display(description="What it does")
    def words(self, rule: Rule) -> SafeString:
        groups = [group.name for group in rule.groups.all()]
        return format_html('<div class="words">{}</div>', in_words(rule, groups, settings.APPROVAL_EXPIRES_SECONDS))

    @admin.display(description="Verdict", ordering="verdict")
    def ruled(self, rule: Rule) -> str:
        return rule.get_verdict_display().partition(":")[0]

    @admin.display(description="In plain words")
    def meaning(self, rule: Rule) -> SafeString:
        groups = [] if rule._state.adding else [group.name for group in rule.groups.all()]
        url = reverse("admin:rule_meaning")
        return part("rule", rule_parts.meaning(rule, groups) | {"url": url})

    def get_fieldsets(self, request: HttpRequest, obj: Rule | None = None) -> Any:
        if obj is not None:
            return super().get_fieldsets(request, obj)
        # The first version has no number to look at.
        (title, first), *rest = self.fieldsets
        return [(title, {**first, "fields": [name for name in first["fields"] if name != "version"]}), *rest]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Rule]:
        return super().get_queryset(request).prefetch_related("groups")

    def get_urls(self) -> list[Any]:
        return [
            path("meaning/", self.admin_site.admin_view(self.meaning_view), name="rule_meaning"),
            *super().get_urls(),
        ]

    def meaning_view(self, request: HttpRequest) -> HttpResponse:
        """What the form as it stands would mean. Nothing is kept."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = self.get_form(request)(request.POST)
        rule, groups = form.as_typed()  # type: ignore[attr-defined]
        return answer(request, "What the rule means", "rule_meaning", rule_parts.meaning(rule, groups))

    def save_model(self, request: HttpRequest, obj: Rule, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        tool = Tool.objects.filter(name=obj.tool).first() if obj.tool and obj.condition else None
        if unknown := rule_parts.unknown_arguments(obj.condition, tool):
            messages.warning(
                request,
                f"The tool {obj.tool} has no argument {', '.join(unknown)}, so the condition cannot be evaluated and "
                "every call it is for waits for a person.",
            )
