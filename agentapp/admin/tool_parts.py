"""What the page of a tool shows beside its settings: the card, its arguments, the rules on it, earlier versions."""

import json
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils.safestring import SafeString

from agentapp.admin import tool_words
from agentapp.admin.parts import part
from agentapp.models import Tool, ToolExecution
from agentapp.tools import sample, sentences
from agentapp.tools.schema import check_arguments
from approvals import changes
from approvals.digest import MalformedJSON, canonical, parse
from approvals.masking import masked
from approvals.models import Risk, Rule
from approvals.policy import DEFAULT_RISK
from approvals.rule_words import in_words, lasting

# Of a contract's versions, as many are compared.
MAX_VERSIONS = 10
# Columns of a contract that read better as text than as JSON.
_TEMPLATES = {
    "description": "Description",
    "title_template": "Title",
    "sentence_template": "Sentence",
    "button_template": "Button",
    "confirm_template": "Typed to approve",
    "effects_template": "Effects",
    "input_schema": "Arguments",
    "output_schema": "Result",
    "wire": "Request",
    "declared_effect_class": "Declared effect class",
    "business_key_template": "Business key",
}


@dataclass(frozen=True)
class Version:
    """What one sync changed of a contract: its parts, each as JSON before and after."""

    at: Any
    who: str
    version: str
    parts: list[tuple[str, str, str]]


def names_of(tool: Tool) -> list[str]:
    found = tool.input_schema.get("properties")
    return list(found) if isinstance(found, dict) else []


def unnamed(tool: Tool) -> list[str]:
    """The arguments that the words people read leave out."""
    return sentences.unnamed(tool, names_of(tool))


def example(tool: Tool, user: User) -> tuple[str, bool]:
    """Arguments for the card, and whether a real call had them. Secrets are masked."""
    found: dict[str, Any] = sample.arguments(tool.input_schema)
    real = False
    if user.has_perm("agentapp.view_toolexecution"):
        latest = ToolExecution.objects.filter(tool=tool).exclude(arguments_text="").order_by("-pk").first()
        try:
            last = parse(latest.arguments_text) if latest else None
        except MalformedJSON:
            last = None
        if isinstance(last, dict):
            found, real = last, True
    return json.dumps(masked(found, tool.secret_fields), ensure_ascii=False, indent=2), real


def card_context(tool: Tool, text: str) -> dict[str, Any]:
    """What people would be shown for these arguments, or what is wrong with them."""
    left_out = unnamed(tool)
    context: dict[str, Any] = {
        "tool": tool,
        "unnamed": left_out,
        "named": [n for n in names_of(tool) if n not in left_out],
    }
    try:
        arguments = parse(text)
        if not isinstance(arguments, dict):
            raise MalformedJSON("The arguments are an object, as in {}.")
    except MalformedJSON as error:
        return context | {"problem": str(error)}
    shown, state = masked(arguments, tool.secret_fields), sentences.looked_up(tool)
    return context | {
        "title": sentences.title(tool, shown, state),
        "sentence": sentences.sentence(tool, shown, state),
        "effects": sentences.effects(tool, shown, state),
        "button": sentences.button(tool, shown, state),
        "looks_up": bool(state),
        "misfits": [problem.sentence for problem in check_arguments(tool.input_schema, arguments)],
    }


def arguments_table(tool: Tool) -> SafeString:
    schema = json.dumps(tool.input_schema, ensure_ascii=False, indent=2)
    return part("tool_arguments", {"tool": tool, "schema": schema})


def rules_on(tool: Tool) -> SafeString:
    """What decides about its calls: the rules that can fit, in order, and what holds where none does."""
    rules = rules_for(tool).prefetch_related("groups")
    context = {
        "rules": [
            (rule, in_words(rule, [g.name for g in rule.groups.all()], settings.APPROVAL_EXPIRES_SECONDS))
            for rule in rules
        ],
        "tool": tool,
        "risk": DEFAULT_RISK.get(tool.effect_class, Risk.HIGH),
        "undo": lasting(settings.UNDO_HOLD_SECONDS) if settings.UNDO_HOLD_SECONDS else "",
    }
    return part("tool_rules", context)


def rules_for(tool: Tool) -> QuerySet[Rule]:
    return Rule.objects.filter(active=True, tool__in=["", tool.name], effect_class__in=["", tool.effect_class])


def versions(tool: Tool) -> SafeString:
    """What each sync that made a new version changed, latest first."""
    found = []
    for change in changes.of(tool):
        new = change.of("version")
        if change.what != "changed" or new is None:
            continue
        parts = [
            (label, _as_json(field.before), _as_json(field.after))
            for name, label in _TEMPLATES.items()
            if (field := change.of(name)) is not None
        ]
        found.append(Version(change.at, change.who, str(new.after)[:12], parts))
    return part(
        "tool_versions", {"versions": found[:MAX_VERSIONS], "began": tool_words.BY_KIND[tool.source.kind].first}
    )


def _as_json(value: Any) -> str:
    return canonical("" if value is None else value)
