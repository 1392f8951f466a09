"""While somebody is away: who looks after their queue, and when."""

from http import HTTPStatus

from django import forms
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from agentapp.console.settings.sections import ABSENCE, page, saved
from agentapp.console.settings.span import SpanForm
from agentapp.console.shell import signed_in
from approvals import absences
from approvals.standing import Refusal


class AbsenceForm(SpanForm):
    deputy = forms.ModelChoiceField(User.objects.none(), error_messages={"required": "Say who looks after your queue."})

    def __init__(self, user: User, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        self.fields["deputy"].queryset = absences.deputies(user)  # type: ignore[attr-defined]


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
