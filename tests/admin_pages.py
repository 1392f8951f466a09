"""Fill in and send admin forms as a browser would: everything the page shows, with some fields changed."""

import time
from typing import Any

from allauth.account.internal.flows import login
from django.db.models import Model
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from approvals import ledger
from approvals.models import Event


def address(model: type[Model], page: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def renew(client: Client, ago: float = 0) -> None:
    """Let a signed-in person confirm who they are, with their password."""
    session = client.session
    record = {"method": "password", "at": time.time() - ago, "reauthenticated": True}
    session[login.AUTHENTICATION_METHODS_SESSION_KEY] = [record]
    session[login._AUTHENTICATION_METHODS_USER_SESSION_KEY] = session["_auth_user_id"]
    session.save()


def submit(client: Client, url: str, /, **fields: Any) -> HttpResponse:
    """Get a form, change `fields` in it and post it. None removes a field."""
    page = client.get(url)
    assert page.status_code == 200, page
    data = {**shown_in(page), **fields}
    return client.post(url, {name: value for name, value in data.items() if value is not None})


def save(client: Client, url: str, /, **fields: Any) -> HttpResponse:
    """Submit a form that must be accepted."""
    response = submit(client, url, **fields)
    assert response.status_code == 302, response.context["errors"]
    return response


def errors_of(response: HttpResponse) -> str:
    assert response.status_code == 200, "the form was taken"
    return str(response.context["errors"])


def shown_in(page: Any) -> dict[str, Any]:
    forms = [page.context["adminform"].form]
    for inline in page.context["inline_admin_formsets"]:
        forms += [inline.formset.management_form, *inline.formset.forms]
    data = {}
    for form in forms:
        for bound in form:
            value = bound.value()
            if value is True:
                data[bound.html_name] = "on"
            elif value is not False and value is not None:
                data[bound.html_name] = [getattr(v, "pk", v) for v in value] if isinstance(value, list) else value
    return data


def configuration_events(after: int = 0) -> list[Event]:
    return list(Event.objects.filter(chain=ledger.CONFIGURATION, seq__gt=after).order_by("seq"))
