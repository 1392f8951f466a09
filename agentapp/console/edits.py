"""What people changed in a waiting call, or had the agent change, so that the next approver reads what they approve."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from agentapp.console.fields import Field
from agentapp.console.schema_form import SchemaForm
from approvals import remaining
from approvals.digest import parse
from approvals.entitlement import in_parts, in_whole
from approvals.masking import MASK, changed_secrets
from approvals.models import HIGH_RISKS, Approval, Decision, DecisionType, Question
from approvals.remaining import Remaining

MAX_NAMED = 4
MAX_CHARS = 80
ANOTHER = "another value"


@dataclass(frozen=True)
class Change:
    """One argument that somebody changed, named as in the form: what the agent proposed, and what waits now."""

    label: str
    was: str
    now: str


@dataclass(frozen=True)
class Edit:
    """Who changed a waiting call, and what they changed. `more`: how many changes are not named."""

    decision: Decision
    changes: list[Change]
    more: int


def of(approval: Approval, form: SchemaForm, given: Sequence[Decision]) -> Edit | None:
    """The change in a waiting request. `form` shows the call as it waits; None: nobody has changed it."""
    decision = next((each for each in reversed(given) if each.type == DecisionType.EDIT), None)
    if decision is None or not approval.is_edited:
        return None
    changed = [item for item in form.all_fields if item.was is not None and item.kind != "group"]
    named = [Change(item.label, _short(_was(item)), _short(item.words or "nothing")) for item in changed]
    named += [Change(label, MASK, ANOTHER) for label in _secrets(approval, form)]
    return Edit(decision, named[:MAX_NAMED], len(named[MAX_NAMED:]))


def hands(approval: Approval, questions: Sequence[Question], reader: User) -> list[str]:
    """Who influenced the waiting call without editing it, and so may not approve it: a sentence for each way.
    Needs no query if nobody did.
    """
    whole, parts = in_whole(approval), in_parts(approval)
    if approval.risk not in HIGH_RISKS or not whole | parts:
        return []
    people = User.objects.in_bulk(whole | parts)
    askers = whole & {question.asker_id for question in questions}

    def named(keys: Collection[int]) -> str:
        """As in "Ana, Bo and you"."""
        others = sorted(people[pk].get_full_name() or people[pk].get_username() for pk in keys if pk != reader.pk)
        names = [*others, *["you"] * (reader.pk in keys)]
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

    told = [
        ("Proposed again after {} asked.", askers),
        ("It had been changed by {} earlier.", whole - askers),
        ("It contains values that {} gave about an earlier call.", parts),
    ]
    return [words.format(named(keys)) for words, keys in told if keys]


def remaining_of(approval: Approval, changes: int, reader: User, lender: User | None) -> Remaining | None:
    """Who is left to approve a request, given its reader's changes. None: nobody has to stand back."""
    me = {reader.pk} | ({lender.pk} if lender is not None else set())
    return remaining.of(approval, me if changes else ())


def _secrets(approval: Approval, form: SchemaForm) -> list[str]:
    """The labels of secret arguments that somebody has put in, as in the form if it has them."""
    labels = {(each.name,): each.label for each in form.fixed} | {item.path: item.label for item in form.all_fields}
    was, now = parse(approval.arguments_text), parse(approval.final_arguments_text)
    return [labels.get(path, ".".join(path)) for path in changed_secrets(now, was, approval.secret_fields)]


def _was(item: Field) -> str:
    """What the agent proposed, worded as in the form."""
    was = item.was or "nothing"
    return f"{item.prefix}{was}" if was[:1].isdigit() and not was.startswith(item.prefix) else was


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
