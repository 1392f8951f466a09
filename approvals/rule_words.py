"""A rule as a sentence, for people who read it. Pure: the groups are given."""

from collections.abc import Sequence

from django.core.exceptions import ValidationError

from approvals import step_up, thresholds
from approvals.escalation import Step, steps_of
from approvals.models import HIGH_RISKS, AnsweredBy, DecisionType, EffectClass, Rule, Verdict

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
_SHOWS: dict[str, str] = {
    level: f"The approver must show {words}." for level, words in step_up.NEEDS.items() if level != step_up.SIGNED
} | {step_up.SIGNED: "The approver must sign the decision with a passkey."}
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
    if rule.environment:
        words.append(f"in {rule.environment}")
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
        shows = _SHOWS.get(rule.assurance, "")
        said = [_customer(rule, groups), shows, _until(rule, default_expiry), *while_undecided(rule, groups)]
    else:
        granted = "A grant may answer instead." if rule.grants_allowed else ""
        shows = _SHOWS.get(rule.assurance, "")
        said = [_who(rule, groups), shows, _until(rule, default_expiry), *while_undecided(rule, groups), _may(rule)]
        said.append(granted)
    return " ".join(each for each in said if each)


def _who(rule: Rule, groups: Sequence[str]) -> str:
    but = ", but not the person who started the run" if rule.starter_excluded else ""
    if rule.thresholds and (said := _thresholds(rule)):
        return f"waits for {said}{but}."
    number = rule.approvals_needed
    people = "a person" if number == 1 else f"{number} different people"
    among = (
        f"in the group{'s' if len(groups) > 1 else ''} {' or '.join(groups)}" if groups else "with the right to decide"
    )
    return f"waits for {people} {among}{but}."


def _thresholds(rule: Rule) -> str:
    """The ways in which it can be decided. Empty if they cannot be read, as on a page while they are typed."""
    try:
        thresholds.validate(rule.thresholds)
    except ValidationError:
        return ""
    return thresholds.said(rule.thresholds)


def _customer(rule: Rule, groups: Sequence[str]) -> str:
    people = _who(rule, groups).removeprefix("waits for ").removesuffix(".")
    if rule.risk in HIGH_RISKS or rule.assurance:
        return f"waits for the customer of the conversation, then for {people}; without a customer, for them alone."
    return f"waits for the customer of the conversation or, if there is none to ask, for {people}."


def _until(rule: Rule, default_expiry: int | None) -> str:
    seconds = rule.expires_seconds or default_expiry
    within = f"within {lasting(seconds)}{counted(rule.business_hours)}" if seconds else "in time"
    ends = " and the run stops" if rule.on_expiry == Rule.OnExpiry.STOP else ""
    return f"If nobody decides {within}, it is rejected{ends}."


def while_undecided(rule: Rule, groups: Sequence[str]) -> list[str]:
    """What happens before that: a sentence for the target, and one for each step."""
    said = []
    if rule.target_seconds:
        said.append(f"Somebody should decide within {lasting(rule.target_seconds)}{counted(rule.business_hours)}.")
    return said + [step_words(step, bool(groups), rule.business_hours) for step in steps_of(rule.escalation)]


def step_words(step: Step, has_groups: bool, business_hours: bool = False) -> str:
    """One step as a sentence. If everybody may decide, a group can only be told."""
    begin = f"If nobody decides within {lasting(step.after)}{counted(business_hours)}, "
    reminded = "those who may decide are reminded"
    if not step.group:
        return f"{begin}{reminded}."
    added = f"{step.group} may decide too" if has_groups else f"{step.group} is told too"
    return f"{begin}{reminded}, and {added}." if step.remind else f"{begin}{added}."


def counted(business_hours: bool) -> str:
    return " of business hours" if business_hours else ""


def _may(rule: Rule) -> str:
    allowed = [words for name, words in _DECISIONS.items() if name in rule.allowed_decisions]
    if len(allowed) in (0, len(_DECISIONS)):
        return ""
    *rest, last = allowed
    return f"People may only {', '.join(rest)} or {last}." if rest else f"People may only {last}."
