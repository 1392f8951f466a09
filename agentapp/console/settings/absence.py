"""While somebody is away: who looks after their queue, and from when to when."""

from datetime import datetime
from http import HTTPStatus

from django import forms
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from agentapp.console.settings.sections import ABSENCE, page, saved
from agentapp.console.shell import signed_in
from approvals import absences
from approvals.standing import Refusal

_LOCAL = "%Y-%m-%dT%H:%M"


class AbsenceForm(forms.Form):
    deputy = forms.ModelChoiceField(User.objects.none(), error_messages={"required": "Say who looks after your queue."})
    since = forms.DateTimeField(input_formats=[_LOCAL], required=False)
    until = forms.DateTimeField(input_formats=[_LOCAL], error_messages={"required": "Say until when."})

    def __init__(self, user: User, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        self.fields["deputy"].queryset = absences.deputies(user)  # type: ignore[attr-defined]

    def clean_since(self) -> datetime:
        """Left empty it begins now, and it never began before."""
        now = timezone.now()
        return max(self.cleaned_data["since"] or now, now)

    def clean_until(self) -> datetime:
        until: datetime = self.cleaned_data["until"]
        if until <= timezone.now():
            raise forms.ValidationError("That moment has passed.")
        return until


@require_http_methods(["GET", "HEAD", "POST"])
def absence(request: HttpRequest) -> HttpResponse:
    user, refused = signed_in(request), None
    form = AbsenceForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        begun = absences.begin(user, data["deputy"], data["since"], data["until"])
        if not isinstance(begun, Refusal):
            return saved(request, ABSENCE)
        refused = begun
    context = {
        "form": form,
        "away": absences.of(user),
        "deputies": absences.deputies(user),
        "now": timezone.now(),
        "refused": refused,
        "decides": user.has_perm("approvals.decide_approval"),
    }
    wrong = refused is not None or bool(form.errors)
    return page(request, ABSENCE, context, HTTPStatus.UNPROCESSABLE_ENTITY if wrong else HTTPStatus.OK)


@require_POST
def end(request: HttpRequest) -> HttpResponse:
    ended = absences.end(signed_in(request))
    return saved(request, ABSENCE, "You are back since" if ended else "You were not away")
