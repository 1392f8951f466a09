"""Rules and one call in, a ruling with its reason out. Pure: it reads no row and writes none.

Deny beats ask beats allow. A condition that cannot be evaluated asks. If no rule matches, a read runs and everything
else asks: absence never approves.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

from approvals import conditions, step_up, thresholds, totals
from approvals.escalation import Step, steps_of_all
from approvals.looked_at import looked_at
from approvals.models import HIGH_RISKS, AnsweredBy, DecisionType, EffectClass, Risk, Rule, Verdict, every_decision

# The names a condition may look at.
NAMES = ("args", "tool", "agent", "run", "customer", "provenance", "now", "environment", totals.NAME)

RISK_ORDER = [str(value) for value in Risk.values]
DEFAULT_RISK: dict[str, Risk] = {
    EffectClass.READ: Risk.LOW,
    EffectClass.REVERSIBLE: Risk.LOW,
    EffectClass.COMPENSABLE: Risk.MEDIUM,
    EffectClass.IRREVERSIBLE: Risk.HIGH,
}

NO_CUSTOMER = "(The customer cannot be asked here, so people decide.)"


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
    asks_because: str = ""
    """The reason people read if no rule asks them, in place of "This tool always asks"."""
    secret: tuple[str, ...] = ()
    """Arguments whose values are never shown."""
    now: dict[str, Any] = field(default_factory=dict)
    """The moment, from `moments.seen`."""
    environment: str = ""
    history: totals.History | None = None
    """Knows other calls; asked only by a condition that looks at them."""
    origins: Callable[[], Mapping[str, str]] = dict
    """Where each argument's value came from. Looked up once, and only for a condition that names it."""

    def names(self, wanted: Iterable[str] = ()) -> dict[str, Any]:
        """What a condition may look at. Values that take work are included only if wanted."""
        if "provenance" in wanted:
            return {**self._plain, "provenance": self._provenance}
        return self._plain

    def context(self, wanted: Iterable[str]) -> conditions.Context:
        """The same for the evaluator, made once for all rules."""
        return self._whole_context if "provenance" in wanted else self._plain_context

    @functools.cached_property
    def _plain(self) -> dict[str, Any]:
        return {
            "args": self.arguments,
            "tool": {"name": self.tool, "effect_class": self.effect_class},
            "agent": {"name": self.agent, "route": self.route},
            "run": self.run,
            "customer": self.customer,
            "now": self.now,
            "environment": self.environment,
        }

    @functools.cached_property
    def _provenance(self) -> dict[str, str]:
        return dict(self.origins())

    @functools.cached_property
    def _plain_context(self) -> conditions.Context:
        return conditions.Context(variables=self._plain)

    @functools.cached_property
    def _whole_context(self) -> conditions.Context:
        return conditions.Context(variables=self.names(("provenance",)))


