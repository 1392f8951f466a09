"""Whether what a request says that people approved is what the ledger says. Reads only.

Whoever can write to the database can change a request, its decisions, and all digests in these rows together. In the
ledger, what people approved stands as it was.
"""

import uuid
from collections.abc import Sequence

from django.db.models import BooleanField, Exists, Expression, ExpressionWrapper, OuterRef, Q, TextField, Value
from django.db.models.functions import Cast, Concat, Replace, StrIndex
from django.db.models.lookups import GreaterThan, IsNull

from approvals.cards import final_digest
from approvals.models import Approval, Event
from approvals.proof.chains import Break
from approvals.proof.columns import run_chain

_APPROVED, _USED, _UNDONE = "approval.approved", "approval.used", "approval.undone"
# What a request in each of these states has been through.
_SAID = {Approval.State.APPROVED: (_APPROVED,), Approval.State.USED: (_APPROVED, _USED)}
_READ = (
    "tool", "tool_version", "final_arguments_text", "run_id", "execution_id", "plan_text", "salt", "state",
    "final_digest", "erased_at",
)  # fmt: skip


def of_decision() -> Expression:
    """Of a decision that approves: whether the ledger has it as its row is, and not that it was taken back."""
    about = Event.objects.filter(_member("decision", OuterRef("pk")), approval_id=OuterRef("approval_id"))
    by = Concat(Value("user:"), Cast(OuterRef("user_id"), TextField()), output_field=TextField())
    made = about.filter(
        Q(actor_key=by) | Q(IsNull(OuterRef("user_id"), True)),
        _member("action_digest", OuterRef("action_digest")),
        _member("type", OuterRef("type")),
        type__in=(_APPROVED, "approval.changed"),
    )
    undone = about.filter(type=_UNDONE)
    return ExpressionWrapper(Q(Exists(made), ~Exists(undone)), BooleanField())


def compare(after: uuid.UUID | None, most: int) -> tuple[uuid.UUID | None, Break | None]:
    """Compare the next requests after one with what the ledger says of them, if people approved them.

    Returns the last of them, or None if there are no more; and the first that differs.
    """
    rows = Approval.objects.filter(state__in=_SAID, **({"pk__gt": after} if after else {}))
    page = list(rows.only(*_READ).order_by("pk")[:most])
    said = told_of("approval_id", [row.pk for row in page], (_APPROVED, _USED))
    differing = (_difference(row, said.get(row.pk, [])) for row in page)
    return (page[-1].pk if len(page) == most else None), next((each for each in differing if each), None)


def told_of(column: str, keys: Sequence[uuid.UUID], types: Sequence[str]) -> dict[uuid.UUID, list[Event]]:
    """The events of these types about some rows, by row: the first first, with chain, place and text."""
    found: dict[uuid.UUID, list[Event]] = {}
    events = Event.objects.filter(**{f"{column}__in": keys}, type__in=types)
    for event in events.only(column, "chain", "seq", "type", "body").order_by("seq"):
        found.setdefault(getattr(event, column), []).append(event)
    return found


def _member(name: str, value: OuterRef) -> "GreaterThan[int]":
    """Whether the text of an event has this member. The two databases write keys differently, so hyphens are left out,
    of which digests and types have none.
    """
    text = Replace(Cast(value, TextField()), Value("-"), Value(""), output_field=TextField())
    member = Concat(Value(f'"{name}":"'), text, Value('"'), output_field=TextField())
    return GreaterThan(StrIndex(Replace("body", Value("-"), Value("")), member), Value(0))


def _difference(row: Approval, said: Sequence[Event]) -> Break | None:
    chain, named = run_chain(row.run_id), f'"action_digest":"{row.final_digest}"'
    told = {event.type for event in said if event.chain == chain and named in event.body}
    is_its_own = row.erased_at is not None or row.final_digest == final_digest(row)
    if is_its_own and told.issuperset(_SAID[Approval.State(row.state)]):
        return None
    if not said:
        return Break(chain, 1, f"no event says that people approved {row.reference}, and its row does")
    return Break(chain, said[0].seq, f"what people approved here is not what the row of {row.reference} says")
