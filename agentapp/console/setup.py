"""The page of an empty installation: the person with the server's token becomes its first administrator."""

from http import HTTPStatus
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import record_authentication
from django import forms
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import BaseUserCreationForm
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from agentapp import first_admin
from agentapp.refused import Refused


class FirstAdminForm(BaseUserCreationForm[User]):
    """The first administrator's account."""

    email = forms.EmailField(required=False)

    class Meta:
        model = User
        fields = ["username", "first_name", "last_name", "email"]


@login_not_required
@never_cache
@sensitive_post_parameters("token", "password1", "password2")
@require_http_methods(["GET", "HEAD", "POST"])
def setup(request: HttpRequest) -> HttpResponse:
    """This page exists only until there is an account."""
    if not first_admin.is_needed():
        raise Http404("This installation has been set up.")
    token = (request.POST if request.method == "POST" else request.GET).get("token", "")
    if not first_admin.is_valid(token):
        return _page(request, {"given": bool(token)}, HTTPStatus.FORBIDDEN)
    form = FirstAdminForm(request.POST if request.method == "POST" else None)
    if request.method != "POST" or not form.is_valid():
        status = HTTPStatus.UNPROCESSABLE_ENTITY if request.method == "POST" else HTTPStatus.OK
        return _page(request, {"token": token, "form": form}, status)
    try:
        user = first_admin.make(token, form.save(commit=False), form.cleaned_data["password1"])
    except Refused:
        return _page(request, {"given": True}, HTTPStatus.FORBIDDEN)
    record_authentication(request, user, "password")
    get_adapter().login(request, user)
    return redirect("home")


def _page(request: HttpRequest, context: dict[str, Any], status: HTTPStatus) -> HttpResponse:
    return render(request, "console/setup.html", context, status=status)
