"""What is stopped, automatically or by people: breakers with their limits, and kill switches to look at."""

from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString

from agentapp import actions, auth
from agentapp.admin.parts import part
from agentapp.controls import MAX_COOLDOWN, MAX_FAILURES, MAX_REASON
from agentapp.models import Breaker, KillSwitch
from approvals import ledger
from approvals.admin_pages import ReadOnlyAdmin
from approvals.models import Event

# How many events of a breaker are shown.
MAX_HISTORY = 50


class ResetForm(forms.Form):
    reason = forms.CharField(
        max_length=MAX_REASON,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Why it works again, as in 'the payment provider says the outage is over'. The ledger keeps it.",
    )


class LimitsForm(forms.Form):
    threshold = forms.IntegerField(
        min_value=1,
        max_value=MAX_FAILURES,
        help_text="How many failures in a row open it, for example 3. One success resets the count.",
    )
    cooldown_seconds = forms.IntegerField(
        min_value=1,
        max_value=MAX_COOLDOWN,
        help_text="How long nothing is called, for example 60. Then one call probes; if it fails, the time restarts.",
    )


@admin.register(Breaker)
class BreakerAdmin(ReadOnlyAdmin):
    about = (
        "No worker calls what keeps failing for a while. Then one call probes. A breaker appears here with its first "
        "failure."
    )
    when_empty = "Nothing has failed so far. A breaker appears here with the first failure."
    list_display = ["key", "scope", "state", "failed", "cooldown", "opened_at"]
    list_filter = ["scope", "state"]
    search_fields = ["key"]
    search_help_text = "Name of a tool, tool source, model or agent."
    ordering = ["scope", "key"]
    readonly_fields = ["failed", "history"]
    fieldsets = [
        (None, {"fields": ["key", "scope"]}),
        ("State", {"fields": ["state", "failed", "last_error", "opened_at", "probe_until"]}),
        ("Thresholds", {"fields": ["threshold", "cooldown_seconds"]}),
        ("History", {"fields": ["history"]}),
    ]

    @admin.display(description="Failures in a row")
    def failed(self, breaker: Breaker) -> str:
        return f"{breaker.failures} of {breaker.threshold}"

    @admin.display(description="Cools down", ordering="cooldown_seconds")
    def cooldown(self, breaker: Breaker) -> str:
        return f"{breaker.cooldown_seconds} s"

    @admin.display(description="What happened")
    def history(self, breaker: Breaker) -> SafeString:
        events = Event.objects.filter(
            chain=ledger.CONFIGURATION, type__startswith="breaker.", body__contains=breaker.key
        )
        found = [
            (event, data)
            for event in events.order_by("-seq")[:MAX_HISTORY]
            if ((data := event.data)["scope"], data["name"]) == (breaker.scope, breaker.key)
        ]
        return part("breaker_history", {"found": found})

    def get_urls(self) -> list[Any]:
        return [
            path("<path:object_id>/reset/", self.admin_site.admin_view(self.reset_view), name="breaker_reset"),
            path("<path:object_id>/limits/", self.admin_site.admin_view(self.limits_view), name="breaker_limits"),
            *super().get_urls(),
        ]

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        breaker = kwargs.get("obj")
        tools = []
        if breaker is not None and auth.may_stop(request.user):
            tools.append({"label": "Change thresholds", "url": reverse("admin:breaker_limits", args=[breaker.pk])})
            if breaker.state != Breaker.State.CLOSED or breaker.failures:
                tools.append({"label": "Reset", "url": reverse("admin:breaker_reset", args=[breaker.pk])})
        return super().render_change_form(request, context | {"own_tools": tools}, *args, **kwargs)

    def reset_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Close it by hand, with a reason."""
        breaker = self._mine(request, object_id)
        form = ResetForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                actions.reset_breaker(breaker.pk, cast(User, request.user), form.cleaned_data["reason"])
            except actions.Refused as refused:
                form.add_error(None, refused.message)
            else:
                messages.success(request, f"The breaker of {breaker.key} is closed; calls go through again.")
                return redirect("admin:agentapp_breaker_change", breaker.pk)
        about = "Calls go through again at once, without a probe. If it still fails, it opens again."
        return self._ask(request, breaker, form, f"Reset the breaker of {breaker.key}?", about, "Reset")

    def limits_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """When it opens, and for how long."""
        breaker = self._mine(request, object_id)
        first = {"threshold": breaker.threshold, "cooldown_seconds": breaker.cooldown_seconds}
        form = LimitsForm(request.POST or None, initial=first)
        if request.method == "POST" and form.is_valid():
            try:
                actions.set_breaker_limits(breaker.pk, user=cast(User, request.user), **form.cleaned_data)
            except actions.Refused as refused:
                form.add_error(None, refused.message)
            else:
                messages.success(request, f"The thresholds of {breaker.key} are set.")
                return redirect("admin:agentapp_breaker_change", breaker.pk)
        about = "They apply to this breaker only. New breakers start with the installation's settings."
        return self._ask(request, breaker, form, f"Thresholds of {breaker.key}", about, "Save")

    def _mine(self, request: HttpRequest, object_id: str) -> Breaker:
        """The breaker, if this person may change it."""
        breaker: Breaker | None = self.get_object(request, unquote(object_id))
        if not auth.may_stop(cast(User, request.user)):
            raise PermissionDenied("This needs the right to engage kill switches.")
        if breaker is None:
            raise Http404
        return breaker

    def _ask(
        self, request: HttpRequest, breaker: Breaker, form: forms.Form, title: str, about: str, verb: str
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "about": about,
            "form": form,
            "verb": verb,
            "opts": self.opts,
            "row": breaker,
        }
        return TemplateResponse(request, "admin/ask.html", context)


@admin.register(KillSwitch)
class KillSwitchAdmin(ReadOnlyAdmin):
    about = "What people have stopped. Switches are engaged and released on the console's Controls page."
    when_empty = "Nothing is stopped. Switches are engaged on the console's Controls page."
    list_display = ["__str__", "scope", "reason", "engaged_by", "engaged_at"]
    list_filter = ["scope"]
    list_select_related = ["engaged_by"]
