"""Where tools come from, and importing them from an OpenAPI document: read, pick, import."""

import uuid
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

from agentapp.admin import mcp
from agentapp.admin.picking import Picking
from agentapp.importing import pending, planning
from agentapp.importing.planning import Given
from agentapp.models import PendingImport, ToolSource
from agentapp.refused import Refused
from agentapp.tools.credentials import NAME, PREFIX
from agentapp.tools.openapi import MAX_BYTES
from approvals.admin_pages import RecordedAdmin, actor_of

# An import says which credential goes to which address, as the page of a source does.
_IMPORTS = ("agentapp.change_tool", "agentapp.add_toolsource", "agentapp.change_toolsource")


class ToolSourceForm(forms.ModelForm):
    class Meta:
        help_texts = {
            "name": "What people see in lists and on its breaker.",
            "credentials": f'The name of a credential for each of its schemes, for example {{"token": "SHOP"}}: the '
            f"variable {PREFIX}SHOP in the workers' environment holds the secret. It is never written here.",
            "hosts": 'The hosts its tools may call, for example ["api.shop.example"]. Empty: only its address\'s host.',
        }

    def clean_credentials(self) -> Any:
        named = self.cleaned_data["credentials"]
        if not isinstance(named, dict) or not all(isinstance(n, str) and NAME.fullmatch(n) for n in named.values()):
            raise forms.ValidationError(
                'An object of schemes and names of credentials: capital letters and digits, as in {"token": "SHOP"}. '
                "The secret itself does not belong here."
            )
        return named

    def clean_hosts(self) -> Any:
        hosts = self.cleaned_data["hosts"]
        if not isinstance(hosts, list) or not all(
            isinstance(h, str) and h and set(h).isdisjoint("/:@ ") for h in hosts
        ):
            raise forms.ValidationError('A list of hosts without scheme and port, as in ["api.shop.example"].')
        return hosts


class DocumentForm(forms.Form):
    """A document, from one of three places, and what to make of it."""

    url = forms.URLField(
        label="Its address", required=False, max_length=500, assume_scheme="https",
        help_text="A public https address, for example https://shop.example/openapi.json.",
    )  # fmt: skip
    file = forms.FileField(label="Or a file", required=False, help_text="JSON or YAML, up to 20 MB.")
    text = forms.CharField(
        label="Or its text", required=False, widget=forms.Textarea(attrs={"rows": 6}), help_text="JSON or YAML."
    )
    name = forms.SlugField(
        label="Name of the source", required=False, max_length=80,
        help_text="For example shop. Empty: made from the document's title.",
    )  # fmt: skip
    location = forms.CharField(
        label="Address of the service", required=False, max_length=500,
        help_text="Where calls go, for example https://api.shop.example/v2. Empty: as the document says.",
    )  # fmt: skip
    beginning = forms.RegexField(
        r"^[A-Za-z0-9_-]*$", label="Names begin with", required=False, max_length=40,
        help_text="What the name of each tool begins with, for example shop_.",
    )  # fmt: skip
    checks_answers = forms.BooleanField(
        label="Check answers", required=False,
        help_text="An answer that differs from the document is a failure. Many documents are not that exact.",
    )  # fmt: skip

    def clean_file(self) -> Any:
        file = self.cleaned_data["file"]
        if file is not None and file.size > MAX_BYTES:
            raise forms.ValidationError(f"The document is longer than {MAX_BYTES} bytes.")
        return file

    def clean(self) -> dict[str, Any]:
        found = cast(dict[str, Any], super().clean())
        if not self.errors and sum(bool(found.get(place)) for place in ("url", "file", "text")) != 1:
            raise forms.ValidationError("Give the document in one way: its address, a file, or its text.")
        return found

    def given(self) -> Given:
        """What was given, with the document fetched if only its address was given. Raises Refused."""
        said = self.cleaned_data
        file, url = said["file"], said["url"]
        text = planning.fetch(url) if url else file.read() if file else said["text"]
        return Given(text, said["name"], said["location"], url, said["beginning"], said["checks_answers"])