@dataclass(frozen=True)
class Ruling:
    """What the rules say about one call. Frozen on the row when the call is proposed."""

    verdict: str
    reason: str
    rule: str = ""
    rule_version: int = 0
    """The version of that rule; 0 if no rule decided."""
    rule_digest: str = ""
    """The digest of that version's terms; empty if unknown."""
    risk: str = Risk.LOW
    groups: tuple[int, ...] = ()
    approvals_needed: int = 1
    starter_excluded: bool = True
    expires_seconds: int | None = None
    on_expiry: str = Rule.OnExpiry.REJECT
    allowed_decisions: tuple[str, ...] = ()
    hold_seconds: int | None = None
    escalation: tuple[Step, ...] = ()
    target_seconds: int | None = None
    business_hours: bool = False
    """Whether its times count business hours only."""
    condition: str = ""
    values: tuple[dict[str, Any], ...] = ()
    """What the condition looked at and found: {name, value}."""
    people: bool = True
    """For a call that asks: whether people with the right to decide must allow it."""
    customer: bool = False
    """Whether the customer must confirm it: first, if people are asked as well."""
    terms: tuple[list[dict[str, Any]], ...] = ()
    """The thresholds of each rule, as `thresholds.Terms` reads them. Empty: `approvals_needed` people of the groups
    above.
    """
    about: dict[str, Any] = field(default_factory=dict)
    """What their conditions look at, besides arguments, tool and reviewer."""
    shadow: tuple[dict[str, Any], ...] = ()
    """What watching drafts would have said. They decide nothing; see `shadows`."""
    grants_allowed: bool = False
    """For a call that asks: whether a grant may answer instead of a person. Only if nothing says that people must."""
    assurance: str = ""
    """How the approver must show who they are, as the rules ask. What the installation asks is in `step_up`."""

    def without_customer(self) -> "Ruling":
        """The ruling for a call whose customer cannot be asked: people decide in any case."""
        return replace(self, customer=False, people=True, reason=f"{self.reason} {NO_CUSTOMER}")

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Ruling":
        """The ruling as `as_json` froze it."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        fields["escalation"] = tuple(Step(**step) for step in value.get("escalation", ()))
        return cls(**fields)

    def as_json(self) -> dict[str, Any]:
        kept = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        if not self.shadow:
            del kept["shadow"]
        for name in ("assurance", "rule_version", "rule_digest"):
            if not kept[name]:
                del kept[name]
        return kept


@dataclass(frozen=True)
class Matching:
    """A rule that fits a call, why it says what it says, and whom it asks."""

    rule: Rule
    reason: str
    asks: str
    grants_allowed: bool = False
    broke: bool = False
    """Its condition could not be evaluated, so what it would have said is unknown."""


def risks_from(least: str) -> list[str]:
    """This risk and all higher ones."""
    return RISK_ORDER[RISK_ORDER.index(least) :]


def evaluate(rules: Iterable[Rule], call: Call) -> Ruling:
    """The ruling for one call. `rules` come in order, with `groups` prefetched."""
    matching: list[tuple[str, Matching]] = []
    for rule in rules:
        if not addresses(rule, call):
            continue
        try:
            if not holds(rule.condition, call):
                continue
        except conditions.TooMuch:
            # The call itself is too large: its proposer must not be able to turn a denial into a question.
            why = f"the call has too many values for the condition of {rule.name} to be evaluated"
            forbids = rule.verdict == Verdict.DENY
            matching.append(
                (Verdict.DENY if forbids else Verdict.ASK, Matching(rule, why, AnsweredBy.PEOPLE, broke=True))
            )
        except Exception as error:  # a condition can fail in any way its author did not foresee
            # Only the error's kind: its message can quote the arguments, including secrets and text from outside.
            why = f"the condition of {rule.name} could not be evaluated: {type(error).__name__}"
            matching.append((Verdict.ASK, Matching(rule, why, AnsweredBy.PEOPLE, broke=True)))
        else:
            why = rule.description or rule.name
            matching.append((rule.verdict, Matching(rule, why, rule.answered_by, rule.grants_allowed)))
    for verdict in (Verdict.DENY, Verdict.ASK, Verdict.ALLOW):
        found = [one for ruled, one in matching if ruled == verdict]
        if verdict == Verdict.ALLOW and call.always_ask:
            break
        if found and verdict == Verdict.ASK:
            return _ask(found, call)
        if found:
            rule = found[0].rule
            return Ruling(
                verdict=verdict,
                reason=found[0].reason,
                rule=rule.name,
                rule_version=rule.version,
                rule_digest=rule.terms_digest,
                risk=rule.risk,
                **_condition(rule, call),
            )
    return _without_a_rule(call)


def validate_condition(text: str) -> None:
    """Refuse a condition that does not compile or uses names that rules cannot see. Raises ValidationError."""
    conditions.check(text, NAMES)
    try:
        totals.asked_in(text)
    except ValueError as error:
        raise ValidationError(str(error)) from error


def validate_allowed_decisions(value: object) -> None:
    """Raises ValidationError unless `value` is a non-empty list of known decisions."""
    if not isinstance(value, list) or not value or any(item not in every_decision() for item in value):
        raise ValidationError(f"Give a non-empty list of: {', '.join(every_decision())}.")


def _without_a_rule(call: Call) -> Ruling:
    risk = DEFAULT_RISK.get(call.effect_class, Risk.HIGH)
    if call.effect_class == EffectClass.READ and not call.always_ask:
        return Ruling(verdict=Verdict.ALLOW, reason="Reads run freely.", risk=risk)
    always = call.asks_because or "This tool always asks."
    reason = always if call.always_ask else "No rule allows this call, so a person decides."
    return Ruling(
        verdict=Verdict.ASK,
        reason=reason,
        risk=risk,
        allowed_decisions=tuple(every_decision()),
        grants_allowed=not call.always_ask,
    )


def _condition(rule: Rule, call: Call) -> dict[str, Any]:
    values = looked_at(rule.condition, call.names(_wanted(rule.condition)), call.secret)
    return {"condition": rule.condition, "values": (*values, *_totals_seen(rule.condition, call))}


def _totals_seen(condition: str, call: Call) -> list[dict[str, Any]]:
    """What a condition was told about other calls; without a value if that failed."""
    if not totals.is_asked(condition) or call.history is None:
        return []
    seen: list[dict[str, Any]] = []
    try:
        for look in totals.asked_in(condition):
            seen.append({"name": str(look)})
            seen[-1]["value"] = call.history.answer(look)
    except Exception:  # the reason of the ruling says what could not be looked up
        return seen
    return seen


def _ask(found: list[Matching], call: Call) -> Ruling:
    """Several rules that ask become one request with the strictest of their terms.

    If some ask people and some the customer, both are asked, people under the terms of the rules that ask them. A
    customer alone never allows a call of high or critical risk, or one that something other than these rules asks
    about.
    """
    of_people = [one for one in found if one.asks != AnsweredBy.CUSTOMER]
    risk = max((one.rule.risk for one in found), key=RISK_ORDER.index)
    asks_customer = len(of_people) < len(found)
    assurance = step_up.strictest(one.rule.assurance for one in found)
    terms = of_people or found
    first = terms[0].rule
    # A rule with a broken condition might have denied the call, so people read about it.
    reason = "; ".join([terms[0].reason, *(one.reason for one in found if one.broke and one is not terms[0])])
    rules = [one.rule for one in terms]
    by = thresholds.of_rules(rules)
    return Ruling(
        verdict=Verdict.ASK,
        reason=reason,
        rule=first.name,
        rule_version=first.version,
        rule_digest=first.terms_digest,
        risk=risk,
        groups=by.may_decide if by else thresholds.in_common(thresholds.groups_named(rules)),
        approvals_needed=by.fewest if by else max(rule.approvals_needed for rule in rules),
        terms=tuple(by.as_json()),
        about={"run": call.run, "customer": call.customer} if by.looks else {},
        starter_excluded=any(rule.starter_excluded for rule in rules),
        expires_seconds=time_to_decide(rule.expires_seconds for rule in rules),
        on_expiry=Rule.OnExpiry.STOP if any(r.on_expiry == Rule.OnExpiry.STOP for r in rules) else first.on_expiry,
        allowed_decisions=_allowed_by_all(rules),
        hold_seconds=hold(rule.hold_seconds for rule in rules),
        escalation=steps_of_all(rules),
        target_seconds=target(rule.target_seconds for rule in rules),
        # If one of them counts every hour, time is up sooner.
        business_hours=all(rule.business_hours for rule in rules),
        # A customer does not show who they are.
        people=bool(of_people) or call.always_ask or bool(assurance) or risk in HIGH_RISKS,
        customer=asks_customer,
        # Thresholds ask several people, so no grant answers in their place. A rule with a broken condition allows none.
        grants_allowed=all(one.grants_allowed for one in found) and not by and not call.always_ask,
        assurance=assurance,
        **_condition(first, call),
    )


def time_to_decide(named: Iterable[int | None]) -> int | None:
    """The shortest time people have to decide. A rule with none, or 0, uses the installation's. None: all do."""
    return _of_all(min, (one or None for one in named), settings.APPROVAL_EXPIRES_SECONDS)


