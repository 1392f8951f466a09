"""The life of one rule: its draft and what that would change, what is in force, and every version it has had."""

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone

from agentapp import auth, simulating
from agentapp.admin.rule_words import Call, headline
from approvals import rule_terms, rule_versions
from approvals.admin_pages import actor_of
from approvals.models import Rule, RuleVersion, Verdict
from approvals.rule_words import in_words
from approvals.standing import Refusal

MAX_VERSIONS = 50
MAX_WHY = 500


class WhyForm(forms.Form):
    why = forms.CharField(
        required=False,
        max_length=MAX_WHY,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="Why",
        help_text="Kept with the version, for example 'agreed with finance on Monday'.",
    )


class RuleLife(admin.ModelAdmin):
    """The page of a rule's versions, and what can be done there. Every action is a post."""

    def life_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("<path:object_id>/versions/", view(self.versions_view), name="rule_versions"),
            path("<path:object_id>/versions/do/", view(self.do_view), name="rule_do"),
        ]

    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show it, to everybody who may view rules."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return self._page(request, self._rule(request, object_id), WhyForm())

    def do_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """One action on the rule or its draft, by a person who may change rules."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        rule = self._rule(request, object_id)
        if request.method != "POST":
            return redirect("admin:rule_versions", rule.pk)
        form = WhyForm(request.POST)
        if not form.is_valid():
            return self._page(request, rule, form, status=422)
        problem = self._do(request, rule, form.cleaned_data["why"])
        if problem is not None:
            messages.error(request, problem)
        gone = not Rule.objects.filter(pk=rule.pk).exists()
        return redirect("admin:approvals_rule_changelist") if gone else redirect("admin:rule_versions", rule.pk)

    def _do(self, request: HttpRequest, rule: Rule, why: str) -> str | None:
        """Do what the pressed button says. Returns what stopped it, if anything."""
        user, actor = cast(User, request.user), actor_of(request)
        act, digest = request.POST.get("do", ""), request.POST.get("terms", "")
        done: Any
        match act:
            case "restore":
                number = request.POST.get("number", "")
                done = rule_versions.restore(rule, int(number) if _is_number(number) else 0, user, actor)
                done = simulating.simulate(done, user, timezone.now()) if isinstance(done, RuleVersion) else done
            case "switch-off":
                done = rule_versions.switch_off(rule, user, actor)
            case "simulate" | "activate" | "watch" | "stop-watching" | "discard":
                draft = rule_versions.draft_of(rule)
                if draft is None or draft.terms_digest != digest:
                    return "Somebody was here before you: the draft has changed or is in force. Look again."
                done = _with_draft(act, draft, user, actor, why)
            case _:
                return "There is no such button."
        if isinstance(done, Refusal):
            return f"{_NOTHING[act]} {done.message}" if act in _NOTHING else done.message
        messages.success(request, _DONE[act].format(rule.name))
        return None

    def _rule(self, request: HttpRequest, object_id: str) -> Rule:
        rule: Rule | None = self.get_object(request, unquote(object_id))
        if rule is None:
            raise Http404
        return rule

    def _page(self, request: HttpRequest, rule: Rule, form: WhyForm, status: int = 200) -> HttpResponse:
        user = cast(User, request.user)
        draft = rule_versions.draft_of(rule)
        versions = list(rule.versions.exclude(number=None).order_by("-number")[:MAX_VERSIONS])
        groups = [group.name for group in rule.groups.all()]
        context = {
            **self.admin_site.each_context(request),
            "title": f"Versions of {rule.name}",
            "opts": self.opts,
            "rule": rule,
            "words": in_words(rule, groups, settings.APPROVAL_EXPIRES_SECONDS),
            "kept": next((version for version in versions if version.number == rule.version), None),
            "versions": versions,
            "compared": _compared(request, rule, groups, versions),
            "may_change": self.has_change_permission(request),
            "may_switch_off": rule.active and rule.verdict == Verdict.ALLOW,
            "form": form,
            "draft": draft,
            **(_of_draft(draft, rule, groups, user) if draft is not None else {}),
        }
        return TemplateResponse(request, "admin/rule_versions.html", context, status=status)


_NOTHING = {"activate": "It is not in force.", "simulate": "Nothing was simulated.", "restore": "Nothing was changed."}
_DONE = {
    "restore": "A draft of {} with the terms of that version was made and simulated. Activate it to bring them back.",
    "switch-off": "The rule {} is switched off.",
    "simulate": "The draft of {} was simulated. Nothing else was changed.",
    "activate": "The rule {} is in force as drafted.",
    "watch": "The draft of {} watches every call from now on, and decides nothing.",
    "stop-watching": "The draft of {} no longer watches.",
    "discard": "The draft of {} is discarded.",
}


def _with_draft(act: str, draft: RuleVersion, user: User, actor: str, why: str) -> RuleVersion | Refusal | bool:
    match act:
        case "simulate":
            return simulating.simulate(draft, user, timezone.now())
        case "activate":
            return rule_versions.activate(draft.pk, draft.terms_digest, user, actor, why)
        case "discard":
            return rule_versions.discard(draft, actor)
    return rule_versions.watch(draft.pk, draft.terms_digest, act == "watch", actor)


def _of_draft(draft: RuleVersion, rule: Rule, groups: list[str], user: User) -> dict[str, Any]:
    """What the page says about a draft: its words, what differs, what it would have changed, what holds it back."""
    now = rule_terms.terms_of(rule, groups) if rule.version else {}
    made = rule_terms.as_rule(rule, draft.terms)
    refusal = rule_versions.why_not(draft, user)
    is_simulated = draft.simulated_at is not None and draft.simulated_digest == draft.terms_digest
    return {
        "draft_words": in_words(made, draft.terms.get(rule_terms.GROUPS, []), settings.APPROVAL_EXPIRES_SECONDS),
        "draft_off": not made.active,
        "differences": rule_terms.differences(now, draft.terms) if rule.version else [],
        "refusal": refusal.message if refusal is not None else "",
        "is_simulated": is_simulated,
        "headline": headline(draft.simulation) if is_simulated else [],
        "calls": _calls(draft, user) if is_simulated else [],
        "most_calls": simulating.MAX_SHOWN,
        "watched": simulating.watched(draft) if draft.state == RuleVersion.State.SHADOW else None,
    }


def _calls(draft: RuleVersion, user: User) -> list[Call]:
    """The calls that would turn out differently, with a link to those whose run this person may see."""
    runs = {each["run"] for each in draft.simulated_calls}
    seen = {str(pk) for pk in auth.visible_runs(user).filter(pk__in=runs).values_list("pk", flat=True)}
    return [
        Call.read(each, f"{reverse('run', args=[each['run']])}?step={each['step']}&call={each['index']}")
        if each["run"] in seen
        else Call.read(each, "")
        for each in draft.simulated_calls
    ]


def _compared(request: HttpRequest, rule: Rule, groups: list[str], versions: list[RuleVersion]) -> dict[str, Any]:
    """Two versions side by side: those the address names, or else the last two."""
    known = {version.number: version for version in versions}
    numbers = [version.number for version in versions]
    asked = [request.GET.get(name, "") for name in ("from", "to")]
    if all(_is_number(text) and int(text) in known for text in asked):
        first, second = (known[int(text)] for text in asked)
    elif len(numbers) > 1:
        first, second = versions[1], versions[0]
    else:
        return {}
    words = [
        in_words(rule_terms.as_rule(rule, each.terms), each.terms.get(rule_terms.GROUPS, []),
                 settings.APPROVAL_EXPIRES_SECONDS)
        for each in (first, second)
    ]  # fmt: skip
    return {
        "first": first,
        "second": second,
        "words": words,
        "differences": rule_terms.differences(first.terms, second.terms),
    }


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
