"""A rule as a sentence, for whoever reads it next. Pure: the groups are given."""

from collections.abc import Sequence

from approvals.models import AnsweredBy, DecisionType, EffectClass, Risk, Rule, Verdict

_EFFECTS: dict[str, str] = {
    EffectClass.READ: "that only reads",
    EffectClass.REVERSIBLE: "that can be undone exactly",
    EffectClass.COMPENSABLE: "that can only be made good",
    EffectClass.IRREVERSIBLE: "that cannot be taken back",
}
_DECISIONS: dict[str, str] = {
    DecisionType.APPROVE: "approve it",
    DecisionType.EDIT: "change it",
    DecisionType.REJECT: "reject it",
    DecisionType.RESPOND: "answer in its place",
}
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def in_words(rule: Rule, groups: Sequence[str] = (), default_expiry: int | None = None) -> str:
    """What the rule does, to which calls, and who has a say."""
    return f"{_calls(rule)} {_outcome(rule, groups, default_expiry)}"


def lasting(seconds: int) -> str:
    """A span of time in words: 5400 is 1 hour 30 minutes."""
    parts = []
    for size, unit in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}{'s' if number > 1 else ''}")
    if seconds or not parts:
        parts.append(f"{seconds} second{'s' if seconds != 1 else ''}")
    return " ".join(parts[:2])


def _calls(rule: Rule) -> str:
    words = [f"A call of {rule.tool}" if rule.tool else "Any call"]
    if rule.effect_class:
        words.append(_EFFECTS.get(rule.effect_class, rule.effect_class))
    if rule.agent:
        words.append(f"by the agent {rule.agent}")
    if rule.route:
        words.append(f"on the route {rule.route}")
    if rule.condition.strip():
        words.append(f"where {' '.join(rule.condition.split())}")
    return " ".join(words)


def _outcome(rule: Rule, groups: Sequence[str], default_expiry: int | None) -> str:
    if rule.verdict == Verdict.ALLOW:
        return "runs without a person."
    if rule.verdict == Verdict.DENY:
        return "is refused, and the model is told why."
    if rule.verdict != Verdict.ASK:
        return "…"
    if rule.answered_by == AnsweredBy.CUSTOMER:
        return " ".join([_customer(rule, groups), _until(rule, default_expiry)])
    return " ".join([_who(rule, groups), _until(rule, default_expiry), _may(rule)]).strip()


def _who(rule: Rule, groups: Sequence[str]) -> str:
    number = rule.approvals_needed
    people = "a person" if number == 1 else f"{number} different people"
    among = (
        f"in the group{'s' if len(groups) > 1 else ''} {' or '.join(groups)}" if groups else "with the right to decide"
    )
    but = ", never whoever started the run" if rule.starter_excluded else ""
    return f"waits for {people} {among}{but}."


def _customer(rule: Rule, groups: Sequence[str]) -> str:
    people = _who(rule, groups).removeprefix("waits for ").removesuffix(".")
    if rule.risk in (Risk.HIGH, Risk.CRITICAL):
        return f"waits for the customer of the conversation, then for {people}; without such a customer for them alone."
    return f"waits for the customer of the conversation, or where there is none to ask for {people}."


def _until(rule: Rule, default_expiry: int | None) -> str:
    seconds = rule.expires_seconds or default_expiry
    within = f"within {lasting(seconds)}" if seconds else "in time"
    ends = " and the run stops" if rule.on_expiry == Rule.OnExpiry.STOP else ""
    return f"If nobody decides {within}, it is rejected{ends}."


def _may(rule: Rule) -> str:
    allowed = [words for name, words in _DECISIONS.items() if name in rule.allowed_decisions]
    if len(allowed) in (0, len(_DECISIONS)):
        return ""
    *rest, last = allowed
    return f"People may only {', '.join(rest)} or {last}." if rest else f"People may only {last}."
