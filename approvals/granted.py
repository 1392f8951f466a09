"""Whether a grant allows a call, and what a grant allows in words. Pure: it reads and writes no row."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from approvals import step_up
from approvals.digest import MalformedJSON, canonical
from approvals.models import Grant, GrantLimit, Verdict
from approvals.policy import RISK_ORDER, Ruling

IS, AT_MOST, ANY = "is", "at_most", "any"
# A number given as text means the same to every tool only if it is plain.
_PLAIN_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?")
# The precision that limits are kept with, and a bound that no limit reaches.
_UNIT = Decimal("0.0001")
_TOO_MUCH = Decimal(10) ** 14


@dataclass(frozen=True)
class Wanted:
    """A call that would ask a person, as grants see it."""

    tool: str
    tool_version: str
    effect_class: str
    agent: str
    arguments: Mapping[str, Any]
    ruling: Ruling
    excluded: frozenset[int] = frozenset()
    """People whose grants do not count here: those who started the run or have taken it over."""
    outside: Callable[[], Collection[str]] = tuple
    """The arguments that hold values from outside. Looked up only if a grant would allow the call."""
    weighed: Callable[[], str] | None = None
    """The risk it would be asked about with, which facts may raise above the rules'. Looked up like `outside`."""


def number_of(value: Any) -> Decimal | None:
    """An amount as tools and people mean it: a plain number from 0, also as text. None: it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        return Decimal(value) if _PLAIN_NUMBER.fullmatch(value) and value.isascii() else None
    number = Decimal(str(value))
    return number if number.is_finite() and number >= 0 else None


def may_be_granted(ruling: Ruling, effect_class: str) -> bool:
    """Whether a person's grant could ever allow a call about which the rules say this."""
    asks_one = ruling.verdict == Verdict.ASK and ruling.grants_allowed and ruling.approvals_needed == 1
    asks_nothing = not step_up.needed(ruling.assurance, ruling.risk, effect_class)
    return asks_one and not ruling.customer and asks_nothing and effect_class in Grant.EFFECT_CLASSES


def covers(grant: Grant, wanted: Wanted) -> bool:
    """Whether a grant in force allows this call. It must have been read with its limits."""
    return (
        may_be_granted(wanted.ruling, wanted.effect_class)
        and (grant.tool, grant.tool_version, grant.effect_class)
        == (wanted.tool, wanted.tool_version, wanted.effect_class)
        and grant.agent == wanted.agent
        and grant.made_by_id not in wanted.excluded
        and _is_within(wanted.ruling.risk, grant)
        and fits(grant.constraints, wanted.arguments)
        and has_room(grant.limits.all(), wanted.arguments)
        and says_exactly(grant.constraints, wanted.outside())
        and (wanted.weighed is None or _answers_at(wanted.weighed(), wanted, grant))
    )


def _answers_at(risk: str, wanted: Wanted, grant: Grant) -> bool:
    """Whether a grant can answer at a risk. It cannot where a person would have to show who they are."""
    return _is_within(risk, grant) and not step_up.needed(wanted.ruling.assurance, risk, wanted.effect_class)


def _is_within(risk: str, grant: Grant) -> bool:
    """Whether a risk is no higher than that of the request the grant was made from."""
    return RISK_ORDER.index(risk) <= RISK_ORDER.index(grant.risk)


def fits(constraints: Iterable[Mapping[str, Any]], arguments: Mapping[str, Any]) -> bool:
    """Whether arguments are within their constraints. An argument without a constraint fits nothing."""
    said = {constraint["name"]: constraint for constraint in constraints}
    if not set(arguments) <= set(said):
        return False
    return all(_fits_one(constraint, arguments) for constraint in said.values())


def says_exactly(constraints: Iterable[Mapping[str, Any]], names: Iterable[str]) -> bool:
    """Whether a person has fixed the exact value of each of these arguments, not only bounds."""
    return set(names) <= {constraint["name"] for constraint in constraints if constraint["rule"] == IS}


def _fits_one(constraint: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    name, rule = constraint["name"], constraint["rule"]
    if rule == ANY:
        return True
    if name not in arguments:
        return False
    if rule == AT_MOST:
        number, most = number_of(arguments[name]), number_of(constraint["value"])
        return number is not None and most is not None and number <= most
    try:
        return rule == IS and canonical(arguments[name]) == canonical(constraint["value"])
    except MalformedJSON:
        return False


def has_room(limits: Iterable[GrantLimit], arguments: Mapping[str, Any]) -> bool:
    """Whether enough is left of every limit for a call to begin."""
    for limit in limits:
        taken = takes(limit, arguments)
        if taken is None or limit.used + taken > limit.most or limit.left <= 0:
            return False
    return True


def takes(limit: GrantLimit, arguments: Mapping[str, Any]) -> Decimal | None:
    """What a call takes from a limit when it begins. None: unknown. What a tool counts, it takes as it goes."""
    if limit.kind == GrantLimit.Kind.COUNT:
        return Decimal(0)
    number = number_of(arguments.get(limit.name))
    if number is None or number >= _TOO_MUCH:
        return None
    return number.quantize(_UNIT, rounding=ROUND_CEILING)


def in_words(constraints: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What each argument may be: its name, and the rest of the sentence."""
    return [(constraint["name"], _words(constraint)) for constraint in constraints]


def _words(constraint: Mapping[str, Any]) -> str:
    if constraint["rule"] == ANY:
        return "may be anything"
    value = constraint["value"]
    text = value if isinstance(value, str) else canonical(value)
    return f"is at most {text}" if constraint["rule"] == AT_MOST else f"is exactly {text}"


def plain(number: Decimal) -> str:
    """An amount without its trailing zeros."""
    return f"{number.normalize():f}"
