"""The page of a customer: their conversation with an agent, by a link, without an account.

What it shows is `customer_view`'s and nothing else. Who is signed in here gets no more of it, but may get less: whoever
made the link or asked for the run answers nothing in the customer's place.
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

# What a customer reads where the sentence for staff would not help them.
_WORDS = {
    "forbidden": "This conversation cannot go on here. Please get in touch with us another way.",
    "unknown_agent": "This conversation cannot go on here. Please get in touch with us another way.",
    "erased": "What was said here is erased, and cannot be gone on with. Please get in touch with us anew.",
    "not_found": "This question is no longer open. Nothing was done.",
    "changed": "This question has changed meanwhile. Look at it again, then answer.",
    "action_changed": "This question has changed meanwhile. Look at it again, then answer.",
    "expired": "Time ran out before your answer. Nothing was done.",
    "already_decided": "This question has been answered or taken back already.",
    "superseded": "This question has been asked anew. Look at it again, then answer.",
    "decision_id_reused": "This question has been answered or taken back already.",
    "idempotency_key_reused": "This was sent from a page you had sent another message from. Send it again.",
    "nothing_said": "Write first what it is about; then you can ask for a person.",
}

# Who of the team has opened a link in this browser. It outlives their session: signing out makes nobody a customer.
_OPENED_BY = "opened_by"

type View = Callable[..., HttpResponse]


def _for_customers(view: View) -> View:
    """A page that anybody may open who has its address, which therefore goes nowhere else."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response.headers["X-Robots-Tag"] = "noindex, nofollow"
        return response

    return login_not_required(never_cache(answered))


@_for_customers
@require_http_methods(["GET", "HEAD", "POST"])
def talk(request: HttpRequest, signed: str) -> HttpResponse:
    """The conversation, or its part that moves. Posted, the customer says or answers something."""
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
    """Reached only behind a WSGI server: under ASGI the stream answers before Django does."""
    return HttpResponse("The live stream needs an ASGI server.", status=503, content_type="text/plain")


def _access(link: CustomerLink, opened_by: list[User]) -> Access:
    via = f"link {link.pk.hex[-6:]}"
    return Access(link.conversation, link.made_by, via, link.token, link=link, opened_by=opened_by)


def _opened_by(request: HttpRequest) -> list[User]:
    """Those of the team who have opened this link in this browser, now or before."""
    noted = request.get_signed_cookie(_OPENED_BY, default="", salt=request.path) or ""
    keys = {int(key) for key in noted.split(",") if key}
    if request.user.is_authenticated:
        keys.add(request.user.pk)
    return list(User.objects.filter(pk__in=keys).order_by("pk")) if keys else []


def _noted(response: HttpResponse, signed: str, access: Access) -> HttpResponse:
    """An answer by which the browser remembers who of the team has opened this link in it."""
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
    """What was posted. Raises Refused."""
    post = request.POST
    if post.get("do") == "person":
        customers.ask_for_person(access)
    elif post.get("do") in ("yes", "no"):
        try:
            about, answer_id = uuid.UUID(post.get("about", "")), uuid.UUID(post.get("answer_id", ""))
            version = int(post.get("version", "")[:9])
        except ValueError as error:
            raise actions.Refused("not_found", "This is no answer of this page.") from error
        answer = customers.Answer(answer_id, post["do"] == "yes", version, post.get("digest", ""))
        customers.confirm(access, about, answer)
    else:
        # A key is anybody's text here: under the link's own name it repeats nobody else's.
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
        # One for each question: the page may be gone back to, and another one answered from it.
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
    """Which of the questions are not answered in this browser."""
    if not access.opened_by or not view.asked:
        return set()
    asking = Approval.objects.filter(pk__in=[one.id for one in view.asked]).values_list("pk", "run_id")
    runs = Run.objects.only("starter", "takers").in_bulk({run_id for _, run_id in asking})
    return {str(key) for key, run_id in asking if not customers.may_answer(access, runs[run_id])}
