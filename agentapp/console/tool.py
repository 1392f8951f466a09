"""The page of one tool: how its calls read, its arguments, the rules on it, its calls, its versions."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from agentapp import catalogue, trying
from agentapp import hindsight as past
from agentapp.catalogue import Calls, Stops
from agentapp.console import words
from agentapp.console.parts import render_part
from agentapp.console.shell import signed_in
from agentapp.console.tools import SOURCES, effect_word, may_view, risk_of
from agentapp.models import Tool, ToolExecution, ToolSource
from agentapp.tools import sentences
from approvals.models import Rule
from approvals.rule_words import in_words, lasting

# How many of its latest calls are shown.
LATEST = 20
PARTS = {"": "Overview", "rules": "Rules", "calls": "Calls", "versions": "Versions"}


@require_safe
def tool(request: HttpRequest, name: str) -> HttpResponse:
    """One part of the page, chosen by `part`. Every part has the same head."""
    may_view(request)
    found, user = find(name), signed_in(request)
    part = request.GET.get("part", "") if request.GET.get("part") in PARTS else ""
    may_see_calls = user.has_perm("agentapp.view_toolexecution") and user.has_perm("agentapp.view_run")
    context = {
        **head(found),
        "part": part,
        "parts": [(key, word) for key, word in PARTS.items() if key != "calls" or may_see_calls],
        "calls": catalogue.call_counts([found]).get(found.pk, Calls()),
        "days": catalogue.COUNTED.days,
        "hindrance": trying.hindrance(found),
        "setup_url": _where_it_is_set_up(found, user),
        "may_see_changes": user.has_perm("approvals.view_event"),
    }
    if part == "rules":
        context |= _rules(found, user)
    elif part == "calls" and may_see_calls:
        context["latest"] = _latest(found)
    elif part == "versions":
        context["versions"] = versions = catalogue.versions(found)
        context["number"] = len(versions) + 1 if len(versions) < catalogue.MAX_VERSIONS else 0
    else:
        context |= _overview(found, user)
    return render_part(request, "console/tool.html", "page", context)


@require_safe
def through(request: HttpRequest, name: str) -> HttpResponse:
    """What today's rules decide for the tool's latest calls: as a part of the page, or on a page of its own."""
    may_view(request)
    found = find(name)
    looked = past.through(found)
    rules = {rule.name: rule for rule in catalogue.rules_for(found)}
    by_rule = [(rules.get(rule), rule, verdict, number) for (rule, verdict), number in looked.by_rule.most_common()]
    context = {**head(found), "looked": looked, "by_rule": by_rule, "changed": looked.changed.most_common()}
    return render_part(request, "console/tool_through.html", "through", context)


def find(name: str) -> Tool:
    """The tool of that name, with its source. Raises Http404."""
    found = Tool.objects.select_related("source__health").filter(name=name).first()
    if found is None:
        raise Http404("There is no tool of that name.")
    return found


def head(found: Tool) -> dict[str, Any]:
    """What is shown above every page about a tool."""
    return {
        "tool": found,
        "source_kind": SOURCES[ToolSource.Kind(found.source.kind)],
        "effect": effect_word(found),
        "risk_level": risk_of(found),
        "states": catalogue.states_of(found, Stops.read()),
    }


def in_plain_words(found: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The card of a call with these arguments. What the tool would look up is shown in brackets."""
    state = sentences.looked_up(found)
    return {
        "title": sentences.title(found, arguments, state),
        "sentence": sentences.sentence(found, arguments, state),
        "effects": sentences.effects(found, arguments, state),
        "button": sentences.button(found, arguments, state),
        "looks_up": bool(state),
    }


def _overview(found: Tool, user: User) -> dict[str, Any]:
    arguments, real = catalogue.example(found, user)
    return {
        "card": in_plain_words(found, arguments),
        "example": arguments,
        "example_is_real": real,
        "secrets": found.secret_fields,
        "agents": found.agents.order_by("name").values_list("name", "enabled"),
        "schema": catalogue.as_text(found.input_schema),
    }


def _rules(found: Tool, user: User) -> dict[str, Any]:
    rules = catalogue.rules_for(found).prefetch_related("groups")
    return {
        "rules": [(rule, _said(rule)) for rule in rules],
        "undo": lasting(settings.UNDO_HOLD_SECONDS) if settings.UNDO_HOLD_SECONDS else "",
        "may_see_rules": user.is_staff and user.has_perm("approvals.view_rule"),
        "most": past.OF_A_TOOL,
    }


def _said(rule: Rule) -> str:
    return in_words(rule, [group.name for group in rule.groups.all()], settings.APPROVAL_EXPIRES_SECONDS)


def _latest(found: Tool) -> list[tuple[ToolExecution, str]]:
    """The latest calls, each with what let it run."""
    calls = ToolExecution.objects.filter(tool=found, mocked=False).select_related("run__agent", "run__starter", "step")
    shown = calls.defer("result_text", "raw_result_text", "artifact_text", "run__agent_snapshot", "run__script")
    return [(call, words.allowed_by(call)) for call in shown.order_by("-proposed_at")[:LATEST]]


def _where_it_is_set_up(found: Tool, user: User) -> str:
    is_admin = user.is_staff and user.has_perm("agentapp.change_tool")
    return reverse("admin:agentapp_tool_change", args=[found.pk]) if is_admin else ""
