"""Finding words in a run: in what was said, and in the names, arguments and results of its calls.

What the page masks is not found either: an answer of "found" would reveal it piece by piece.
"""

from dataclasses import dataclass, field
from typing import Any

from django.db.models import BooleanField, Case, F, FilteredRelation, Q, QuerySet, Value, When

from agentapp import discretion
from agentapp.console import inspector
from agentapp.models import Run, Tool, ToolExecution
from approvals.digest import storable
from approvals.models import Approval
from approvals.streaming import streamed

MAX_WORDS = 200
# At most this many places are found; a run with more needs better words.
MAX_PLACES = 200
_SAID = ("text", "reasoning", "model", "error")
_PLACE = ("place", "at", "sure")
_LOOKED_AT = MAX_PLACES + 1
_AT_A_TIME = 20
_NAMES = ("name", "proposed_name", "reason", "message", "outcome_note")
_TEXTS = tuple(inspector.PARTS.values())
_MARKS = ("secret_fields", "pii_fields")
_OF_CALL = ("index", *_NAMES, *_TEXTS, *(f"{of}{mark}" for of in ("", "tool__", "approval__") for mark in _MARKS))

type Place = tuple[int, int | None]


@dataclass(frozen=True)
class Found:
    """The step and call of each match, in the order of the run. `is_cut`: there are more."""

    words: str
    places: list[Place] = field(default_factory=list)
    is_cut: bool = False

    @property
    def keys(self) -> set[str]:
        return {f"{step}" if call is None else f"{step}-{call}" for step, call in self.places}

    def number_of(self, place: Place) -> int:
        """The number of the match at this place, from 1; 0 if there is none."""
        return self.places.index(place) + 1 if place in self.places else 0

    def around(self, place: Place) -> tuple[Place | None, Place | None]:
        """The matches before and after a place, wrapping around at the ends."""
        if not self.places:
            return None, None
        before = [found for found in self.places if _order(found) < _order(place)]
        behind = [found for found in self.places if _order(found) > _order(place)]
        return (before or self.places)[-1], (behind or self.places)[0]


def find(run: Run, words: str) -> Found | None:
    """Where these words are in the run; None without words. One query, and one more for secrets."""
    words = storable(words).strip()[:MAX_WORDS]
    if not words:
        return None
    if discretion.hides():
        places = sorted(_legible(run, words), key=_order)
        return Found(words, places[:MAX_PLACES], len(places) > MAX_PLACES)
    places = [(0, None)] if words.lower() in f"{run.title}\n{run.input}".lower() else []
    said = (
        run.steps.filter(_any(_SAID, words))
        .order_by()
        .annotate(place=F("number"), at=Value(-1), sure=Value(True))
        .values_list(*_PLACE)
    )
    places += _calls(run, words, said.values_list(*_PLACE))
    places.sort(key=_order)
    return Found(words, places[:MAX_PLACES], len(places) > MAX_PLACES)


def _calls(run: Run, words: str, said: QuerySet[Any, tuple[int, int, bool]]) -> list[Place]:
    """The steps in `said` and the matching calls. A call whose texts contain secrets is read as the page shows it."""
    texts = _any(_TEXTS, words)
    open_ones = (
        Q(secret_fields=[])
        & (Q(tool__isnull=True) | Q(tool__secret_fields=[]))
        & (Q(approval__isnull=True) | Q(approval__secret_fields=[]))
        & Q(proposed_name="")
    )
    named = _any(_NAMES, words)
    calls = run.executions.filter(named | texts).order_by()
    sure = Case(When(named | open_ones, then=Value(True)), default=Value(False), output_field=BooleanField())
    calls = calls.annotate(place=F("step__number"), at=F("index"), sure=sure)
    found = list(said.union(calls.values_list(*_PLACE), all=True).order_by("place", "at")[:_LOOKED_AT])
    doubtful = {(step, index) for step, index, is_sure in found if not is_sure}
    shown = set()
    if doubtful:
        wanted = run.executions.filter(texts).exclude(named | open_ones).order_by("step__number", "index")
        with streamed(wanted.select_related("step", "tool", "approval")[: len(doubtful)], _AT_A_TIME) as rows:
            shown = {(call.step.number, call.index) for call in rows if _shows(call, words)}
    kept = ((step, index) for step, index, _ in found if (step, index) not in doubtful - shown)
    return [(step, None if index < 0 else index) for step, index in kept]


def _legible(run: Run, words: str) -> list[Place]:
    """Where these words are for somebody who sees masked values: the matches, read as the page shows them."""
    matches = FilteredRelation("executions", condition=_any((*_NAMES, *_TEXTS), words, "executions__"))
    steps = run.steps.annotate(hit=matches).filter(_any(_SAID, words) | Q(hit__isnull=False))
    found = steps.order_by("number", "hit__index").values("number", *_SAID, *(f"hit__{name}" for name in _OF_CALL))
    said: dict[Place, str] = {(0, None): f"{run.title}\n{run.input}"}
    with streamed(found[:_LOOKED_AT], _AT_A_TIME) as rows:
        for row in rows:
            said[row["number"], None] = "\n".join(row[name] for name in _SAID)
            if row["hit__index"] is not None:
                said[row["number"], row["hit__index"]] = _as_shown({name: row[f"hit__{name}"] for name in _OF_CALL})
    return discretion.legible(words, ((place, run.pk, text) for place, text in said.items()))


def _as_shown(columns: dict[str, Any]) -> str:
    """What the page shows of a call, from its columns and those that say what is secret in it."""
    marks = {of: {mark: columns.pop(f"{of}__{mark}") or [] for mark in _MARKS} for of in ("tool", "approval")}
    call = ToolExecution(**columns, tool=Tool(**marks["tool"]), approval=Approval(**marks["approval"]))
    shown = (inspector.full_text(call, part) for part, name in inspector.PARTS.items() if columns[name])
    return "\n".join([*(columns[name] for name in _NAMES), *shown])


def _shows(call: ToolExecution, words: str) -> bool:
    shown = (inspector.full_text(call, part) for part, name in inspector.PARTS.items() if getattr(call, name))
    return any(words.lower() in text.lower() for text in shown)


def _any(fields: tuple[str, ...], words: str, of: str = "") -> Q:
    wanted = Q()
    for name in fields:
        wanted |= Q(**{f"{of}{name}__icontains": words})
    return wanted


def _order(place: Place) -> tuple[int, int]:
    return place[0], -1 if place[1] is None else place[1]