@admin.register(ToolSource)
class ToolSourceAdmin(mcp.McpSources, RecordedAdmin):
    form = ToolSourceForm
    about = (
        "Where tools are read from: modules named in TOOL_MODULES, and services and servers that describe themselves."
    )
    when_empty = "Name a module of tools in TOOL_MODULES and run manage.py sync_tools, or add one of the others above."
    change_list_template = "admin/sources/change_list.html"
    actions = ["check_now"]
    list_display = ["name", "kind", "location", "enabled", "how_it_fares", "asked"]
    list_select_related = ["health"]
    list_filter = ["kind", "enabled"]
    search_fields = ["name", "location"]
    search_help_text = "Name or address."
    readonly_fields = ["kind", "location", "origin", "details", "schemes", "how_it_fares", "asked"]

    def get_fields(self, request: HttpRequest, obj: ToolSource | None = None) -> list[Any]:
        shown = ["name", "kind", "location", "enabled"]
        if obj is not None and obj.kind == planning.KIND:
            shown += ["origin", "details", "schemes", "credentials", "hosts", "approval_receipts"]
        if obj is not None and obj.kind == ToolSource.Kind.MCP:
            shown += ["how_it_fares", "asked", "details", "credentials", "hosts"]
        return shown

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # modules are named in TOOL_MODULES, documents are imported, servers have a page of their own

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        source = kwargs.get("obj")
        tools = []
        if source is not None:
            url = f"{reverse('admin:agentapp_tool_changelist')}?source__id__exact={source.pk}"
            tools.append({"label": "Its tools", "url": url})
            if source.kind == planning.KIND and _may_import(request):
                url = reverse("admin:toolsource_import_anew", args=[source.pk])
                tools.append({"label": "Import again", "url": url})
        return super().render_change_form(request, context | {"own_tools": tools}, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        may = {"may_import": _may_import(request), "may_add_server": mcp.may_add(request)}
        return super().changelist_view(request, {**may, **(extra_context or {})})

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("import/", view(self.import_view), name="toolsource_import"),
            path("import/<uuid:key>/", view(self.pick_view), name="toolsource_pick"),
            *self.server_urls(),
            path("<path:object_id>/import/", view(self.import_view), name="toolsource_import_anew"),
            *super().get_urls(),
        ]

    # --- Importing -----------------------------------------------------------------------------

    def import_view(self, request: HttpRequest, object_id: str = "") -> HttpResponse:
        """Read a document, and keep it for picking."""
        _check_may_import(request)
        source = self._source(request, object_id) if object_id else None
        form = DocumentForm(request.POST or None, request.FILES or None, initial=_initial(source))
        if source is not None:
            form.fields["name"].disabled = True
        if request.method == "POST" and form.is_valid():
            try:
                kept = pending.keep(form.given(), cast(User, request.user))
            except Refused as refused:
                form.add_error(refused.field if refused.field in form.fields else None, refused.message)
            else:
                return redirect("admin:toolsource_pick", kept.pk)
        title = f"Import {source.name} again" if source else "Import an OpenAPI document"
        return TemplateResponse(
            request, "admin/sources/import.html", self._around(request, title, form=form, row=source)
        )

    def pick_view(self, request: HttpRequest, key: uuid.UUID) -> HttpResponse:
        """Show the operations, note what is picked, and import it."""
        _check_may_import(request)
        kept = pending.find(key, cast(User, request.user))
        if kept is None:
            messages.warning(request, "That document is no longer kept here. Read it again.")
            return redirect("admin:toolsource_import")
        if request.method != "POST":
            return self._picking(request, kept, Picking(kept, request.GET))
        picking = Picking(kept, request.POST)
        problem = picking.note()
        match request.POST.get("do", ""):
            case "import" if not problem:
                problem = self._take(request, kept, picking)
                if not problem:
                    return redirect("admin:agentapp_toolsource_change", ToolSource.objects.get(name=kept.name).pk)
            case "give-up":
                pending.give_up(kept)
                return redirect("admin:agentapp_toolsource_changelist")
        if problem:
            return self._picking(request, kept, picking, problem)
        return redirect(f"{request.path}?{picking.query()}")

    def _take(self, request: HttpRequest, kept: PendingImport, picking: Picking) -> str:
        """Import what was picked. Returns what is wrong, if anything."""
        try:
            done = pending.take(kept, actor_of(request), picking.credentials)
        except Refused as refused:
            return refused.message
        aside = f" {done.voided} open requests were set aside: their runs ask again." if done.voided else ""
        count = len(kept.choices)
        said = "1 operation is a tool" if count == 1 else f"{count} operations are tools"
        messages.success(request, f"{said} of {done.source.name}.{aside}")
        return ""

    def _picking(self, request: HttpRequest, kept: PendingImport, picking: Picking, problem: str = "") -> HttpResponse:
        title = f"Pick what agents may do with {kept.summary['title'] or kept.name}"
        context = self._around(request, title, kept=kept, picking=picking, problem=problem)
        return TemplateResponse(request, "admin/sources/pick.html", context, status=422 if problem else 200)

    def _around(self, request: HttpRequest, title: str, **context: Any) -> dict[str, Any]:
        return {**self.admin_site.each_context(request), "title": title, "opts": self.opts, **context}

    def _source(self, request: HttpRequest, object_id: str) -> ToolSource:
        source: ToolSource | None = self.get_object(request, unquote(object_id))
        if source is None or source.kind != planning.KIND:
            raise Http404
        return source


def _may_import(request: HttpRequest) -> bool:
    return cast(User, request.user).has_perms(_IMPORTS)


def _check_may_import(request: HttpRequest) -> None:
    if not _may_import(request):
        raise PermissionDenied("This needs the rights to change tools, and to add and change their sources.")


def _initial(source: ToolSource | None) -> dict[str, Any]:
    if source is None:
        return {}
    said = source.details
    return {
        "name": source.name,
        "location": source.location,
        "url": source.origin,
        "beginning": said.get("prefix", ""),
        "checks_answers": said.get("checks_answers", False),
    }
