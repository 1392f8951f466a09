"""The list of tools: what agents can do here, how often they do it, and what stops them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from agentapp import catalogue
from agentapp.catalogue import Calls, State, Stops
from agentapp.console.parts import render_part
from agentapp.console.shell import Forbidden, signed_in
from agentapp.models import Tool, ToolSource
from approvals.digest import storable
from approvals.models import Risk, Rule
from approvals.policy import DEFAULT_RISK

PAGE = 50
MAX_CHARS = 120
SOURCES = {
    ToolSource.Kind.PYTHON: "Python",
    ToolSource.Kind.OPENAPI: "OpenAPI",
    ToolSource.Kind.MCP: "MCP",
    ToolSource.Kind.AGENT: "Agents",
}
VIEW_RIGHT = "agentapp.view_tool"


@dataclass(frozen=True)
class Line:
    """One tool of the list. `calls` are those of the last days; `rules` is the number of rules that may apply."""

    tool: Tool
    source: str
    effect: str
    risk: str
    rules: int
    calls: Calls
    states: Sequence[State]


@require_safe
def tools(request: HttpRequest) -> HttpResponse:
    """Every tool by name, narrowed by words and kind of source. `after` names the last one before the page."""
    may_view(request)
    words = storable(request.GET.get("q", "")).strip()[:MAX_CHARS]
    kind = request.GET.get("source", "") if request.GET.get("source") in SOURCES else ""
    after = storable(request.GET.get("after", ""))[:MAX_CHARS]
    found = Tool.objects.select_related("source__health").order_by("name")
    if words:
        found = found.filter(Q(name__icontains=words) | Q(description__icontains=words) | Q(owner__icontains=words))
    if kind:
        found = found.filter(source__kind=kind)
    page = list((found.filter(name__gt=after) if after else found).defer("output_schema", "wire")[: PAGE + 1])
    context = {
        "rows": lines(page[:PAGE]),
        "after": after,
        "next": page[PAGE - 1].name if len(page) > PAGE else "",
        "words": words,
        "kind": kind,
        "kinds": [(str(key), name) for key, name in SOURCES.items()],
        "days": catalogue.COUNTED.days,
        "refresh": request.get_full_path(),
        "may_see_changes": signed_in(request).has_perm("approvals.view_event"),
        "setup_url": _where_tools_come_from(request),
    }
    return render_part(request, "console/tools.html", "list", context)


def may_view(request: HttpRequest) -> None:
    """Raises Forbidden for a person who may not look at tools."""
    if not signed_in(request).has_perm(VIEW_RIGHT):
        raise Forbidden("This page shows what agents can do, and under which rules.", VIEW_RIGHT)


def lines(page: Sequence[Tool]) -> list[Line]:
    """A page of tools with what the list shows of each. Four queries, however many tools."""
    counts, stops = catalogue.call_counts(page), Stops.read()
    rules = list(Rule.objects.filter(active=True).values_list("tool", "effect_class"))
    return [_line(tool, rules, counts.get(tool.pk, Calls()), stops) for tool in page]


def _line(tool: Tool, rules: Sequence[tuple[str, str]], calls: Calls, stops: Stops) -> Line:
    about = sum(name in ("", tool.name) and effect in ("", tool.effect_class) for name, effect in rules)
    return Line(
        tool, SOURCES[ToolSource.Kind(tool.source.kind)], effect_word(tool), risk_of(tool), about, calls,
        catalogue.states_of(tool, stops),
    )  # fmt: skip


def effect_word(tool: Tool) -> str:
    """The effect class in one word. What follows the colon explains it."""
    return str(tool.get_effect_class_display()).partition(":")[0]


def risk_of(tool: Tool) -> str:
    """How risky a call is if no rule says so."""
    return str(DEFAULT_RISK.get(tool.effect_class, Risk.HIGH))


def _where_tools_come_from(request: HttpRequest) -> str:
    user: Any = signed_in(request)
    return reverse("admin:agentapp_toolsource_changelist") if user.is_staff else ""
