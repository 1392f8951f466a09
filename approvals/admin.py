"""Admin pages: channels to edit, and the records to read."""

from typing import Any

import pydantic
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db import models
from django.http import HttpRequest

from approvals import channels, delegations, granted, lens
from approvals.admin_pages import ReadOnlyAdmin, SwitchedAdmin, masked_arguments
from approvals.masking import masked
from approvals.models import (
    Approval,
    Channel,
    Comment,
    Decision,
    Delegation,
    Event,
    Grant,
    GrantLimit,
    Judgement,
    Notification,
    PlannedCall,
)


class ChannelForm(forms.ModelForm):
    kind = forms.ChoiceField(
        choices=lambda: [(kind, kind) for kind in channels.CHANNELS],
        help_text="How its messages travel. email takes addresses, or sends to the people who may decide; slack "
        "updates its messages when a request is decided; apprise covers chat and push services of every kind.",
    )

    class Meta:
        help_texts = {
            "name": "For example night-desk.",
            "active": "An inactive channel sends nothing.",
            "config": 'What the kind needs. For email {"to": ["desk@shop.example"]}, or {"deciders": true} for the '
            'people who may decide. For slack {"credential": "SLACK", "channel": "C0123456789"}: CREDENTIAL_SLACK '
            'holds the token of the app. For apprise {"credential": "CHAT"}: CREDENTIAL_CHAT holds the address.',
            "personal": "Only for slack without a channel in its config, and for apprise with {to} in its address "
            "where the person's name goes. People give their name there under Settings, Notifications, and choose "
            "what they are told; groups are ignored then. At most one such channel is active.",
            "follows_up": "When a request has been decided elsewhere, the people who were told get one short message. "
            "slack updates its message instead, whatever is set here.",
        }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "kind" in cleaned and "config" in cleaned:
            try:
                channels.make(cleaned["kind"], cleaned["config"], bool(cleaned.get("personal")))
            except pydantic.ValidationError as error:
                for problem in error.errors():
                    place = ".".join(str(part) for part in problem["loc"])
                    message = str(problem.get("ctx", {}).get("error", problem["msg"]))
                    self.add_error("config", f"{place}: {message}" if place else message)
        return cleaned


@admin.register(Channel)
class ChannelAdmin(SwitchedAdmin):
    form = ChannelForm
    switch = "active"
    actions = ["switch_on", "switch_off"]
    about = "How people are told that a request waits: by mail to a list, or to the people who may decide."
    when_empty = "Requests are seen in the inbox. A channel tells people who are not looking."
    search_fields = ["name"]
    list_display = ["name", "kind", "personal", "active"]
    list_filter = ["kind", "active"]
    fieldsets = [
        (None, {"fields": ["name", "active", "kind", "config", "follows_up"]}),
        (
            "Who is told",
            {
                "fields": ["groups", "personal"],
                "description": "A message leads to the signed-in page. It shows no arguments and cannot decide.",
            },
        ),
    ]


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    about = "Requests to people, as they are stored. They are decided in the console's Inbox, and nowhere else."
    list_display = ["reference", "tool", "title", "agent", "risk", "state", "created_at", "decided_at"]
    list_filter = ["state", "risk", "effect_class"]
    search_fields = ["id", "tool", "run_id"]
    fieldsets = [
        (None, {"fields": ["reference", "state", "title", "final_title", "reason", "rule", "risk", "kind"]}),
        (
            "The call",
            {"fields": ["tool", "tool_version", "effect_class", "proposed", "final", "agent", "route", "run_id"]},
        ),
        (
            "Terms",
            {
                "fields": [
                    "groups",
                    "approvals_needed",
                    "terms",
                    "allowed_decisions",
                    "starter",
                    "starter_excluded",
                    "assurance_needed",
                    "hold_seconds",
                    "on_expiry",
                ]
            },
        ),
        ("Times", {"fields": ["created_at", "expires_at", "decided_at", "runs_at", "use_by", "used_at"]}),
        (
            "Proof",
            {"fields": ["version", "action_digest", "final_digest", "view_digest", "execution_id", "supersedes"]},
        ),
    ]

    @admin.display(description="Proposed arguments")
    def proposed(self, approval: Approval) -> str:
        return masked_arguments(approval.arguments_text, lens.hidden(approval.secret_fields, approval.pii_fields))

    @admin.display(description="Arguments that were approved")
    def final(self, approval: Approval) -> str:
        return masked_arguments(approval.final_arguments_text, lens.hidden(approval.secret_fields, approval.pii_fields))


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    about = "What each person decided, with what they were shown when they did."
    list_display = ["approval", "type", "user", "on_behalf_of", "via", "decided_at", "undone_at"]
    list_filter = ["type", "via"]
    list_select_related = ["approval", "user", "on_behalf_of"]
    search_fields = ["id", "approval__id", "user__username"]
    fields = [
        "approval",
        "user",
        "on_behalf_of",
        "customer",
        "type",
        "arguments",
        "message",
        "stop_run",
        "via",
        "assurance",
        "signature",
        "decided_at",
        "undone_at",
        "approval_version",
        "action_digest",
        "view_digest",
    ]

    @admin.display(description="Arguments")
    def arguments(self, decision: Decision) -> str:
        asked = decision.approval
        return masked_arguments(decision.arguments_text, lens.hidden(asked.secret_fields, asked.pii_fields))


