"""Searches words in the ledger's events, in the titles of requests and in what people wrote about them.

What people wrote is not in the ledger: the rows hold it, and lead to the events that record it. PostgreSQL has an index
for each; SQLite looks at every row.

The expressions must match those of the indexes to the letter; otherwise the database would read every row.
"""

import re
import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import BooleanField, Case, F, Func, Model, Q, QuerySet, Value, When
from django.db.models.functions import Lower, StrIndex
from django.db.models.lookups import GreaterThan

from approvals.digest import canonical
from approvals.models import Approval, Claim, Comment, Decision, Event, Judgement, Question

_WORD = re.compile(r"[^\W_]+")

# Written by the thousand, without anybody's words: their texts are not searched.
SILENT = (
    "run.claimed", "run.released", "run.waiting", "run.succeeded", "step.recorded", "tool_call.proposed",
    "tool_call.started", "tool_call.completed", "approval.used",
)  # fmt: skip


class _Body(Func):
    # A line end is two characters in the text, and the second must not become part of the next word.
    template = "to_tsvector('simple', replace(replace(left(%(expressions)s, 100000), '\\n', ' '), '\\r', ' '))"


class _BodyAlone(_Body):
    # The same text, written so that no index matches: for looking at one event after the other.
    template = "to_tsvector('simple', replace(replace(left(%(expressions)s, 100001), '\\n', ' '), '\\r', ' '))"


class _Texts(Func):
    template = "to_tsvector('simple', %(expressions)s)"
    arg_joiner = " || ' ' || "


class _Phrase(Func):
    template = "phraseto_tsquery('simple', %(expressions)s)"


class _Words(Func):
    template = "plainto_tsquery('simple', %(expressions)s)"


class _Matches(Func):
    template = "(%(expressions)s)"
    arg_joiner = " @@ "
    output_field = BooleanField()


def by_words() -> bool:
    """Whether search finds whole words, through an index. If not, it finds parts of a text, and letters beyond ASCII
    only as typed.
    """
    return connection.vendor == "postgresql"


def event_says(text: str, most: int) -> Q:
    """Events with this in their own text, except types that contain no words.

    If up to `most` events contain its words, their keys are looked up through the index. If there are more, the next
    match is never far away: each event is checked, first for its letters, which is cheap, and only then for its words.
    """
    if not by_words():
        return ~Q(type__in=SILENT) & Q(body__icontains=canonical(text)[1:-1])
    parts = _WORD.findall(text)
    if not parts:
        return Q(pk__in=[])
    keys = _keys(text, most)
    phrase = _Matches(_BodyAlone(F("body")), _Phrase(Value(text)))
    if len(keys) <= most:
        return Q(pk__in=keys) & Q(phrase) if len(parts) > 1 else Q(pk__in=keys)
    letters = Q()
    for part in parts:
        letters &= Q(GreaterThan(StrIndex(Lower("body"), Value(part.lower())), 0))
    # As a CASE it is evaluated in this order, and the planner does not assume that it is rare.
    return ~Q(type__in=SILENT) & Q(Case(When(letters, then=phrase), default=False, output_field=BooleanField()))


def title_says(text: str) -> Q:
    """Requests with this in their titles."""
    return _says(text, "title", "final_title")


@dataclass(frozen=True)
class Written:
    """One kind of text that people write about a request: where it is kept, and its event types."""

    rows: type[Model]
    texts: tuple[str, ...]
    told_by: tuple[str, ...]

    def saying(self, text: str) -> QuerySet[Any]:
        """The rows that say this."""
        return self.rows._default_manager.filter(_says(text, *self.texts)).order_by()


WRITTEN = (
    Written(Decision, ("message",), (*(f"approval.{state}" for state in Approval.DECIDED), "approval.changed")),
    Written(Question, ("text", "answer"), ("approval.asked", "approval.answered")),
    Written(Comment, ("text",), ("approval.commented",)),
    Written(Judgement, ("reason",), ("approval.judged",)),
    Written(Claim, ("note",), ("approval.handed_over",)),
)


def _says(text: str, *names: str) -> Q:
    """Rows whose texts in these columns say this, combined as the index has them."""
    if by_words():
        return Q(_Matches(_Texts(*map(F, names)), _Phrase(Value(text))))
    condition = Q()
    for name in names:
        condition |= Q(**{f"{name}__icontains": text})
    return condition


def _keys(text: str, most: int) -> list[uuid.UUID]:
    """The keys of events with these words, in any order; one more than `most` if there are more."""
    said = Event.objects.filter(~Q(type__in=SILENT), _Matches(_Body(F("body")), _Words(Value(text))))
    with transaction.atomic(), connection.cursor() as cursor:
        # With so few wanted, the planner would rather read the table and split each row into words.
        cursor.execute("SET LOCAL enable_seqscan = off")
        keys = list(said.order_by().values_list("pk", flat=True)[: most + 1])
        cursor.execute("SET LOCAL enable_seqscan = on")
    return keys
