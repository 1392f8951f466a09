"""Erasing what is kept about people: what would go is shown first, and nothing is erased without a reason."""

from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path

from agentapp import auth, erasing, retention
from agentapp.models import Conversation, Erasure, Run
from agentapp.refused import Refused
from approvals import ledger
from approvals.admin_pages import ReadOnlyAdmin
from approvals.digest import canonical, sha256

# Each kind that a setting can limit, in words.
_KEPT = {
    "content": "What was said in runs",
    "notifications": "Where messages to people went",
    "evals": "Evals and their runs",
}


class ErasureForm(forms.Form):
    scope = forms.ChoiceField(label="What", choices=Erasure.Scope, widget=forms.RadioSelect)
    subject = forms.CharField(
        label="Which",
        max_length=200,
        help_text="The run as its page names it (run_…), the id of a conversation, or the customer as runs name them.",
    )
    reason = forms.CharField(
        max_length=erasing.MAX_REASON, help_text="Why, perhaps a request's number. It stays on record, so name nobody."
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)
    """A digest of the preview that the person agreed to: what it was of, and what it said."""


@dataclass(frozen=True)
class Shown:
    """What an erasure would erase, and of what, as the page shows it before it happens."""

    scope: str
    subject: str
    """The id of the run or the conversation, however the person named it; or the customer."""
    preview: erasing.Preview
    run: Run | None = None
    conversation: Conversation | None = None
    """The run or conversation, if this person may see what it is called."""

    @property
    def reference(self) -> str:
        return Run(pk=UUID(self.subject)).reference if self.scope == Erasure.Scope.RUN else ""

    @property
    def digest(self) -> str:
        return sha256(canonical([self.scope, self.subject, self.preview.counts]))


def _shown(scope: str, subject: str, user: User) -> Shown:
    """Raises Refused if nothing has this name."""
    subject = subject.strip()
    if scope == Erasure.Scope.RUN:
        subject = str(erasing.run_named(subject))
    preview = erasing.preview(scope, subject)
    if scope == Erasure.Scope.RUN:
        run = auth.visible_runs(user).filter(pk=subject).first()
        return Shown(scope, subject, preview, run=run)
    if scope == Erasure.Scope.CONVERSATION:
        subject = str(UUID(subject))
        talk = auth.visible_conversations(user).select_related("agent").filter(pk=subject).first()
        return Shown(scope, subject, preview, conversation=talk)
    return Shown(scope, subject, preview)


@admin.register(Erasure)
class ErasureAdmin(ReadOnlyAdmin):
    about = "What was erased about people, by whom and why. Digests stay, so the ledger verifies as before."
    when_empty = "Nothing has been erased so far."
    change_list_template = "admin/erasures.html"
    list_display = ["scope", "reason", "asked_by", "asked_at", "done_at"]
    list_filter = ["scope"]
    list_select_related = ["asked_by"]
    fields = ["scope", "reason", "actor", "asked_at", "done_at", "counts"]

    def get_urls(self) -> list[Any]:
        erase, kept = (self.admin_site.admin_view(view) for view in (self.erase_view, self.retention_view))
        own = [path("erase/", erase, name="erase"), path("retention/", kept, name="retention")]
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        may = cast(User, request.user).has_perm(erasing.RIGHT)
        return super().changelist_view(request, {**(extra_context or {}), "may_erase": may})

    def retention_view(self, request: HttpRequest) -> HttpResponse:
        """What retention would take away now. Looking at it takes nothing."""
        if not self.has_view_permission(request):
            raise PermissionDenied("This needs the right to see erasures.")
        due = {each.kind: each for each in retention.preview()}
        kinds = [
            {"title": title, "setting": f"RETENTION_{kind.upper()}_DAYS", "due": due.get(kind)}
            for kind, title in _KEPT.items()
        ]
        context = {"title": "What retention takes away", "kinds": kinds, "opts": self.opts}
        return TemplateResponse(request, "admin/retention.html", {**self.admin_site.each_context(request), **context})

    def erase_view(self, request: HttpRequest) -> HttpResponse:
        """Show what would go, and erase it once the person has seen exactly that."""
        user = cast(User, request.user)
        if not user.has_perm(erasing.RIGHT):
            raise PermissionDenied("This needs the right to erase what runs and conversations hold.")
        form = ErasureForm(
            request.POST or None, initial={"scope": request.GET.get("scope"), "subject": request.GET.get("subject")}
        )
        shown = None
        if request.method == "POST" and form.is_valid():
            said = form.cleaned_data
            try:
                shown = _shown(said["scope"], said["subject"], user)
                if said["seen"] == shown.digest:
                    erasing.erase(shown.scope, shown.subject, said["reason"], user, ledger.actor_of(user))
                    messages.success(request, "It has been erased.")
                    return redirect("admin:agentapp_erasure_changelist")
                form = ErasureForm({**said, "seen": shown.digest})
            except Refused as refused:
                form.add_error(refused.field if refused.field in form.fields else None, refused.message)
        preview = shown.preview if shown is not None else None
        about = {"form": form, "shown": shown, "preview": preview, "opts": self.opts}
        context = {"title": "Erase what is kept about people", **about}
        return TemplateResponse(request, "admin/erase.html", {**self.admin_site.each_context(request), **context})