@admin.register(Delegation)
class DelegationAdmin(ReadOnlyAdmin):
    about = "Who has lent whom the right to decide. People lend it under Settings, Delegation; you can end it here."
    actions = ["revoke"]
    list_display = ["lender", "deputy", "highest_risk", "since", "until", "ended_at", "ended_by"]
    list_filter = [("ended_at", admin.EmptyFieldListFilter)]
    list_select_related = ["lender", "deputy", "ended_by"]
    search_fields = ["lender__username", "deputy__username"]
    fields = [
        "lender", "deputy", "groups", "tools", "highest_risk", "since", "until", "created_at", "ended_at", "ended_by",
    ]  # fmt: skip

    @admin.action(permissions=["revoke"], description="End at once")
    def revoke(self, request: HttpRequest, queryset: models.QuerySet[Delegation]) -> None:
        assert isinstance(request.user, User)
        ended = sum(delegations.end(pk, request.user, "admin") for pk in queryset.values_list("pk", flat=True))
        self.message_user(request, f"{ended} ended.", messages.SUCCESS)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("approvals.revoke_delegation"))


@admin.register(Comment)
class CommentAdmin(ReadOnlyAdmin):
    about = "What people said to each other about requests. No model reads it, and no decision rests on it."
    list_display = ["approval", "author", "at"]
    list_select_related = ["approval", "author"]
    search_fields = ["approval__id", "author__username"]
    fields = ["approval", "author", "text", "at"]


@admin.register(Judgement)
class JudgementAdmin(ReadOnlyAdmin):
    about = "Later judgements of decisions. The last one of each decision counts; people judge in the console."
    list_display = ["decision", "mark", "number", "judge", "at"]
    list_filter = ["mark"]
    list_select_related = ["decision__user", "decision__on_behalf_of", "judge"]
    search_fields = ["approval__id", "judge__username"]
    fields = ["decision", "number", "mark", "reason", "judge", "at"]


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    about = "What was sent to whom about requests, and whether it arrived at its server."
    list_display = ["approval", "kind", "channel", "user", "outcome", "state", "attempts", "created_at", "sent_at"]
    list_filter = ["state", "kind", "channel"]
    list_select_related = ["approval", "channel", "user"]


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    about = "The ledger: every fact once, chained by hashes; the database refuses to change it."
    list_display = ["at", "chain", "seq", "type", "actor"]
    ordering = ["-at", "-id"]
    search_fields = ["run_id", "type", "actor"]


@admin.register(PlannedCall)
class PlannedCallAdmin(ReadOnlyAdmin):
    about = "The calls of plans that people have approved. End what is left of a plan on the page of its request."
    when_empty = "No plan has been approved. An agent with the tool propose_plan proposes them."
    list_display = ["approval", "position", "tool", "use_by", "used_at", "ended_at"]
    list_filter = ["tool"]
    search_fields = ["run_id", "tool"]
    search_help_text = "Run or tool."
    list_select_related = ["approval"]
    # What the request for the whole plan shows, masked.
    exclude = ["arguments_text", "snapshot_text"]


class GrantLimitInline(admin.TabularInline):
    model = GrantLimit
    extra = 0
    can_delete = False
    fields = ["kind", "name", "most", "used"]
    readonly_fields = ["kind", "name", "most", "used"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Grant)
class GrantAdmin(ReadOnlyAdmin):
    about = "Calls that people have allowed for a while. Grants are made from a request and taken back in the console."
    when_empty = "Nothing is allowed in advance. A grant is made in the console, from the menu of a request."
    list_display = ["__str__", "tool", "agent", "made_by", "expires_at", "hits", "max_hits", "revoked_at"]
    list_filter = ["agent", "tool"]
    search_fields = ["tool", "agent", "reason"]
    search_help_text = "Tool, agent or reason."
    list_select_related = ["made_by"]
    inlines = [GrantLimitInline]
    fields = [
        "approval", "tool", "tool_version", "effect_class", "agent", "risk", "said", "reason", "made_by", "made_at",
        "expires_at", "hits", "max_hits", "last_used_at", "revoked_at", "revoked_by", "revoked_why",
    ]  # fmt: skip
    readonly_fields = ["said"]

    def get_search_fields(self, request: HttpRequest) -> Any:
        # A reason may repeat what this person does not see.
        return ["tool", "agent"] if lens.hidden((), ("any",)) else super().get_search_fields(request)

    def hidden_of(self, grant: Grant) -> list[str]:
        """The arguments whose bounds are masked for this person."""
        return lens.hidden(grant.approval.secret_fields, grant.approval.pii_fields)

    @admin.display(description="Constraints")
    def said(self, grant: Grant) -> str:
        secrets = self.hidden_of(grant)
        shown = [each | masked({each["name"]: each.get("value")}, secrets) for each in grant.constraints]
        said = granted.in_words(each | {"value": each[each["name"]]} for each in shown)
        return "\n".join(f"{name} {words}" for name, words in said)
