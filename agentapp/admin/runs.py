"""The records of what agents did, read only. Secrets are masked; what providers need back is left out."""

import json
from collections.abc import Collection, Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agentapp import discretion
from agentapp.models import Conversation, Message, Run, Step, ToolExecution
from agentapp.secrecy import shown
from approvals import lens
from approvals.admin_pages import ReadOnlyAdmin, masked_arguments


class MockedFilter(admin.SimpleListFilter):
    title = "whether its calls are mocked"
    parameter_name = "mocked"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("no", "In earnest"), ("yes", "Mocked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(mocks__isnull=self.value() == "no") if self.value() in ("yes", "no") else queryset


def _without(hidden: Collection[str], columns: Iterable[Any]) -> list[Any]:
    """Columns that a list may be sorted by, without those that the viewer does not see as they are."""
    return [name for name in columns if name not in hidden or not discretion.hides()]


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    about = "Executions of agents, as they are stored. The console's Runs page shows the same as a trace."
    when_empty = "A run is started in the console or over the API."
    list_display = [
        "reference",
        "title",
        "agent",
        "state",
        "stop_reason",
        "mocked",
        "starter",
        "step_count",
        "created_at",
    ]
    list_filter = ["state", MockedFilter, "agent", "stop_reason"]
    list_select_related = ["agent", "starter"]
    search_fields = ["id", "title", "customer"]
    # These repeat the arguments of calls, secrets included, or help to guess them: the digest has no salt.
    exclude = ["script", "mocks", "opening", "request_digest", "lease_token"]

    def get_search_fields(self, request: HttpRequest) -> Any:
        # People from whom personal data is hidden would learn it from what a search finds, or from a sort order.
        return ["id"] if discretion.hides() else super().get_search_fields(request)

    def get_sortable_by(self, request: HttpRequest) -> Any:
        return _without(("title", "customer"), super().get_sortable_by(request))

    @admin.display(description="Mocked", boolean=True)
    def mocked(self, run: Run) -> bool:
        return run.is_mocked


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin):
    about = "Single decisions of a model, with what they cost."
    list_display = ["run", "number", "model", "finish_reason", "input_tokens", "output_tokens", "cost", "finished_at"]
    list_select_related = ["run"]
    search_fields = ["run__id"]
    # The provider's own form of the calls, with their arguments unmasked.
    exclude = ["provider_parts"]


@admin.register(ToolExecution)
class ToolExecutionAdmin(ReadOnlyAdmin):
    about = "Proposed calls and everything that became of them. Secrets are masked."
    list_display = ["name", "run", "state", "result_status", "reason", "effect_class", "proposed_at", "finished_at"]
    list_filter = ["state", "result_status", "effect_class", "reason"]
    list_select_related = ["run"]
    search_fields = ["id", "run__id", "name"]
    fieldsets = [
        (None, {"fields": ["name", "run", "step", "index", "call_id", "state"]}),
        ("What was proposed", {"fields": ["tool", "tool_version", "effect_class", "consequential", "proposed"]}),
        ("What let it run", {"fields": ["ruled", "approval", "allowed_by", "idempotency_key"]}),
        (
            "What came of it",
            {
                "fields": [
                    "executed",
                    "attempts",
                    "result_status",
                    "reason",
                    "message",
                    "given",
                    "trust",
                    "evidence_ref",
                    "replay_of",
                    "told",
                    "outcome_note",
                ]
            },
        ),
        ("Times", {"fields": ["proposed_at", "started_at", "finished_at"]}),
    ]

    @admin.display(description="Proposed arguments")
    def proposed(self, execution: ToolExecution) -> str:
        return masked_arguments(execution.arguments_text, secret_fields_of(execution))

    @admin.display(description="Ruling")
    def ruled(self, execution: ToolExecution) -> str:
        return _text(execution.ruling) if execution.ruling else ""

    @admin.display(description="Arguments that ran")
    def executed(self, execution: ToolExecution) -> str:
        return masked_arguments(execution.executed_text, secret_fields_of(execution))

    @admin.display(description="Result")
    def given(self, execution: ToolExecution) -> str:
        if not execution.result_text:
            return ""
        return _text(shown(execution, json.loads(execution.result_text), secret_fields_of(execution)))

    @admin.display(description="Metadata")
    def told(self, execution: ToolExecution) -> str:
        """For people only; it may repeat the call's arguments."""
        return _text(shown(execution, execution.metadata, secret_fields_of(execution)))


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin):
    about = "Dialogues with customers. The console shows them with their runs."
    list_display = ["key", "agent", "customer", "mode", "created_at"]
    list_filter = ["mode", "agent"]
    list_select_related = ["agent"]
    search_fields = ["key", "customer"]

    def get_search_fields(self, request: HttpRequest) -> Any:
        return ["key"] if discretion.hides() else super().get_search_fields(request)

    def get_sortable_by(self, request: HttpRequest) -> Any:
        return _without(("customer",), super().get_sortable_by(request))


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    about = "What was said in conversations, in order."
    list_display = ["conversation", "seq", "role", "created_at"]
    list_select_related = ["conversation"]
    search_fields = ["conversation__key"]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def secret_fields_of(execution: ToolExecution) -> list[str]:
    """Fields that are secret now, and those that were secret when people were asked."""
    return sorted(lens.hidden(execution.all_secret_fields, execution.all_pii_fields))
