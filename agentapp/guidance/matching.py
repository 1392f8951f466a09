"""Which guidelines are looked at in an iteration, and whether they hold."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentapp.considered import Matched, Origin
from agentapp.guidance import extensions
from agentapp.guidance.guidelines import Guideline, Guidelines
from agentapp.guidance.known import Context, Done, Known, Turn


@dataclass(frozen=True)
class Judged:
    """A model's judgement of one guideline."""

    holds: bool
    why: str = ""


def latest(matches: Sequence[Matched]) -> dict[str, Matched]:
    """What was last said about each guideline."""
    return {match.guideline: match for match in matches}


def to_look_at(guidelines: Guidelines, known: Known) -> list[Guideline]:
    """In the first iteration, all; later, those that do not hold yet and those that a tool calls up again."""
    if known.iteration == 1:
        return list(guidelines.guidelines)
    before = latest(known.matches)
    again = called_up_again(guidelines, known)
    return [
        guideline
        for guideline in guidelines.guidelines
        if guideline.name in again or guideline.name not in before or not before[guideline.name].matched
    ]


def called_up_again(guidelines: Guidelines, known: Known) -> set[str]:
    """The guidelines that hold and whose tool has run since they were last looked at."""
    before = latest(known.matches)
    return {
        relation.source
        for relation in guidelines.related("reevaluates")
        if (last := before.get(relation.source)) is not None
        and last.matched
        and any(_ran_since(call, relation.target, last.step) for call in known.calls)
    }


def _ran_since(call: Done, tool: str, step: int) -> bool:
    # The calls of a step run after its matching.
    return call.tool == tool and call.is_answered and call.step >= step


def match(turn: Turn, asked: Mapping[str, Judged], looked_at: Sequence[Guideline]) -> list[Matched]:
    """What is said about each guideline looked at. `asked`: the model's judgement of those left to it."""
    again = called_up_again(turn.guidelines, turn.known)
    return [_matched(turn, guideline, asked, again) for guideline in looked_at]


def left_to_model(looked_at: Sequence[Guideline]) -> list[Guideline]:
    return [guideline for guideline in looked_at if guideline.matcher == "model"]


def _matched(turn: Turn, guideline: Guideline, asked: Mapping[str, Judged], again: set[str]) -> Matched:
    origin: Origin = guideline.matcher
    if guideline.matcher == "always":
        judged = Judged(True)
    elif guideline.matcher == "python":
        judged = _by_code(turn, guideline)
    else:
        judged = asked.get(guideline.name, Judged(False))
    return said_of(guideline, "reevaluated" if guideline.name in again else origin, judged)


def said_of(guideline: Guideline, origin: Origin, judged: Judged) -> Matched:
    return Matched(
        guideline.name,
        judged.holds,
        origin,
        judged.why,
        version=guideline.version,
        condition=guideline.condition,
        action=guideline.action,
    )


def _by_code(turn: Turn, guideline: Guideline) -> Judged:
    """The matcher returns True or False, or a pair of this and a reason. Anything else, such as a coroutine, fails."""
    what = f"The matcher of the guideline {guideline.name}"
    found = extensions.call(guideline.python, what, Context.of(turn))
    match found:
        case bool():
            return Judged(found)
        case (bool() as holds, str() as why):
            return Judged(holds, why)
    raise extensions.unusable(
        guideline.python, what, f"returned a {type(found).__name__}, not true or false or a pair of this and a reason"
    )


def transient_of(known: Known) -> list[Guideline]:
    """Guidelines that came with results of this run."""
    found: list[Guideline] = []
    places: Counter[tuple[str, int]] = Counter()
    for call in known.calls:
        for brought in call.transient:
            if str(brought.get("action", "")).strip():
                places[call.tool, call.step] += 1
                found.append(_transient(f"{call.tool}:{call.step}.{places[call.tool, call.step]}", brought))
    return found


def _transient(name: str, brought: Mapping[str, object]) -> Guideline:
    criticality, priority = brought.get("criticality"), brought.get("priority")
    return Guideline(
        name=name,
        condition=str(brought.get("condition") or ""),
        action=str(brought["action"]),
        description=str(brought.get("description") or ""),
        criticality=criticality if criticality in ("low", "medium", "high") else "medium",
        priority=priority if isinstance(priority, int) else 0,
        is_transient=True,
    )
