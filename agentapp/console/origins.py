"""Where each argument of a request came from, in words, next to the argument."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentapp import provenance
from agentapp.console.schema_form import SchemaForm
from approvals.models import Approval
from approvals.risk import HIGH_FROM, MEDIUM_FROM

# The worst first. Origins of common texts and of values the schema offers are not shown.
WORDS = {
    "outside": ("globe", "From outside"),
    "model": ("spark", "Made by the model"),
    "customer": ("msg", "From the customer"),
    "trusted": ("tools", "From our systems"),
    "staff": ("user", "From our team"),
    "default": ("book", "The tool’s default"),
}
MOST_NOTES = 3


@dataclass(frozen=True)
class Note:
    """One origin of a value. `n` is the number of the evidence that contains it, if the card shows that."""

    kind: str
    icon: str
    words: str
    source: str = ""
    step: int | None = None
    n: int | None = None
    part: str = ""
    quote: str = ""


def label(form: SchemaForm, approval: Approval, proposed: Mapping[str, Any]) -> list[str]:
    """Note next to each field where its values came from. Returns the fields that contain something from outside."""
    rows = approval.provenance
    if rows and form.arguments != proposed:
        rows = provenance.after_edit(rows, proposed, form.arguments)
    fields = {item.path: item for item in form.all_fields}
    fixed: dict[str, list[Mapping[str, Any]]] = {}
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        parts = tuple(str(part) for part in provenance.parts_of(str(row.get("path", ""))))
        nearest = next((parts[:length] for length in range(len(parts), 0, -1) if parts[:length] in fields), None)
        if nearest is not None:
            found.setdefault(nearest, []).append(row)
        elif parts:
            fixed.setdefault(parts[0], []).append(row)
    for path, of_field in found.items():
        fields[path].origins = _notes(of_field, approval)
    form.fixed = [each._replace(origins=_notes(fixed.get(each.name, ()), approval)) for each in form.fixed]
    named = [(item.label, item.origins) for item in form.all_fields]
    named += [(each.label, each.origins) for each in form.fixed]
    return [name for name, notes in named if any(note.kind == "outside" for note in notes)]


def _notes(rows: Iterable[Mapping[str, Any]], approval: Approval) -> list[Note]:
    """The worst first, without duplicates."""
    notes = {_note(row, approval) for row in rows if row.get("origin") in WORDS}
    worst = list(WORDS)
    ordered = sorted(notes, key=lambda note: (worst.index(note.kind), note.step or 0, note.source, note.part))
    return ordered[:MOST_NOTES]


def _note(row: Mapping[str, Any], approval: Approval) -> Note:
    kind = str(row["origin"])
    icon, words = WORDS[kind]
    return Note(
        kind,
        icon,
        words,
        source=str(row.get("source", "")),
        step=row.get("step"),
        n=_evidence(row, approval),
        part=str(row.get("part", "")),
        quote=str(row.get("quote", "")),
    )


def _evidence(row: Mapping[str, Any], approval: Approval) -> int | None:
    """The number of the evidence that is the source: the result of the same call, or the run's input."""
    for item in approval.evidence:
        of_call = item.get("kind") == "result" and row.get("ref") and item.get("ref") == row["ref"]
        given = item.get("kind") == "message" and row.get("source") == item.get("title")
        if of_call or given:
            return int(item.get("n", 0)) or None
    return None


def risk_of(approval: Approval) -> dict[str, Any]:
    """Why a request has its risk: each factor with its weight, and their sum."""
    factors = approval.risk_factors
    score = sum(int(factor.get("points", 0)) for factor in factors)
    return {"factors": factors, "score": score, "medium_from": MEDIUM_FROM, "high_from": HIGH_FROM}
