"""What a request rests on, numbered: what was said and looked up, what was answered, what the model claims."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from agentapp.console import typed_text
from agentapp.console.citations import Claim, claims_of
from agentapp.console.facts import Fact, facts_of
from approvals.models import Approval, Question

OUTSIDE, TOOL, GUIDE, CLAIM, PERSON, WAITS, NONE = "outside", "tool", "guide", "claim", "person", "waits", "none"


@dataclass(frozen=True)
class Item:
    """One numbered piece of evidence. `trust` says whose words they are, and so how to show them."""

    n: int
    title: str
    trust: str
    body: str = ""
    claims: Sequence[Claim] = ()
    step: int | None = None
    at: datetime | None = None
    took: float | None = None
    version: int | None = None
    person: User | None = None
    # If the body was deleted: its digest, and since when it is gone.
    digest: str = ""
    deleted_at: datetime | None = None

    @property
    def facts(self) -> list[Fact]:
        """The body as names and values if it is an object; empty if it is shown as it is."""
        return facts_of(self.body)


@dataclass(frozen=True)
class Evidence:
    """All evidence, and how many of the model's claims it does not support."""

    items: list[Item]
    explanation: list[Claim] = field(default_factory=list)

    @property
    def unsupported(self) -> int:
        return sum(claim.unsupported for claim in self.explanation)


def of(approval: Approval, questions: Sequence[Question] = ()) -> Evidence:
    """The evidence on the card, followed by what has been asked and answered since."""
    items = [_item(row) for row in approval.evidence]
    bodies = {item.n: item.body for item in items}
    first = max(bodies, default=0) + 1
    asked = enumerate(questions, start=first)
    items += [_answer(number, question, bodies) for number, question in asked]
    return Evidence(items, claims_of(approval.explanation, bodies))


def rule_values(approval: Approval) -> list[tuple[str, str]]:
    """What the rule that fired looked at, as (name, value) for people."""
    return [
        (str(row.get("name", "")), typed_text.inline(row["value"]) if "value" in row else "not given")
        for row in approval.rule_values
    ]


def _item(row: dict[str, Any]) -> Item:
    trust = GUIDE if row.get("kind") == "guideline" else OUTSIDE if row.get("trust") == "untrusted_content" else TOOL
    return Item(
        n=int(row.get("n", 0)),
        title=str(row.get("title", "")),
        trust=trust,
        body=str(row.get("body", "")),
        step=row.get("step"),
        at=_moment(row.get("at")),
        took=row.get("took"),
        version=row.get("version"),
        digest=row.get("sha256", "") if "body" not in row else "",
        deleted_at=_moment(row.get("deleted_at")),
    )


def _answer(number: int, question: Question, bodies: dict[int, str]) -> Item:
    trust = NONE if question.closed_at else WAITS
    if question.answer:
        trust = PERSON if question.answerer else CLAIM
    return Item(
        n=number,
        title=question.text,
        trust=trust,
        body=question.answer,
        claims=claims_of(question.answer, bodies) if trust == CLAIM else (),
        at=question.closed_at or question.asked_at,
        person=question.answerer or question.asker,
    )


def _moment(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
