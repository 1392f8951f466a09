from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentapp.admin import rule_parts
from agentapp.admin.parts import answer, part
from agentapp.admin.rule_steps import StepsField
from agentapp.admin.rule_versions import RuleLife
from agentapp.models import Agent, Route, Tool
from approvals import policy, rule_terms, rule_versions
from approvals.admin_pages import SwitchedAdmin, actor_of
from approvals.escalation import MAX_STEPS
from approvals.models import DecisionType, EffectClass, Rule, RuleVersion, Verdict, every_decision
from approvals.rule_words import in_words
from approvals.standing import Refusal


class RuleForm(forms.ModelForm):
    """Names are chosen, not typed: a rule for a tool that does not exist would protect nothing."""

    agent = forms.ChoiceField(required=False, help_text="For calls of one agent, or of every agent.")
    route = forms.ChoiceField(required=False, help_text="For calls on one route of an agent, or on every route.")
    tool = forms.ChoiceField(
        required=False, help_text="For calls of one tool. A rule that allows must name a tool or cover only reads."
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
    escalation = StepsField(
        label="While nobody decides",
        help_text=f"Up to {MAX_STEPS} steps, each after a number of seconds without a decision. A group that may "
        "decide too is told, and sees the request from then on. Its members need the right to decide, like everybody. "
        "How many must approve, and who must not, stays the same.",
    )

    class Meta:
        widgets = {
            "condition": forms.Textarea(
                attrs={"class": "code", "rows": 3, "spellcheck": "false", "autocomplete": "off"}
            ),
            "thresholds": forms.Textarea(attrs={"class": "code", "rows": 3, "spellcheck": "false"}),
        }
        help_texts = {
            "active": "Only active rules decide. Without the tick, activating this draft switches the rule off.",
            "condition": "Which of these calls, as an expression that is true or false, for example "
            "args.amount > 100.0. Empty means all of them. If it cannot be evaluated, a person is asked.",
            "verdict": "Deny beats ask, and ask beats allow, whatever the order of the rules.",
            "risk": "How loudly people are told. High needs a second key to approve; critical needs two people, a "
            "typed word and a sign-in within the last five minutes.",
            "thresholds": rule_parts.THRESHOLDS_HELP,
            "environment": rule_parts.environment_help(),
            "answered_by": "A customer confirms in their conversation. People decide if there is no customer to ask, "
            "and also at high and critical risk.",
            "on_expiry": "What happens to a request that nobody decided in time. It is never approved.",
            "expires_seconds": f"How long people have, in seconds, for example 900 for a quarter of an hour. Empty "
            f"means {settings.APPROVAL_EXPIRES_SECONDS}.",
            "target_seconds": "Within how many seconds somebody should decide. Requests that take longer are marked. "
            + (
                f"Empty means {settings.APPROVAL_TARGET_SECONDS}."
                if settings.APPROVAL_TARGET_SECONDS
                else "Empty means no target."
            ),
            "business_hours": (
                f"The target, the steps and the expiry of this rule count only {settings.BUSINESS_HOURS} "
                f"({settings.TIME_ZONE})."
                if settings.BUSINESS_HOURS.week
                else "No business hours are set here (BUSINESS_HOURS), so every hour counts."
            ),
            "assurance": rule_parts.assurance_help(),
            "hold_seconds": "How many seconds a decision can be undone before it takes effect, at most 60. 0 takes "
            f"effect at once. Empty means {settings.UNDO_HOLD_SECONDS}.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        instance = kwargs.get("instance")
        draft = _show_draft(instance)
        super().__init__(*args, **kwargs)
        if draft is not None and "groups" in self.fields:
            self.initial["groups"] = list(Group.objects.filter(name__in=instance.drafted_groups))  # type: ignore[union-attr]
        self._offer("agent", "Every agent", Agent.objects.values_list("name", flat=True))
        self._offer("route", "Every route", Route.objects.values_list("name", flat=True))
        self._offer("tool", "Every tool", Tool.objects.values_list("name", flat=True))
        if "escalation" in self.fields:
            self.fields["escalation"].offer(self.instance.escalation)  # type: ignore[attr-defined]

    def clean_condition(self) -> str:
        condition: str = self.cleaned_data["condition"]
        policy.validate_condition(condition)
        return condition

    def clean_allowed_decisions(self) -> list[str]:
        decisions: list[str] = self.cleaned_data["allowed_decisions"]
        policy.validate_allowed_decisions(decisions)
        return decisions

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        rule_parts.check_thresholds(self)
        expires = self.cleaned_data.get("expires_seconds")
        steps = self.cleaned_data.get("escalation") or []
        if expires and steps and steps[-1]["after"] >= expires:
            self.add_error("escalation", f"The request expires after {expires} seconds, before the last step.")
        return cleaned

    def as_typed(self) -> tuple[Rule, list[str]]:
        """The rule this form would make, as far as it can be read, and the names of its groups. Not stored."""
        self.is_valid()
        columns = {field.name for field in Rule._meta.concrete_fields}
        rule = Rule(
            **{name: value for name, value in self.cleaned_data.items() if name in columns and value is not None}
        )
        # Problems are reported for the condition as it was typed.
        rule.condition = str(self.data.get("condition", ""))
        return rule, [group.name for group in self.cleaned_data.get("groups", [])]

    def _offer(self, field: str, every: str, names: Iterable[str]) -> None:
        if field not in self.fields:  # a read-only page
            return
        current = getattr(self.instance, field)
        offered = sorted({*names, *([current] if current else [])})
        self.fields[field].choices = [("", every), *((name, name) for name in offered)]  # type: ignore[attr-defined]


def _show_draft(rule: Rule | None) -> RuleVersion | None:
    """Give a row that was read the values of its draft: the page edits the draft, never what is in force."""
    if rule is None or rule._state.adding:
        return None
    draft = rule_versions.draft_of(rule)
    if draft is not None:
        for name, value in rule_terms.columns(draft.terms).items():
            setattr(rule, name, value)
        rule.drafted_groups = draft.terms.get(rule_terms.GROUPS, [])  # type: ignore[attr-defined]
    return draft


def _groups(rule: Rule) -> list[str]:
    """The names of a rule's groups, or of its draft's groups if the draft is shown."""
    if rule._state.adding:
        return []
    drafted: list[str] | None = getattr(rule, "drafted_groups", None)
    return [group.name for group in rule.groups.all()] if drafted is None else drafted


@admin.register(Rule)
class RuleAdmin(RuleLife, SwitchedAdmin):
    form = RuleForm
    switch = "active"
    about = (
        "Which calls run, wait for a person or are refused. Of all rules that fit a call the strictest verdict wins: "
        "deny, then ask, then allow. The order says which of several gives the reason; of rules that ask, the "
        "strictest terms of each count. A change is a draft first: it is simulated on the calls of the last 30 days, "
        "then activated."
    )
    when_empty = "Without rules, reads run and every other call waits for a person. A rule can allow, ask or refuse."
    actions = ["switch_on", "switch_off"]
    list_display = ["order", "name", "words", "ruled", "risk", "drafted", "active"]
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
                "fields": ["agent", "route", "tool", "effect_class", "environment", "condition"],
                "description": "A call must fit all of these.",
            },
        ),
        ("What the rule means", {"fields": ["meaning"]}),
        (
            "What happens",
            {
                "fields": ["verdict", "risk"],
                "description": "Requests that already wait keep the terms they were made with.",
            },
        ),
        (
            "Who decides, and how long",
            {
                "fields": [
                    "answered_by",
                    "groups",
                    "approvals_needed",
                    "thresholds",
                    "starter_excluded",
                    "assurance",
                    "grants_allowed",
                    "allowed_decisions",
                    "expires_seconds",
                    "on_expiry",
                    "target_seconds",
                    "escalation",
                    "business_hours",
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

    @admin.display(description="Draft")
    def drafted(self, rule: Rule) -> str | SafeString:
        for draft in rule.drafts:  # type: ignore[attr-defined]
            word = "watches" if draft.state == RuleVersion.State.SHADOW else "waits" if draft.simulated_at else "new"
            return format_html('<a href="{}">{}</a>', reverse("admin:rule_versions", args=[rule.pk]), word)
        return ""

    @admin.display(description="In plain words")
    def meaning(self, rule: Rule) -> SafeString:
        url = reverse("admin:rule_meaning")
        return part("rule", rule_parts.meaning(rule, _groups(rule)) | {"url": url})

    def get_fieldsets(self, request: HttpRequest, obj: Rule | None = None) -> Any:
        if obj is not None:
            return super().get_fieldsets(request, obj)
        # A new rule has no version number to show.
        (title, first), *rest = self.fieldsets
        return [(title, {**first, "fields": [name for name in first["fields"] if name != "version"]}), *rest]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Rule]:
        drafts = RuleVersion.objects.filter(state__in=RuleVersion.OPEN)
        return super().get_queryset(request).prefetch_related("groups", Prefetch("versions", drafts, to_attr="drafts"))

    def get_readonly_fields(self, request: HttpRequest, obj: Rule | None = None) -> list[str]:
        # A rule keeps its name: its versions and the calls it let run are found by it.
        return [*self.readonly_fields, "name"] if obj is not None else list(self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Rule | None = None) -> bool:
        # A rule that asks or refuses must be switched off first, after a simulation.
        allowed: bool = super().has_delete_permission(request, obj)
        if obj is None or not allowed:
            return allowed
        # The page shows the draft; what counts is what is in force.
        stored = Rule.objects.filter(pk=obj.pk).first() if hasattr(obj, "drafted_groups") else obj
        return stored is not None and rule_versions.may_delete(stored)

    def get_urls(self) -> list[Any]:
        return [
            *self.life_urls(),
            path("meaning/", self.admin_site.admin_view(self.meaning_view), name="rule_meaning"),
            *super().get_urls(),
        ]

    def meaning_view(self, request: HttpRequest) -> HttpResponse:
        """What the form as it stands would mean. Nothing is kept."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = self.get_form(request)(request.POST)
        rule, groups = form.as_typed()
        return answer(request, "What the rule means", "rule_meaning", rule_parts.meaning(rule, groups))

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        rule = kwargs.get("obj")
        tools = []
        if rule is not None:
            tools.append({"label": "Versions and draft", "url": reverse("admin:rule_versions", args=[rule.pk])})
        drafts = {"own_tools": tools, "is_rule": True, "has_draft": hasattr(rule, "drafted_groups")}
        return super().render_change_form(request, context | drafts, *args, **kwargs)

    def said_by(self, row: Rule) -> dict[str, Any]:
        """The form shows the draft, if there is one."""
        draft = rule_versions.draft_of(row)
        return draft.terms if draft is not None else rule_terms.terms_of(row)

    def save_model(self, request: HttpRequest, obj: Rule, form: Any, change: bool) -> None:
        """Nothing yet: what was typed becomes a draft, together with its groups."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Iterable[Any], change: bool) -> None:
        rule, groups = form.instance, list(form.cleaned_data["groups"])
        user, actor = cast(User, request.user), actor_of(request)
        if change:
            terms = rule_terms.terms_of(rule, [group.name for group in groups])
            request.rule_refused = isinstance(rule_versions.keep_draft(rule, terms, user, actor), Refusal)  # type: ignore[attr-defined]
        else:
            rule_versions.draft_new(rule, groups, user, actor)
        if why := rule_parts.unfit(rule):
            messages.warning(request, f"{why}. Such a call waits for a person.")

    def response_add(self, request: HttpRequest, obj: Rule, post_url_continue: str | None = None) -> HttpResponse:
        return self._drafted(request, obj)

    def response_change(self, request: HttpRequest, obj: Rule) -> HttpResponse:
        return self._drafted(request, obj)

    def _drafted(self, request: HttpRequest, rule: Rule) -> HttpResponse:
        """Redirect to the page where the draft is simulated and activated."""
        if getattr(request, "rule_refused", False):
            messages.info(request, f"The rule {rule.name} was not changed.")
        else:
            messages.success(request, f"The draft of {rule.name} is kept. It decides nothing until it is activated.")
        return redirect("admin:rule_versions", rule.pk)

    def set_all(self, request: HttpRequest, queryset: QuerySet[Any], column: str, value: Any) -> None:
        """Switch off rules that allow, at once. Any other switch becomes a draft, to be simulated and activated."""
        user, actor = cast(User, request.user), actor_of(request)
        done, drafted, left = 0, [], []
        for rule in queryset:
            if rule.active == value and rule.version:
                continue
            if not value and rule.verdict == Verdict.ALLOW:
                done += isinstance(rule_versions.switch_off(rule, user, actor), RuleVersion)
            elif rule_versions.draft_of(rule) is not None:
                left.append(rule.name)
            else:
                terms = {**rule_terms.terms_of(rule), column: value}
                rule_versions.keep_draft(rule, terms, user, actor)
                drafted.append(rule.name)
        self.message_user(request, f"{done} changed.", messages.SUCCESS)
        if drafted:
            said = f"Drafted, to be simulated and activated: {', '.join(drafted)}."
            self.message_user(request, f"{said} Only a rule that allows is switched off at once.", messages.WARNING)
        if left:
            said = f"Left as they are, because they already have a draft: {', '.join(left)}."
            self.message_user(request, said, messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        rule_versions.delete(obj, actor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for rule in queryset:
            rule_versions.delete(rule, actor_of(request))
