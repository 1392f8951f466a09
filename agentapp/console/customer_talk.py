"""A customer's page: their conversation with an agent, by a link, without an account.

It shows what `customer_view` gives and nothing else. Staff who are signed in see no more, but may do less: the person
who made the link or asked for the run cannot answer for the customer.
"""

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from agentapp import actions, customer_links, customer_view, customers
from agentapp.customers import Access
from agentapp.models import CustomerLink, Run
from approvals.digest import storable
from approvals.models import Approval

# What a customer reads where the sentence for staff would not help.
_WORDS = {
    "forbidden": customers.NOBODY_ANSWERS,
    "erased": "What was said here has been erased, so you cannot go on here. Please get in touch with us again.",
    "not_found": "This question is no longer open. Nothing was done.",
    "changed": "This question has changed meanwhile. Look at it again, then answer.",
    "action_changed": "This question has changed meanwhile. Look at it again, then answer.",
    "expired": "Time ran out before your answer. Nothing was done.",
    "already_decided": "This question has been answered or taken back already.",
    "superseded": "This question has been asked again. Look at it again, then answer.",
    "decision_id_reused": "This question has been answered or taken back already.",
    "idempotency_key_reused": "You have already sent another message from this page. Send this one again.",
    "nothing_said": "First write what it is about; then you can ask for a person.",
}

# Which team members opened a link in this browser. Outlives their session: signing out makes nobody a customer.
_OPENED_BY = "opened_by"

type View = Callable[..., HttpResponse]


def _for_customers(view: View) -> View:
    """A page that anybody with its address may open, so caches and search engines are kept away from it."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response.headers["X-Robots-Tag"] = "noindex, nofollow"
        return response

    return login_not_required(never_cache(answered))


@_for_customers
@require_http_methods(["GET", "HEAD", "POST"])
def talk(request: HttpRequest, signed: str) -> HttpResponse:
    """The conversation, or its live part. With a post, the customer says or answers something."""
    link = customer_links.find(signed)
    if link is None:
        return render(request, "console/customer_gone.html", {"unknown": True}, status=404)
    if not customer_links.is_live(link):
        return render(request, "console/customer_gone.html", {"link": link}, status=410)
    access = _access(link, _opened_by(request))
    refused: actions.Refused | None = None
    if request.method == "POST":
        try:
            _do(request, access)
            return _noted(redirect("customer_talk", signed), signed, access)
        except actions.Refused as raised:
            refused = raised
    return _noted(_page(request, signed, access, refused), signed, access)


@_for_customers
@require_safe
def no_stream(request: HttpRequest, signed: str) -> HttpResponse:
    """Reached only under a WSGI server. Under ASGI the stream answers before Django does."""
    return HttpResponse("The live stream needs an ASGI server.", status=503, content_type="text/plain")


def _access(link: CustomerLink, opened_by: list[User]) -> Access:
    via = f"link {link.pk.hex[-6:]}"
    return Access(link.conversation, link.made_by, via, link.token, link=link, opened_by=opened_by)


def _opened_by(request: HttpRequest) -> list[User]:
    """The team members who have opened this link in this browser, now or earlier."""
    noted = request.get_signed_cookie(_OPENED_BY, default="", salt=request.path) or ""
    keys = {int(key) for key in noted.split(",") if key}
    if request.user.is_authenticated:
        keys.add(request.user.pk)
    return list(User.objects.filter(pk__in=keys).order_by("pk")) if keys else []


def _noted(response: HttpResponse, signed: str, access: Access) -> HttpResponse:
    """Make the browser remember which team members have opened this link in it."""
    assert access.link is not None
    path = reverse("customer_talk", args=[signed])
    if access.opened_by:
        response.set_signed_cookie(
            _OPENED_BY,
            ",".join(str(user.pk) for user in access.opened_by),
            salt=path,
            path=path,
            expires=access.link.expires_at,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
    return response


def _do(request: HttpRequest, access: Access) -> None:
    """Do what was posted. Raises Refused."""
    post = request.POST
    if post.get("do") == "person":
        customers.ask_for_person(access)
    elif post.get("do") in ("yes", "no"):
        try:
            about, answer_id = uuid.UUID(post.get("about", "")), uuid.UUID(post.get("answer_id", ""))
            version = int(post.get("version", "")[:9])
        except ValueError as error:
            raise actions.Refused("not_found", "This answer does not come from this page.") from error
        answer = customers.Answer(answer_id, post["do"] == "yes", version, post.get("digest", ""))
        customers.confirm(access, about, answer)
    else:
        # Anybody can choose this key. With the link's own name it cannot repeat anybody else's.
        key = storable(f"{access.via} {post.get('request_key', '')}"[:100])
        customers.write(access, post.get("text", ""), key=key)


def _page(request: HttpRequest, signed: str, access: Access, refused: actions.Refused | None) -> HttpResponse:
    access.conversation.refresh_from_db()
    view = customer_view.of(access.conversation)
    context = {
        "view": view,
        "not_here": _not_here(access, view),
        "not_the_customer": customers.NOT_THE_CUSTOMER,
        "agent": access.conversation.agent.name,
        "signed": signed,
        "request_key": uuid.uuid4(),
        # One for each question: people may go back to the page and answer another question from it.
        "answer_id": uuid.uuid4,
        "refused": _WORDS.get(refused.code, refused.message) if refused else "",
        "text": request.POST.get("text", "") if refused else "",
        "max_chars": actions.MAX_INPUT_CHARS,
    }
    template = (
        "console/customer_talk.html#moving" if request.GET.get("part") == "moving" else "console/customer_talk.html"
    )
    return render(request, template, context, status=refused.status if refused else 200)


def _not_here(access: Access, view: customer_view.View) -> set[str]:
    """The questions that cannot be answered in this browser."""
    if not access.opened_by or not view.asked:
        return set()
    asking = Approval.objects.filter(pk__in=[one.id for one in view.asked]).values_list("pk", "run_id")
    runs = Run.objects.only("starter", "takers").in_bulk({run_id for _, run_id in asking})
    return {str(key) for key, run_id in asking if not customers.may_answer(access, runs[run_id])}
