"""What the page of a tool shows next to its settings: the card, its arguments, the rules on it, earlier versions."""

import json
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.utils.safestring import SafeString

from agentapp import catalogue
from agentapp.admin import tool_words
from agentapp.admin.parts import part
from agentapp.models import Tool
from agentapp.tools import sentences
from agentapp.tools.schema import check_arguments
from approvals.digest import MalformedJSON, parse
from approvals.masking import masked
from approvals.models import Risk
from approvals.policy import DEFAULT_RISK
from approvals.rule_words import in_words, lasting


def names_of(tool: Tool) -> list[str]:
    found = tool.input_schema.get("properties")
    return list(found) if isinstance(found, dict) else []


def result_names_of(tool: Tool) -> list[str]:
    """The fields of its results, if its contract lists them."""
    found = (tool.output_schema or {}).get("properties")
    return list(found) if isinstance(found, dict) else []


def unnamed(tool: Tool) -> list[str]:
    """The arguments that the words people read leave out."""
    return sentences.unnamed(tool, names_of(tool))


def example(tool: Tool, user: User) -> tuple[str, bool]:
    """Arguments for the card, as JSON, and whether a real call had them."""
    found, real = catalogue.example(tool, user)
    return catalogue.as_text(found), real


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
            raise MalformedJSON("The arguments must be an object, for example {}.")
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
    """What decides about its calls: the rules that can fit, in order, and what applies if none does."""
    rules = catalogue.rules_for(tool).prefetch_related("groups")
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


def versions(tool: Tool) -> SafeString:
    """What each sync that made a new version changed, latest first."""
    began = tool_words.BY_KIND[tool.source.kind].first
    return part("tool_versions", {"versions": catalogue.versions(tool), "began": began})
