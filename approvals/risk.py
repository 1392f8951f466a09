"""How risky one call is, by facts that can be counted. Pure: the same facts give the same score; no model is asked.

Factors can raise the rules' risk up to high, but not to critical, which only rules can set. They never lower it.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from approvals.models import EffectClass, Risk
from approvals.policy import RISK_ORDER

# The points from which a call is of medium or high risk.
MEDIUM_FROM, HIGH_FROM = 35, 60

CLASS_POINTS = {EffectClass.REVERSIBLE: 5, EffectClass.COMPENSABLE: 15, EffectClass.IRREVERSIBLE: 25}
CLASS_WORDS = {
    EffectClass.REVERSIBLE: "changes something that can be undone",
    EffectClass.COMPENSABLE: "changes something that can only be made good",
    EffectClass.IRREVERSIBLE: "cannot be taken back",
}
OUTSIDE, DISGUISED = 35, 35
LARGEST, LARGE, NEW_RECIPIENT, MOSTLY_REJECTED, OFTEN_REJECTED, OFF_HOURS = 30, 20, 20, 15, 10, 5

# With fewer than these, a comparison says nothing.
MIN_CALLS, MIN_AMOUNTS, MIN_DECIDED = 5, 10, 5
LARGE_SHARE, MOSTLY, OFTEN = 0.95, 0.5, 0.25
# Office hours are the same everywhere: the business hours that an installation sets do not count here.
OPENS, CLOSES, SATURDAY = 7, 19, 5


@dataclass(frozen=True)
class Facts:
    """What is known about one call before people are asked about it."""

    effect_class: str
    outside: Sequence[str] = ()
    """Its arguments that hold values from outside."""
    disguised: Sequence[str] = ()
    """Its arguments with hidden characters or look-alike letters."""
    amount: float | None = None
    amounts: Sequence[float] = ()
    """The earlier amounts of this tool's calls."""
    recipients: Collection[str] = ()
    """Who would receive something, normalised so that a known recipient is recognised."""
    known: Collection[str] = ()
    calls: int = 0
    """How many calls of this tool the amounts and recipients come from."""
    decided: int = 0
    rejected: int = 0
    """Of this agent's last requests for this tool: how many people decided, and how many of those they rejected."""
    hour: int = 12
    weekday: int = 0


@dataclass(frozen=True)
class Factor:
    """One reason why a call is risky, and its weight."""

    name: str
    points: int
    words: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Assessment:
    factors: tuple[Factor, ...]

    @property
    def score(self) -> int:
        return sum(factor.points for factor in self.factors)

    @property
    def risk(self) -> str:
        """The risk by the factors alone."""
        return Risk.HIGH if self.score >= HIGH_FROM else Risk.MEDIUM if self.score >= MEDIUM_FROM else Risk.LOW


def assess(facts: Facts) -> Assessment:
    weighed = (_class, _outside, _disguised, _amount, _recipient, _rejections, _hours)
    return Assessment(tuple(factor for weigh in weighed if (factor := weigh(facts)) is not None))


def higher(one: str, other: str) -> str:
    """The higher of two risks."""
    return max(one, other, key=RISK_ORDER.index)


def _class(facts: Facts) -> Factor | None:
    points = CLASS_POINTS.get(EffectClass(facts.effect_class), 0)
    return Factor("effect_class", points, CLASS_WORDS[EffectClass(facts.effect_class)]) if points else None


def _outside(facts: Facts) -> Factor | None:
    if not facts.outside:
        return None
    return Factor("outside", OUTSIDE, f"values from outside: {', '.join(facts.outside)}")


def _disguised(facts: Facts) -> Factor | None:
    if not facts.disguised:
        return None
    return Factor("disguised", DISGUISED, f"hidden characters or look-alike letters: {', '.join(facts.disguised)}")


def _amount(facts: Facts) -> Factor | None:
    count = len(facts.amounts)
    if facts.amount is None or count < MIN_AMOUNTS:
        return None
    smaller = sum(amount < facts.amount for amount in facts.amounts)
    if smaller == count:
        return Factor("amount", LARGEST, f"larger than each of the last {count} amounts")
    if smaller / count >= LARGE_SHARE:
        return Factor("amount", LARGE, f"larger than {smaller} of the last {count} amounts")
    return None


def _recipient(facts: Facts) -> Factor | None:
    if facts.calls < MIN_CALLS or all(recipient in facts.known for recipient in facts.recipients):
        return None
    return Factor("new_recipient", NEW_RECIPIENT, f"new recipient: none of the last {facts.calls} calls went there")


def _rejections(facts: Facts) -> Factor | None:
    if facts.decided < MIN_DECIDED or facts.rejected / facts.decided < OFTEN:
        return None
    points = MOSTLY_REJECTED if facts.rejected / facts.decided >= MOSTLY else OFTEN_REJECTED
    words = f"people rejected {facts.rejected} of this agent’s last {facts.decided} similar requests"
    return Factor("rejections", points, words)


def _hours(facts: Facts) -> Factor | None:
    if OPENS <= facts.hour < CLOSES and facts.weekday < SATURDAY:
        return None
    return Factor("off_hours", OFF_HOURS, "asked for outside office hours")
