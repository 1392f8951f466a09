"""The card of a plan: each of its calls as its own card would show it, in our words."""

from dataclasses import dataclass, replace
from typing import Any

from agentapp import cards, planning, provenance, weighing
from agentapp.models import Run, Tool, ToolExecution
from agentapp.plan_use import was_planned
from agentapp.proposals import Situation, origins_for, ruling_for
from agentapp.tools import sentences
from agentapp.tools.arguments import effective
from agentapp.tools.planning import calls_of
from agentapp.weighing import Weighed
from approvals import clock, planned, risk
from approvals.cards import Card
from approvals.digest import canonical, load, parse
from approvals.masking import masked
from approvals.models import EffectClass
from approvals.planned import ShownCall

MOVED_ON = "It is planned in {}, but the state that plan rested on has changed."
AS_PLANNED = "It is planned in {}, but that plan does not allow it now."


@dataclass(frozen=True)
class Looked:
    """One call of a plan as it was examined for the card."""

    tool: Tool
    arguments: dict[str, Any]
    weighed: Weighed


def look(situation: Situation, text: str) -> list[Looked]:
    """Every call of a plan, with the rules' ruling on it and the factors that raise its risk. Calls whose tool is gone
    are left out: the plan's own ruling says so.
    """
    found = []
    for call in calls_of(parse(text)):
        tool = situation.configuration.tools.get(call.tool)
        if tool is None:
            continue
        arguments = effective(tool, call.arguments)
        origins = origins_for(situation, tool, arguments)
        ruling = ruling_for(situation, tool, arguments, origins=lambda origins=origins: origins)  # type: ignore[misc]
        one = ToolExecution()  # not executed yet: an empty row, to compare with existing ones
        earlier = weighing.before(situation.run, tool, one)
        found.append(
            Looked(tool, arguments, weighing.weigh(one, tool, ruling, arguments, origins, earlier, clock.now()))
        )
    return found


def as_risky(weighed: Weighed, calls: list[Looked]) -> Weighed:
    """The plan with its terms raised: it is as risky as the riskiest of its calls."""
    highest = weighed.terms.risk
    for each in calls:
        highest = risk.higher(highest, each.weighed.terms.risk)
    return replace(weighed, terms=replace(weighed.terms, risk=highest))


def of_plan(card: Card, calls: list[Looked]) -> Card:
    """The card of a plan, in place of the one that its proposal alone would have."""
    arguments = parse(card.arguments_text)
    looked = load(card.snapshot_text) if card.snapshot_text else {}
    shown = [_shown(each, looked.get(planning.place(number, each.tool.name), {})) for number, each in _numbered(calls)]
    words = f"{len(calls)} calls"
    return replace(
        card,
        title=f"Carry out {words} as one plan",
        sentence=[
            {"text": "The agent will make ", "value": False},
            {"text": words, "value": True},
            {"text": ", exactly as listed here and in this order. Any other call will ask.", "value": False},
        ],
        effects=[],
        effect_class=_hardest(calls),
        button=words,
        # The purpose is the model's claim, like everything else it says.
        explanation=f"{arguments['purpose']}\n\n{card.explanation}".strip(),
        plan_text=planned.text_of(shown),
    )


def of_call(card: Card, run: Run, tool: Tool) -> Card:
    """The card of a single call. If the call was planned but still asks, the card shows what has changed since."""
    was = was_planned(run, tool, card.arguments_text) if not card.difference else None
    if was is None:
        return card
    difference = cards.changed(_state(was.snapshot_text), _state(card.snapshot_text), card.secret_fields)
    why = (MOVED_ON if difference else AS_PLANNED).format(was.approval.reference)
    return replace(card, difference=difference, reason=f"{card.reason} ({why})")


def _hardest(calls: list[Looked]) -> str:
    """The effect class of the plan: that of the call that is hardest to take back."""
    order = [str(value) for value in EffectClass.values]
    return max((str(each.tool.effect_class) for each in calls), key=order.index)


def _numbered(calls: list[Looked]) -> list[tuple[int, Looked]]:
    return list(enumerate(calls, start=1))


def _shown(looked: Looked, state: dict[str, Any]) -> ShownCall:
    tool, arguments, weighed = looked.tool, looked.arguments, looked.weighed
    text = state.get("state", "")
    snapshot = masked(_state(text), tool.secret_fields)
    return ShownCall(
        tool=tool.name,
        tool_version=tool.version,
        effect_class=str(tool.effect_class),
        arguments_text=canonical(arguments),
        snapshot_text=text,
        title=sentences.title(tool, arguments, snapshot),
        sentence=sentences.sentence(tool, arguments, snapshot),
        effects=sentences.effects(tool, arguments, snapshot),
        risk=str(weighed.terms.risk),
        reason=weighed.terms.reason,
        rule=weighed.terms.rule,
        risk_factors=weighed.factors,
        outside=sorted(provenance.from_outside(weighed.provenance)),
    )


def _state(text: str) -> dict[str, Any]:
    found = load(text) if text else {}
    return found if isinstance(found, dict) else {}
