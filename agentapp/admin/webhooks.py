"""Programs elsewhere that are told what happens: endpoints to set up and test, deliveries to read and repeat."""

from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from agentapp import webhooks
from agentapp.models import WebhookDelivery, WebhookEndpoint
from agentapp.models.webhooks import TEST_EVENT, WEBHOOK_EVENTS
from approvals import ledger
from approvals.admin_pages import ReadOnlyAdmin, RowAdmin, SwitchedAdmin

_CHANGE = "agentapp.change_webhookendpoint"


class WebhookEndpointForm(forms.ModelForm):
    events = forms.MultipleChoiceField(
        choices=[(one, one) for one in WEBHOOK_EVENTS],
        widget=forms.CheckboxSelectMultiple,
        help_text="What it is told about. A message holds names, states and a link: no arguments, and nobody's words.",
    )

    class Meta:
        help_texts = {"name": "For example ticket-desk."}


class Asking(RowAdmin):
    """Pages that ask before something is sent: looking at one sends nothing."""

    def _row(self, request: HttpRequest, object_id: str) -> Any:
        """The row, if this person may have something sent."""
        if not cast(User, request.user).has_perm(_CHANGE):
            raise PermissionDenied("This needs the right to change webhook endpoints.")
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        return row

    def _ask(self, request: HttpRequest, row: Model, title: str, about: str, verb: str) -> HttpResponse:
        about_it = {"title": title, "about": about, "form": forms.Form(), "verb": verb, "opts": self.opts, "row": row}
        return TemplateResponse(request, "admin/ask.html", {**self.admin_site.each_context(request), **about_it})


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(Asking, SwitchedAdmin):
    form = WebhookEndpointForm
    switch = "active"
    actions = ["switch_on", "switch_off"]
    about = "Programs elsewhere that are told what happens here. Each message is signed."
    when_empty = "Nobody is told. Add the address of a program that should know what waits and what was decided."
    search_fields = ["name", "url"]
    search_help_text = "Name or address."
    list_display = ["name", "url", "active", "how_it_fares"]
    list_filter = ["active"]
    list_select_related = ["progress"]
    readonly_fields = ["how_it_fares"]
    fieldsets = [
        (None, {"fields": ["name", "active", "how_it_fares", "url", "events"]}),
        (
            "Signature",
            {
                "fields": ["credential", "previous_credential"],
                "description": "The secrets themselves are in the environment of workers and web servers.",
            },
        ),
    ]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        webhooks.see_to(obj.pk)

    def set_all(self, request: HttpRequest, queryset: QuerySet[Any], column: str, value: Any) -> None:
        with ledger.transaction():
            super().set_all(request, queryset, column, value)
            for endpoint in queryset:
                webhooks.see_to(endpoint.pk)

    @admin.display(description="Health")
    def how_it_fares(self, endpoint: WebhookEndpoint) -> str:
        progress = getattr(endpoint, "progress", None)
        if progress is None:
            return "It has not been told anything yet."
        if not endpoint.active:
            return f"Switched off. {progress.problem}".strip()
        if progress.failing_since is not None:
            return f"Has taken nothing since {progress.failing_since:%Y-%m-%d %H:%M} UTC."
        return "Good."

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.test_view)
        return [path("<path:object_id>/test/", view, name="webhook_test"), *super().get_urls()]

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        endpoint = kwargs.get("obj")
        tools = []
        if endpoint is not None:
            deliveries = reverse("admin:agentapp_webhookdelivery_changelist")
            tools.append({"label": "Its deliveries", "url": f"{deliveries}?endpoint__id__exact={endpoint.pk}"})
            if request.user.has_perm(_CHANGE):
                tools.append({"label": "Send a test", "url": reverse("admin:webhook_test", args=[endpoint.pk])})
        return super().render_change_form(request, context | {"own_tools": tools}, *args, **kwargs)

    def test_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Post a test now, and say what was answered."""
        endpoint: WebhookEndpoint = self._row(request, object_id)
        if request.method != "POST":
            about = f"A signed message of the type {TEST_EVENT} goes to {endpoint.url} now, once."
            return self._ask(request, endpoint, f"Send a test to {endpoint.name}?", about, "Send a test")
        delivery = webhooks.test(endpoint, cast(User, request.user))
        if delivery.state == WebhookDelivery.State.SENT:
            messages.success(request, f"The test was accepted: {endpoint.name} answered {delivery.status}.")
        else:
            messages.error(request, f"The test was not accepted by {endpoint.name}. {delivery.error}")
        return redirect("admin:agentapp_webhookendpoint_change", endpoint.pk)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(Asking, ReadOnlyAdmin):
    about = (
        "What was sent to endpoints, and what they answered. It is kept for 30 days; the ledger keeps what happened."
    )
    when_empty = "Nothing has been sent so far."
    list_display = ["type", "endpoint", "state", "attempts", "status", "next_at", "created_at", "sent_at"]
    list_filter = ["state", "endpoint", "type"]
    list_select_related = ["endpoint"]
    search_fields = ["event_id"]
    search_help_text = "The header webhook-id."
    fields = [
        "type", "endpoint", "event_id", "state", "attempts", "status", "error", "next_at", "created_at", "sent_at",
        "body",
    ]  # fmt: skip

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.redeliver_view)
        return [path("<path:object_id>/redeliver/", view, name="webhook_redeliver"), *super().get_urls()]

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        delivery = kwargs.get("obj")
        tools = []
        if delivery is not None and _can_be_repeated(delivery) and request.user.has_perm(_CHANGE):
            tools.append({"label": "Redeliver", "url": reverse("admin:webhook_redeliver", args=[delivery.pk])})
        return super().render_change_form(request, context | {"own_tools": tools}, *args, **kwargs)

    def redeliver_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        delivery: WebhookDelivery = self._row(request, object_id)
        if request.method != "POST":
            about = "It is sent again as it was, under the same webhook-id: a receiver that already has it ignores it."
            return self._ask(request, delivery, f"Redeliver {delivery}?", about, "Redeliver")
        if webhooks.redeliver(delivery.pk, cast(User, request.user)):
            messages.success(request, "It will be sent within a few seconds.")
        else:
            messages.warning(request, "It is already queued, or was only a test.")
        return redirect("admin:agentapp_webhookdelivery_change", delivery.pk)


def _can_be_repeated(delivery: WebhookDelivery) -> bool:
    return delivery.state != WebhookDelivery.State.QUEUED and delivery.type != TEST_EVENT
