"""The only writer of Comment: what people say to each other about a request. It is never changed and never deleted.

Comments are for people alone: no model reads anything made from them, and no decision depends on them. The caller holds
the lock on the run's row and is inside `ledger.transaction()`.
"""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models import Count, Q, Window

from approvals import approval_events, entitlement, ledger, people
from approvals.clock import Now
from approvals.detectors import without_secrets
from approvals.digest import MalformedJSON, as_typed, parse
from approvals.masking import blotted, secret_texts
from approvals.models import Approval, Comment
from approvals.sealed import ERASED, GONE, sealed
from approvals.standing import Refusal

MAX_CHARS = 2000
# By one person about one request: mentions send mail.
MAX_PER_MINUTE = 20
MAX_PER_PERSON = 200
# A page shows this many, the latest.
SHOWN = 50
# With more names than this, a mention tells nobody.
MAX_MENTIONS = 20
# Usernames as written. Punctuation that ends a sentence is not part of one.
_NAMED = re.compile(r"(?<![\w@.+-])@(\w(?:[\w.@+-]*\w)?)")


@dataclass(frozen=True)
class Posted:
    """A comment, whom it tells, and which of those it mentions could not be told."""

    comment: Comment
    told: Sequence[str]
    untold: Sequence[str]


@dataclass(frozen=True)
class Said:
    """The latest comments, newest last, and how many came before them."""

    comments: Sequence[Comment]
    earlier: int = 0


def post(approval: Approval, author: User, text: str) -> Posted | Refusal:
    """Keep what somebody says about a request, and tell those they mention who may see it. Nothing can be said about an
    erased request: nobody would erase that.
    """
    if approval.erased_at is not None:
        return Refusal("erased", "This request was erased, so it takes no more comments.")
    words = without_secrets_of(approval, as_typed(text))
    if not words:
        return Refusal("message_required", "Write something first.")
    if len(words) > MAX_CHARS:
        return Refusal("too_long", f"A comment can have at most {MAX_CHARS} characters.")
    if too_many := _too_many(approval, author):
        return Refusal("too_many_comments", too_many)
    comment = Comment.objects.create(approval=approval, author=author, text=words, at=Now())
    named = mentioned(words)
    found = User.objects.filter(username__in=named, is_active=True).order_by("username") if named else ()
    seeing = [user for user in found if entitlement.visible(user).filter(pk=approval.pk).exists()]
    told = [user for user in seeing if user != author]
    people.tell_of_mention(comment, [user.pk for user in told])
    names = [ledger.Named(user.get_username()) for user in told]
    data = {"comment": str(comment.pk), "text": sealed(words, comment.salt), "mentions": names}
    approval_events.record(approval, "commented", data, ledger.actor_of(author))
    known = {user.get_username() for user in seeing}
    return Posted(
        comment,
        [user.get_full_name() or user.get_username() for user in told],
        [name for name in named if name not in known],
    )


def of(approval: Approval, most: int | None = SHOWN) -> Said:
    """What was said about a request. `most`: at most this many of the latest. One query."""
    found = approval.comments.select_related("author").annotate(in_all=Window(Count("pk"))).order_by("-at", "-id")
    rows = list(found[:most])
    return Said(rows[::-1], rows[0].in_all - len(rows)) if rows else Said([])


def _too_many(approval: Approval, author: User) -> str:
    """Why somebody may not comment on a request, for now or at all. Empty: they may."""
    lately = Count("pk", filter=Q(at__gt=Now() - timedelta(minutes=1)))
    said = Comment.objects.filter(approval=approval, author=author).aggregate(in_all=Count("pk"), lately=lately)
    if said["in_all"] >= MAX_PER_PERSON:
        return f"You have written {MAX_PER_PERSON} comments on this request, which is the most for one person."
    if said["lately"] >= MAX_PER_MINUTE:
        return f"More than {MAX_PER_MINUTE} comments in a minute. Wait a moment, then send it again."
    return ""


def mentioned(text: str) -> list[str]:
    """The usernames that a text mentions as @name, each once."""
    return list(dict.fromkeys(_NAMED.findall(text)))[:MAX_MENTIONS]


def without_secrets_of(approval: Approval, text: str) -> str:
    """The text without the values of the request's secret arguments, as proposed and as they will run."""
    secrets: set[str] = set()
    for arguments in {approval.arguments_text, approval.final_arguments_text} - {""}:
        try:
            secrets |= secret_texts(parse(arguments), approval.secret_fields)
        except MalformedJSON:
            continue
    return without_secrets(blotted(text, secrets))


def erase(approval_ids: Sequence[uuid.UUID]) -> None:
    """Erase what people said to each other about some requests. The fact that they did stays."""
    Comment.objects.filter(approval__in=approval_ids).update(text=ERASED, salt=GONE)