def target(named: Iterable[int | None]) -> int | None:
    """The same for the target times, of which the installation may have none."""
    return _of_all(min, named, settings.APPROVAL_TARGET_SECONDS or None)


def hold(named: Iterable[int | None]) -> int | None:
    """The longest time for which a decision can be undone, in the same way."""
    return _of_all(max, named, settings.UNDO_HOLD_SECONDS)


def _of_all(strictest: Callable[[list[int]], int], named: Iterable[int | None], otherwise: int | None) -> int | None:
    every = list(named)
    if all(one is None for one in every):
        return None
    asked = [otherwise if one is None else one for one in every]
    return strictest([one for one in asked if one is not None])


def _allowed_by_all(rules: list[Rule]) -> tuple[str, ...]:
    """What every rule allows. With nothing in common, the call can only be rejected."""
    allowed = tuple(d for d in every_decision() if all(d in rule.allowed_decisions for rule in rules))
    return allowed or (str(DecisionType.REJECT),)


def addresses(rule: Rule, call: Call) -> bool:
    """Whether a rule is about a call, whatever its condition says."""
    return (
        rule.active
        and rule.agent in ("", call.agent)
        and rule.route in ("", call.route)
        and rule.tool in ("", call.tool)
        and rule.effect_class in ("", call.effect_class)
        and rule.environment in ("", call.environment)
    )


def holds(condition: str, call: Call) -> bool:
    """Whether a condition is true of a call. Raises whatever stops the evaluation."""
    wanted = conditions.names_in(condition)
    if not totals.is_asked(condition):
        looks = call.context(wanted) if conditions.depth_of(condition) < 2 else call.names(wanted)
        return conditions.is_true(condition, looks)
    names = {**call.names(wanted), "args": totals.with_decimals(call.arguments), totals.NAME: {}}
    return conditions.is_true(condition, names, totals.functions(call.history))


def _wanted(condition: str) -> frozenset[str]:
    try:
        return conditions.names_in(condition)
    except ValueError:  # the rule asks a person anyway
        return frozenset()
