from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin

from agentapp.models import Agent, Route, Tool
from approvals import policy
from approvals.admin import RecordedAdmin
from approvals.models import DecisionType, Rule, every_decision


class RuleForm(forms.ModelForm):
    """Names are chosen, not typed: a rule for a tool that does not exist would protect nothing."""

    agent = forms.ChoiceField(required=False, help_text="For which agent.")
    route = forms.ChoiceField(required=False, help_text="For which route.")
    tool = forms.ChoiceField(
        required=False, help_text="For which tool. A rule that allows must name one, or only reads."
    )
    allowed_decisions = forms.MultipleChoiceField(
        choices=DecisionType.choices,
        initial=every_decision,
        widget=forms.CheckboxSelectMultiple,
        help_text="What people may do with a call this rule asks about.",
    )

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

    def _offer(self, field: str, every: str, names: Iterable[str]) -> None:
        if field not in self.fields:  # a page to look at only
            return
        current = getattr(self.instance, field)
        offered = sorted({*names, *([current] if current else [])})
        self.fields[field].choices = [("", every), *((name, name) for name in offered)]  # type: ignore[attr-defined]


@admin.register(Rule)
class RuleAdmin(RecordedAdmin):
    form = RuleForm
    list_display = ["name", "order", "verdict", "tool", "effect_class", "agent", "route", "condition", "active"]
    list_filter = ["active", "verdict", "effect_class"]
    search_fields = ["name", "description", "tool", "condition"]
    filter_horizontal = ["groups"]
    readonly_fields = ["version"]
    fieldsets = [
        (None, {"fields": ["name", "active", "description", "order", "version"]}),
        (
            "Which calls",
            {
                "fields": ["agent", "route", "tool", "effect_class", "condition"],
                "description": "A call must fit all of it. Of all rules that fit, the strictest verdict wins.",
            },
        ),
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
