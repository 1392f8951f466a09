"""Rules and one call in, a ruling with its reason out. Pure: it reads no row and writes none.

Deny beats ask beats allow. A condition that cannot be evaluated asks. With no matching rule a read
runs and everything else asks: absence never approves.
"""

import functools
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from types import ModuleType
from typing import Any

from django.core.exceptions import ValidationError

from approvals.looked_at import looked_at
from approvals.models import AnsweredBy, DecisionType, EffectClass, Risk, Rule, Verdict, every_decision

# The package loads its own command line first, with a terminal's editor: a fifth of every process's start.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
import cel  # noqa: E402

# What a condition may look at.
NAMES = ("args", "tool", "agent", "run", "customer")

# The name a macro binds, as `item` in args.items.exists(item, item > 3).
_LOOP_NAME = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*(\w+)\s*,")
_SYNTAX = re.compile(r"<input>:\d+:(\d+): Syntax error: (.*?)(?: expecting .*)?$", re.MULTILINE)
_TOKEN = re.compile(r"'(.*)'")
RISK_ORDER = [str(value) for value in Risk.values]
DEFAULT_RISK: dict[str, Risk] = {
    EffectClass.READ: Risk.LOW,
    EffectClass.REVERSIBLE: Risk.LOW,
    EffectClass.COMPENSABLE: Risk.MEDIUM,
    EffectClass.IRREVERSIBLE: Risk.HIGH,
}


@dataclass(frozen=True)
class Call:
    """One proposed call, as rules see it."""

    tool: str
    effect_class: str
    arguments: dict[str, Any]
    agent: str = ""
    route: str = ""
    run: dict[str, Any] = field(default_factory=dict)
    customer: str = ""
    always_ask: bool = False
    secret: tuple[str, ...] = ()
    """Arguments whose values are nowhere shown."""

    def names(self) -> dict[str, Any]:
        return {
            "args": self.arguments,
            "tool": {"name": self.tool, "effect_class": self.effect_class},
            "agent": {"name": self.agent, "route": self.route},
            "run": self.run,
            "customer": self.customer,
        }


