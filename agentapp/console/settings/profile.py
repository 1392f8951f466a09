"""Who somebody is: their name, their address, and their team, which administrators set."""

from functools import partial
from http import HTTPStatus

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from agentapp import account_changes
from agentapp.console.settings.sections import PROFILE, page, saved
from agentapp.console.shell import signed_in
from agentapp.renewed import renewal_required
from approvals import configuration, ledger


class ProfileForm(forms.ModelForm):
    """An address belongs to one account: single sign-on providers find people by it."""

    email = forms.EmailField(required=False)

    class Meta:
        model = User
        fields = ["first_name", "last_name", "email"]

    def clean_email(self) -> str:
        address: str = self.cleaned_data["email"]
        if settings.OIDC_PROVIDERS:
            return self.instance.email
        if address and User.objects.filter(~Q(pk=self.instance.pk), email__iexact=address).exists():
            raise forms.ValidationError("Another account has this address.")
        return address


def _changes_address(request: HttpRequest) -> bool:
    posted = request.POST.get("email", "").strip()
    return request.method == "POST" and not settings.OIDC_PROVIDERS and posted != signed_in(request).email


# Password reset links go to this address, so an open screen must not be enough to change it.
@require_http_methods(["GET", "HEAD", "POST"])
@partial(renewal_required, when=_changes_address)
def profile(request: HttpRequest) -> HttpResponse:
    # Use a copy, so that a refused form does not change the person shown in the page's frame.
    user = User.objects.get(pk=signed_in(request).pk)
    form = ProfileForm(request.POST if request.method == "POST" else None, instance=user)
    if request.method == "POST" and form.is_valid():
        with ledger.transaction():
            configuration.save(form.save(commit=False), ledger.actor_of(user))
            if "email" in form.changed_data:
                account_changes.address_changed(user, form.initial["email"])
        return saved(request, PROFILE)
    context = {"form": form, "groups": list(user.groups.all()), "address_is_set": bool(settings.OIDC_PROVIDERS)}
    return page(request, PROFILE, context, HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK)
