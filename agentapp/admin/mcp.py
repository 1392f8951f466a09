"""MCP servers as sources of tools: adding one, its health, and what it has changed on its own."""

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import formats, timezone
from django.utils.safestring import SafeString

from agentapp import refreshing
from agentapp.admin.parts import part
from agentapp.models import SourceHealth, Tool, ToolSource
from agentapp.tools import mcp_target
from approvals import configuration
from approvals.admin_pages import actor_of
from approvals.digest import canonical

# A person is waiting for the page.
CHECKS_WITHIN_SECONDS = 15.0
# The parts of a contract that are compared, with the labels people read.
_PARTS = {
    "description": "Description",
    "input_schema": "Arguments",
    "output_schema": "Result",
    "wire": "What is called",
    "claims": "What the server says about it",
}
_HINTS = {
    "title": "Its title",
    "read_only_hint": "It changes nothing",
    "destructive_hint": "It may destroy something",
    "idempotent_hint": "Calling it again changes nothing more",
    "open_world_hint": "It deals with the world outside",
}


class ServerForm(forms.Form):
    """A new server: started here by a command from the settings, or reached at an address."""

    name = forms.SlugField(label="Name", max_length=80, help_text="What people see in lists and on its breaker.")
    command = forms.ChoiceField(
        label="Command",
        required=False,
        help_text="One of those in MCP_COMMANDS. Only that setting, and no page, says what runs on this machine.",
    )
    address = forms.CharField(
        label="Or its address",
        required=False,
        max_length=500,
        help_text="For streamable HTTP, for example https://shop.example/mcp.",
    )
    credential = forms.RegexField(
        r"^[A-Z][A-Z0-9_]{0,79}$",
        label="Credential",
        required=False,
        help_text="For an address. Give a name, for example SHOP: the variable CREDENTIAL_SHOP holds the secret. It is "
        "sent as a bearer token and never written here.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        commands = [(name, name) for name in sorted(settings.MCP_COMMANDS)]
        cast(forms.ChoiceField, self.fields["command"]).choices = [("", "None"), *commands]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if ToolSource.objects.filter(name=name).exists():
            raise forms.ValidationError("Another source already has this name.")
        return name

    def clean(self) -> dict[str, Any]:
        found = cast(dict[str, Any], super().clean())
        if self.errors:
            return found
        if bool(found["command"]) == bool(found["address"]):
            raise forms.ValidationError("Give either a command or an address.")
        if found["address"]:
            # Not "stdio:": commands are chosen in the field above.
            starts = found["address"].startswith(("https://", "http://"))
            problem = mcp_target.problem_of(found["address"] if starts else "")
            if problem:
                self.add_error("address", problem)
        elif found["credential"]:
            self.add_error("credential", "A command gets its credentials from MCP_COMMANDS.")
        return found

    def source(self) -> ToolSource:
        said = self.cleaned_data
        location = said["address"] or mcp_target.STDIO + said["command"]
        credentials = {"bearer": said["credential"]} if said["credential"] else {}
        return ToolSource(name=said["name"], kind=ToolSource.Kind.MCP, location=location, credentials=credentials)


class McpSources:
    """The part of the sources page that is about MCP servers."""

    admin_site: admin.AdminSite
    opts: Any
    message_user: Any

    @admin.display(description="Health", ordering="health__ok")
    def how_it_fares(self, source: ToolSource) -> str:
        """How the last check went."""
        found = _health_of(source)
        if found is None:
            return "Never asked" if source.kind == ToolSource.Kind.MCP else ""
        if found.ok:
            return f"Answers. {found.problem}" if found.problem else "Answers"
        return f"Fails: {found.problem[:160]} ({found.failures} in a row)"

    @admin.display(description="Asked", ordering="health__checked_at")
    def asked(self, source: ToolSource) -> str:
        """As text: a form shows a read-only value as Python writes it."""
        found = _health_of(source)
        return formats.localize(timezone.localtime(found.checked_at)) if found is not None else ""

    @admin.action(
        permissions=["change"],
        description="Check now",
        description_plural="Check now",
        location=[admin.ActionLocation.CHANGE_LIST, admin.ActionLocation.CHANGE_FORM],
    )
    def check_now(self, request: HttpRequest, queryset: QuerySet[ToolSource]) -> None:
        for source in queryset:
            if source.kind == ToolSource.Kind.MCP:
                _check(request, source)
            else:
                messages.info(request, f"The source {source.name} is not an MCP server, so there is nothing to check.")

    def server_urls(self) -> list[Any]:
        return [path("new-mcp-server/", self.admin_site.admin_view(self.add_server_view), name="toolsource_mcp")]

    def add_server_view(self, request: HttpRequest) -> HttpResponse:
        if not may_add(request):
            raise PermissionDenied
        form = ServerForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            source = form.source()
            configuration.save(source, actor_of(request))
            _check(request, source)
            return redirect("admin:agentapp_toolsource_change", source.pk)
        context = {"title": "New MCP server", "opts": self.opts, "form": form}
        around = {**self.admin_site.each_context(request), **context}
        return TemplateResponse(request, "admin/mcp_server.html", around)


class McpTools:
    """The part of a tool's page that is about its server."""

    admin_site: admin.AdminSite
    get_object: Any
    has_change_permission: Any

    @admin.display(description="The server says")
    def server_says(self, tool: Tool) -> SafeString:
        return part("mcp_claims", {"claims": in_words(tool.claims)})

    @admin.display(description="New contract")
    def new_contract(self, tool: Tool) -> SafeString:
        """What the server has changed, and the button that accepts it."""
        context = {
            "parts": differences(tool),
            "seen": refreshing.seen(tool),
            "url": reverse("admin:tool_accept", args=[tool.pk]),
        }
        return part("mcp_contract", context)

    def server_fieldsets(self, tool: Tool | None) -> list[Any]:
        """What comes first on a tool's page: a contract that waits, and what its server says about it."""
        if tool is None:
            return []
        found: list[Any] = []
        if tool.waiting_contract is not None:
            said = "The server's contract differs from what people have seen. The tool is out of use until you accept."
            found.append(("A new contract waits", {"fields": ["new_contract"], "description": said}))
        if tool.source.kind == ToolSource.Kind.MCP:
            said = "Nothing here is trusted: your settings below decide what a call may do."
            found.append(("What its server says", {"fields": ["server_says"], "description": said}))
        return found

    def contract_urls(self) -> list[Any]:
        accept = self.admin_site.admin_view(self.accept_view)
        return [path("<path:object_id>/accept/", accept, name="tool_accept")]

    def accept_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Accept the contract that was shown."""
        tool = self.get_object(request, unquote(object_id))
        if tool is None:
            raise Http404
        if not self.has_change_permission(request, tool):
            raise PermissionDenied
        if request.method == "POST":
            try:
                voided = refreshing.accept(tool, request.POST.get("seen", ""), actor_of(request))
            except refreshing.Outdated:
                messages.warning(request, "The server has changed it again in the meantime. Look at it as it is now.")
            else:
                aside = f" {voided} open requests were set aside: their runs ask again." if voided else ""
                messages.success(request, f"The new contract of {tool.name} holds.{aside}")
        return redirect("admin:agentapp_tool_change", tool.pk)


def may_add(request: HttpRequest) -> bool:
    return cast(User, request.user).has_perm("agentapp.add_toolsource")


def in_words(claims: dict[str, Any]) -> list[str]:
    """What a server says about a tool beyond its contract, one sentence each."""
    said = {name: {True: "yes", False: "no"}.get(value, value) for name, value in claims.items()}
    return [f"{_HINTS.get(name, name)}: {value}" for name, value in said.items()]


def differences(tool: Tool) -> list[tuple[str, str, str]]:
    """The parts of a waiting contract that differ from the one that holds: (label, JSON before, JSON after)."""
    waiting = tool.waiting_contract or {}
    pairs = [(label, getattr(tool, name), waiting.get(name)) for name, label in _PARTS.items() if name in waiting]
    return [(label, canonical(before), canonical(after)) for label, before, after in pairs if before != after]


def _health_of(source: ToolSource) -> SourceHealth | None:
    return getattr(source, "health", None)


def _check(request: HttpRequest, source: ToolSource) -> None:
    found = refreshing.refresh(source, actor_of(request), CHECKS_WITHIN_SECONDS)
    if found.problem:
        messages.warning(request, f"The server {source.name} could not be checked. {found.problem}")
        return
    tools = Tool.objects.filter(source=source, missing_since=None).count()
    messages.success(request, f"The server {source.name} answers: {tools} tool{'s' if tools != 1 else ''}.")
    if found.waiting:
        messages.warning(request, f"Changed by the server and out of use until accepted: {', '.join(found.waiting)}.")
    for sentence in found.left_out:
        messages.warning(request, f"Left out: {sentence}")