@dataclass(frozen=True)
class Ruling:
    """What the rules say about one call. Frozen on the row when the call is proposed."""

    verdict: str
    reason: str
    rule: str = ""
    risk: str = Risk.LOW
    groups: tuple[int, ...] = ()
    approvals_needed: int = 1
    starter_excluded: bool = True
    expires_seconds: int | None = None
    on_expiry: str = Rule.OnExpiry.REJECT
    allowed_decisions: tuple[str, ...] = ()
    hold_seconds: int | None = None
    condition: str = ""
    values: tuple[dict[str, Any], ...] = ()
    """What the condition looked at, and found there: {name, value}."""
    people: bool = True
    """Of a call that asks: whether people with the right to decide must allow it."""
    customer: bool = False
    """Whether the customer must confirm it: first, where people are asked as well."""

    def without_customer(self) -> "Ruling":
        """The ruling for a call whose customer cannot be asked: people decide in any case."""
        reason = f"{self.reason} (The customer cannot be asked here, so people decide.)"
        return replace(self, customer=False, people=True, reason=reason)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Ruling":
        """The ruling as it was frozen by `as_json`."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return cls(**fields)

    def as_json(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Matching:
    """A rule that fits a call, why it says what it says, and whom it asks."""

    rule: Rule
    reason: str
    asks: str


def risks_from(least: str) -> list[str]:
    """This risk and those above it."""
    return RISK_ORDER[RISK_ORDER.index(least) :]


def evaluate(rules: Iterable[Rule], call: Call) -> Ruling:
    """The ruling for one call. `rules` come in their order, with `groups` prefetched."""
    matching: list[tuple[str, Matching]] = []
    for rule in rules:
        if not _addresses(rule, call):
            continue
        try:
            if not holds(rule.condition, call):
                continue
        except Exception as error:  # a condition can fail in any way its author did not foresee
            why = f"the condition of {rule.name} could not be evaluated: {error}"
            matching.append((Verdict.ASK, Matching(rule, why, AnsweredBy.PEOPLE)))
        else:
            matching.append((rule.verdict, Matching(rule, rule.description or rule.name, rule.answered_by)))
    for verdict in (Verdict.DENY, Verdict.ASK, Verdict.ALLOW):
        found = [one for ruled, one in matching if ruled == verdict]
        if verdict == Verdict.ALLOW and call.always_ask:
            break
        if found and verdict == Verdict.ASK:
            return _ask(found, call)
        if found:
            rule = found[0].rule
            return Ruling(
                verdict=verdict, reason=found[0].reason, rule=rule.name, risk=rule.risk, **_condition(rule, call)
            )
    return _without_a_rule(call)


def validate_condition(text: str) -> None:
    """Refuse a condition that does not compile or names what rules cannot see. Raises ValidationError."""
    if not text.strip():
        return
    try:
        program = _compiled(text)
    except ValueError as error:
        raise ValidationError(f"The condition does not compile: {_why(str(error))}") from error
    unknown = sorted(set(program.variables()) - set(NAMES) - set(_LOOP_NAME.findall(text)))
    if unknown:
        raise ValidationError(f"Unknown name {unknown[0]!r}; a condition can look at {', '.join(NAMES)}.")


def _why(error: str) -> str:
    """What the compiler says, for somebody who does not know its grammar."""
    found = _SYNTAX.search(error)
    if found is None:
        return error
    place, problem = found[1], found[2]
    if "'<EOF>'" in problem and "mismatched" in problem:
        return f"it ends at character {place}, where something is missing."
    if (token := _TOKEN.search(problem)) is None:
        return f"{problem.strip()}, at character {place}."
    advice = " Equal is written ==." if token[1].strip() == "=" else ""
    return f"{token[1].strip()!r} cannot stand at character {place}.{advice}"


def validate_allowed_decisions(value: object) -> None:
    """Raises ValidationError unless `value` is a non-empty list of known decisions."""
    if not isinstance(value, list) or not value or any(item not in every_decision() for item in value):
        raise ValidationError(f"A non-empty list among {', '.join(every_decision())}.")


def _without_a_rule(call: Call) -> Ruling:
    risk = DEFAULT_RISK.get(call.effect_class, Risk.HIGH)
    if call.effect_class == EffectClass.READ and not call.always_ask:
        return Ruling(verdict=Verdict.ALLOW, reason="Reads run freely.", risk=risk)
    reason = "This tool always asks." if call.always_ask else "No rule allows this call, so a person decides."
    return Ruling(verdict=Verdict.ASK, reason=reason, risk=risk, allowed_decisions=tuple(every_decision()))


def _condition(rule: Rule, call: Call) -> dict[str, Any]:
    return {"condition": rule.condition, "values": looked_at(rule.condition, call.names(), call.secret)}


def _ask(found: list[Matching], call: Call) -> Ruling:
    """Several rules that ask become one request with the strictest of their terms.

    Where some ask people and some the customer, both are asked, and people by the terms of theirs. No customer alone
    allows what is of high or critical risk, or what asks for another cause than these rules.
    """
    of_people = [one for one in found if one.asks != AnsweredBy.CUSTOMER]
    risk = max((one.rule.risk for one in found), key=RISK_ORDER.index)
    asks_customer = len(of_people) < len(found)
    terms = of_people or found
    first, reason = terms[0].rule, terms[0].reason
    rules = [one.rule for one in terms]
    limits = [rule.expires_seconds for rule in rules if rule.expires_seconds is not None]
    holds = [rule.hold_seconds for rule in rules if rule.hold_seconds is not None]
    return Ruling(
        verdict=Verdict.ASK,
        reason=reason,
        rule=first.name,
        risk=risk,
        groups=_groups_of_all(rules),
        approvals_needed=max(rule.approvals_needed for rule in rules),
        starter_excluded=any(rule.starter_excluded for rule in rules),
        expires_seconds=min(limits, default=None),
        on_expiry=Rule.OnExpiry.STOP if any(r.on_expiry == Rule.OnExpiry.STOP for r in rules) else first.on_expiry,
        allowed_decisions=_allowed_by_all(rules),
        hold_seconds=max(holds, default=None),
        people=bool(of_people) or call.always_ask or risk in (Risk.HIGH, Risk.CRITICAL),
        customer=asks_customer,
        **_condition(first, call),
    )


def _groups_of_all(rules: list[Rule]) -> tuple[int, ...]:
    """The groups every rule accepts; when they have none in common, those of the first that names any."""
    named = [ids for rule in rules if (ids := [group.pk for group in rule.groups.all()])]
    shared = tuple(pk for pk in named[0] if all(pk in ids for ids in named)) if named else ()
    return shared or (tuple(named[0]) if named else ())


def _allowed_by_all(rules: list[Rule]) -> tuple[str, ...]:
    """What every rule allows. Nothing in common: it can only be rejected."""
    allowed = tuple(d for d in every_decision() if all(d in rule.allowed_decisions for rule in rules))
    return allowed or (str(DecisionType.REJECT),)


def _addresses(rule: Rule, call: Call) -> bool:
    return (
        rule.active
        and rule.agent in ("", call.agent)
        and rule.route in ("", call.route)
        and rule.tool in ("", call.tool)
        and rule.effect_class in ("", call.effect_class)
    )


def holds(condition: str, call: Call) -> bool:
    """Whether a condition is true of a call. Raises whatever stops it from being evaluated."""
    if not condition.strip():
        return True
    value = _compiled(condition).execute(call.names())
    if not isinstance(value, bool):
        raise TypeError(f"it gave {type(value).__name__}, not true or false")
    return value


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> cel.Program:
    return cel.compile(text)
