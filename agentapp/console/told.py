"""Whom a comment was told, for the page that its author is led to and for the parts of it that are fetched again."""

import uuid

from django.http import HttpRequest

KEY = "told"


def keep(request: HttpRequest, approval_id: uuid.UUID, words: str) -> None:
    """Have the next page of a request say this."""
    request.session[KEY] = {"about": str(approval_id), "words": words, "shown": False}


def of(request: HttpRequest, approval_id: uuid.UUID) -> str:
    """What the page of a request says of the comment that led to it. A page that is opened later says nothing."""
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
