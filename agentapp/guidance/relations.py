"""What follows from the guidelines that hold: those they entail, less those that others take precedence over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentapp.considered import Matched
from agentapp.guidance.guidelines import Guideline, Guidelines
from agentapp.guidance.matching import Judged, said_of


@dataclass(frozen=True)
class Resolved:
    """What counts in an iteration."""

    matches: dict[str, Matched]
    """Everything that holds, suppressed or not."""
    guidelines: dict[str, Guideline]
    """What counts, by name: it holds, and nothing takes precedence over it."""


def resolve(guidelines: Guidelines, held: Mapping[str, Matched], transient: Sequence[Guideline]) -> Resolved:
    """`held`: what holds by itself, in this iteration or since an earlier one."""
    known = {**guidelines.by_name, **{guideline.name: guideline for guideline in transient}}
    own = {name: match for name, match in held.items() if name in known}
    for guideline in transient:
        own[guideline.name] = said_of(guideline, "transient", Judged(True, "It came with the result of a call."))
    losers: dict[str, str] = {}
    for _ in known:  # each round settles at least one more, unless they form a circle
        entailed = _entailed(guidelines, own, losers)
        found = _suppressed(guidelines, {name: known[name] for name in [*own, *entailed]})
        if found == losers:
            break
        losers = found
    entailed = _entailed(guidelines, own, losers)
    follows = {
        name: said_of(known[name], "entailed", Judged(True, f"It follows from {by}.")) for name, by in entailed.items()
    }
    matches = {name: replace(match, suppressed_by=losers.get(name, "")) for name, match in (own | follows).items()}
    return Resolved(matches, {name: known[name] for name in matches if name not in losers})


def _entailed(guidelines: Guidelines, own: Mapping[str, Matched], losers: Mapping[str, str]) -> dict[str, str]:
    """What holds because something that counts entails it, directly or through others, and what that is."""
    found: dict[str, str] = {}
    pending = [name for name in own if name not in losers]
    while pending:
        source = pending.pop(0)
        for relation in guidelines.related("entails"):
            target = relation.target
            if relation.source == source and target in guidelines.by_name and target not in own and target not in found:
                found[target] = source
                if target not in losers:
                    pending.append(target)
    return found


def _suppressed(guidelines: Guidelines, holding: Mapping[str, Guideline]) -> dict[str, str]:
    """The guidelines that another takes precedence over, and which one. A suppressed guideline suppresses none."""
    above = _above(guidelines, holding)
    losers: dict[str, str] = {}
    left = set(holding)
    while left:
        winners = {name for name in left if not (above.get(name, set()) & left)}
        if not winners:  # a circle: none takes precedence
            break
        for name in sorted(left - winners):
            by = sorted(above.get(name, set()) & winners)
            if by:
                losers[name] = by[0]
        left -= winners | set(losers)
    return losers


def _above(guidelines: Guidelines, holding: Mapping[str, Guideline]) -> dict[str, set[str]]:
    """For each guideline, those that take precedence over it.

    If two are related by priority, the higher number takes precedence or, if they are equal, the relation's source.
    A guideline that came with a result is related to all the others, and only its number counts.
    """
    above: dict[str, set[str]] = {}
    for relation in guidelines.related("priority"):
        if relation.source in holding and relation.target in holding:
            first, second = holding[relation.source], holding[relation.target]
            winner, loser = (first, second) if first.priority >= second.priority else (second, first)
            above.setdefault(loser.name, set()).add(winner.name)
    for brought in (guideline for guideline in holding.values() if guideline.is_transient):
        for other in holding.values():
            if brought.priority > other.priority:
                above.setdefault(other.name, set()).add(brought.name)
            elif other.priority > brought.priority:
                above.setdefault(brought.name, set()).add(other.name)
    return above
