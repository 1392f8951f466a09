"""Whether what a request says that people approved is what the ledger says. Reads only.

Whoever can write to the database can change a request, its decisions, and all digests in these rows together. In the
ledger, what people approved stands as it was.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import BooleanField, Exists, ExpressionWrapper, Model, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat, Replace, StrIndex
from django.db.models.lookups import Exact, GreaterThan, IsNull

from approvals.cards import final_digest
from approvals.models import Approval, Event
from approvals.proof.chains import Break
from approvals.proof.columns import run_chain

_APPROVED, _USED = "approval.approved", "approval.used"
_DECIDED = (_APPROVED, "approval.rejected", "approval.responded", "approval.changed")
_UNDONE = "approval.undone"
_ENDED = ("approval.expired", "approval.superseded", "approval.withdrawn")
# What a request in each of these states has been through.
_SAID: dict[str, set[str]] = {Approval.State.APPROVED: {_APPROVED}, Approval.State.USED: {_APPROVED, _USED}}
_READ = (
    "tool", "tool_version", "final_arguments_text", "run_id", "execution_id", "plan_text", "salt", "state",
    "final_digest", "erased_at",
)  # fmt: skip
_ERASED_TEXTS = ("", "{}")

type Compared = tuple[uuid.UUID | None, Break | None]


def of_decision() -> dict[str, Any]:
    """What the ledger says of a decision that approves, and of its request, to be read with it.

    `is_recorded`: it has the decision as the row does, by whom, of what and how sure, and not that it was taken back or
    set aside. `was_used`, `was_ended`: it has that the request was used, or ended without.
    """
    about = Event.objects.filter(approval_id=OuterRef("approval_id"))
    by = Concat(Value("user:"), Cast(OuterRef("user_id"), TextField()), output_field=TextField())
    by_person = Q(IsNull(OuterRef("user_id"), False), actor_key=by)
    made = about.filter(
        by_person | Q(IsNull(OuterRef("user_id"), True)) & ~Q(actor_key__startswith="user:"),
        Q(_member("assurance", OuterRef("assurance"))) | Q(Exact(OuterRef("assurance"), Value(""))),
        _member("decision", OuterRef("pk")),
        _member("action_digest", OuterRef("action_digest")),
        _member("type", OuterRef("type")),
        type__in=_DECIDED,
    )
    listed = Q(_text("[", OuterRef("pk"))) | Q(_text(",", OuterRef("pk")))
    gone = about.filter(Q(_member("decision", OuterRef("pk")), type=_UNDONE) | listed, type__in=(_UNDONE, *_DECIDED))
    return {
        "is_recorded": ExpressionWrapper(Q(Exists(made), ~Exists(gone)), BooleanField()),
        "was_used": Exists(about.filter(type=_USED)),
        "was_ended": Exists(about.filter(type__in=_ENDED)),
    }


def was_used() -> Exists:
    """A condition on requests: the ledger has that this one was used, with the digest in its row."""
    used = Event.objects.filter(approval_id=OuterRef("pk"), type=_USED)
    return Exists(used.filter(_member("action_digest", OuterRef("final_digest"))))


def compare(after: uuid.UUID | None, most: int) -> Compared:
    """Compare the next requests after one with what the ledger says of them."""
    rows = Approval.objects.only(*_READ)
    return with_events(rows, after, most, "approval_id", (_APPROVED, _USED), _difference)


def with_events[M: Model](
    rows: QuerySet[M],
    after: uuid.UUID | None,
    most: int,
    column: str,
    types: Sequence[str],
    difference: Callable[[M, Sequence[Event]], Break | None],
) -> Compared:
    """Compare the next rows after a key with the events of these types that name each in this column, the first first.

    Returns the last key, or None if there are no more; and the first difference.
    """
    page = list((rows.filter(pk__gt=after) if after else rows).order_by("pk")[:most])
    said: dict[uuid.UUID, list[Event]] = {}
    events = Event.objects.filter(**{f"{column}__in": [row.pk for row in page]}, type__in=types)
    for event in events.only(column, "chain", "seq", "type", "body").order_by("seq"):
        said.setdefault(getattr(event, column), []).append(event)
    differing = (difference(row, said.get(row.pk, [])) for row in page)
    return (page[-1].pk if len(page) == most else None), next((each for each in differing if each), None)


def _member(name: str, value: OuterRef) -> "GreaterThan[int]":
    """Whether the text of an event has this member."""
    return _text(f'"{name}":', value)


def _text(before: str, value: OuterRef) -> "GreaterThan[int]":
    """Whether the text of an event has this value as a JSON text, after something else. The two databases write keys
    differently, so hyphens are left out; digests and types have none.
    """
    text = Replace(Cast(value, TextField()), Value("-"), Value(""), output_field=TextField())
    wanted = Concat(Value(f'{before}"'), text, Value('"'), output_field=TextField())
    return GreaterThan(StrIndex(Replace("body", Value("-"), Value("")), wanted), Value(0))


def _difference(row: Approval, said: Sequence[Event]) -> Break | None:
    chain, named = run_chain(row.run_id), f'"action_digest":"{row.final_digest}"'
    told = {event.type for event in said if event.chain == chain and named in event.body}
    # What was used was used, whatever its row says now.
    is_missed = row.state != Approval.State.USED and any(event.type == _USED for event in said)
    if _SAID.get(row.state, set()) <= told and _is_its_own(row) and not is_missed:
        return None
    if not said:
        return Break(chain, 1, f"no event says that people approved {row.reference}, and its row does")
    return Break(chain, said[0].seq, f"what people approved here is not what the row of {row.reference} says")


def _is_its_own(row: Approval) -> bool:
    """Whether the digest is that of the call in the row, if people approved it and its words were not erased."""
    is_erased = row.erased_at is not None and row.final_arguments_text in _ERASED_TEXTS
    return row.state not in _SAID or is_erased or row.final_digest == final_digest(row)
