"""Lending the right to decide: to whom, when, and about what; and what others have lent."""

import uuid
from http import HTTPStatus

from django import forms
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from agentapp.console.settings.sections import DELEGATION, page, saved
from agentapp.console.settings.span import SpanForm
from agentapp.console.shell import signed_in
from agentapp.models import Tool
from approvals import delegations
from approvals.digest import storable
from approvals.models import Delegation, Risk

_RISKS = [(risk.value, f"{risk.label} and below" if risk != Risk.LOW else "Low only") for risk in delegations.RISKS]


class DelegationForm(SpanForm):
    deputy = forms.ModelChoiceField(User.objects.none(), error_messages={"required": "Say who decides for you."})
    groups = forms.ModelMultipleChoiceField(
        Group.objects.none(), error_messages={"required": "Choose at least one of your groups."}
    )
    tools = forms.CharField(required=False, max_length=4000)
    highest_risk = forms.ChoiceField(choices=_RISKS, initial=Risk.HIGH)

    def __init__(self, user: User, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        self.fields["deputy"].queryset = delegations.deputies(user)  # type: ignore[attr-defined]
        self.fields["groups"].queryset = user.groups.order_by("name")  # type: ignore[attr-defined]

    def clean_tools(self) -> tuple[str, ...]:
        """Tool names, however separated. An unknown name is refused: it would silently lend nothing."""
        names = tuple(dict.fromkeys(storable(self.cleaned_data["tools"]).replace(",", " ").split()))
        known = set(Tool.objects.filter(name__in=names).values_list("name", flat=True)) if names else set()
        if unknown := [name for name in names if name not in known]:
            raise forms.ValidationError(f"There is no tool named {unknown[0]}.")
        return names


@require_http_methods(["GET", "HEAD", "POST"])
def delegation(request: HttpRequest) -> HttpResponse:
    user, refused = signed_in(request), None
    form = DelegationForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        scope = delegations.Scope([group.pk for group in data["groups"]], data["tools"], data["highest_risk"])
        begun = delegations.begin(user, data["deputy"], data["since"], data["until"], scope)
        if isinstance(begun, Delegation):
            return saved(request, DELEGATION)
        refused = begun
    wrong = refused is not None or bool(form.errors)
    context = _context(user, form) | {"refused": refused}
    return page(request, DELEGATION, context, HTTPStatus.UNPROCESSABLE_ENTITY if wrong else HTTPStatus.OK)


@require_POST
def end(request: HttpRequest, delegation_id: uuid.UUID) -> HttpResponse:
    ended = delegations.end(delegation_id, signed_in(request))
    return saved(request, DELEGATION, "Taken back" if ended else "It had already ended")


def _context(user: User, form: DelegationForm) -> dict[str, object]:
    chosen = [str(value) for value in form["groups"].value() or []]
    groups = list(user.groups.order_by("name"))
    return {
        "form": form,
        "lent_by_me": list(delegations.lent_by(user)),
        "lent_to_me": list(delegations.lent_to(user)),
        "deputies": list(delegations.deputies(user)),
        # All groups at first: people who go away hand everything on.
        "groups": [(group, not form.is_bound or str(group.pk) in chosen) for group in groups],
        "risks": _RISKS,
        "longest": delegations.LONGEST.days,
        "now": timezone.now(),
        "decides": user.has_perm("approvals.decide_approval"),
    }
