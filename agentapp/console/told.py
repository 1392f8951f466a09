"""Who was told of a comment: for the page its author is led to, and for parts of that page that are fetched again."""

import uuid

from django.http import HttpRequest

KEY = "told"


def keep(request: HttpRequest, approval_id: uuid.UUID, words: str) -> None:
    """Make the next page of a request say this."""
    request.session[KEY] = {"about": str(approval_id), "words": words, "shown": False}


def of(request: HttpRequest, approval_id: uuid.UUID) -> str:
    """What a request's page says about the comment that led to it. A page opened later says nothing."""
    kept = request.session.get(KEY)
    if kept is None or kept["about"] != str(approval_id):
        return ""
    if request.method == "GET" and not request.htmx:  # type: ignore[attr-defined]
        if kept["shown"]:
            del request.session[KEY]
            return ""
        request.session[KEY] = kept | {"shown": True}
    words: str = kept["words"]
    return words
