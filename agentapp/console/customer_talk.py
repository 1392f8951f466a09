"""The page of a customer: their conversation with an agent, by a link, without an account.

What it shows is `customer_view`'s and nothing else, and who is signed in here counts for nothing.
"""

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from agentapp import actions, customer_links, customer_view, customers
from agentapp.customers import Access
from agentapp.models import CustomerLink
from approvals.digest import storable

_STATUS = {"not_found": 404, "forbidden": 403, "too_many_messages": 429, "invalid": 422, "nothing_said": 422}
# What a customer reads where the sentence for staff would not help them.
_WORDS = {
    "forbidden": "This conversation cannot go on here. Please get in touch with us another way.",
    "unknown_agent": "This conversation cannot go on here. Please get in touch with us another way.",
    "not_found": "This question is no longer open. Nothing was done.",
    "changed": "This question has changed meanwhile. Look at it again, then answer.",
    "action_changed": "This question has changed meanwhile. Look at it again, then answer.",
    "expired": "Time ran out before your answer. Nothing was done.",
    "already_decided": "This question has been answered or taken back already.",
    "nothing_said": "Write first what it is about; then you can ask for a person.",
}

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
    access = _access(link)
    refused: actions.Refused | None = None
    if request.method == "POST":
        try:
            _do(request, access)
            return redirect("customer_talk", signed)
        except actions.Refused as raised:
            refused = raised
    return _page(request, signed, access, refused)


@_for_customers
@require_safe
def no_stream(request: HttpRequest, signed: str) -> HttpResponse:
    """Reached only behind a WSGI server: under ASGI the stream answers before Django does."""
    return HttpResponse("The live stream needs an ASGI server.", status=503, content_type="text/plain")


def _access(link: CustomerLink) -> Access:
    return Access(link.conversation, link.made_by, f"link {link.pk.hex[-6:]}")


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
    context = {
        "view": customer_view.of(access.conversation),
        "agent": access.conversation.agent.name,
        "signed": signed,
        "request_key": uuid.uuid4(),
        "answer_id": uuid.uuid4(),
        "refused": _WORDS.get(refused.code, refused.message) if refused else "",
        "text": request.POST.get("text", "") if refused else "",
        "max_chars": actions.MAX_INPUT_CHARS,
    }
    template = (
        "console/customer_talk.html#moving" if request.GET.get("part") == "moving" else "console/customer_talk.html"
    )
    return render(request, template, context, status=_STATUS.get(refused.code, 409) if refused else 200)
