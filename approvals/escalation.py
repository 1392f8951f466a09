"""Escalation steps: what a rule says about a request nobody decides, and what several rules say together. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from django.core.exceptions import ValidationError

MAX_STEPS = 5
# A month. Anything longer needs no step.
MAX_AFTER = 31 * 86400


@dataclass(frozen=True)
class Step:
    """After this many seconds undecided: this group may decide too, those who may are reminded, or both."""

    after: int
    group: str = ""
    remind: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Terms(Protocol):
    """The fields of a rule that matter here."""

    escalation: Any
    groups: Any


def validate_steps(value: object) -> None:
    """Refuse anything but a list of steps in order. Raises ValidationError."""
    if not isinstance(value, list) or len(value) > MAX_STEPS:
        raise ValidationError(f"Give a list of at most {MAX_STEPS} steps.")
    before = 0
    for number, one in enumerate(value, start=1):
        problem = _problem(one)
        if problem:
            raise ValidationError(f"Step {number}: {problem}")
        if one["after"] <= before:
            raise ValidationError(f"Step {number}: each step must come later than the one before it.")
        before = one["after"]


def _problem(one: object) -> str:
    if not isinstance(one, dict) or set(one) - {"after", "group", "remind"}:
        return "a step has `after`, `group` and `remind`."
    after, group, remind = one.get("after"), one.get("group", ""), one.get("remind", False)
    if not isinstance(after, int) or isinstance(after, bool) or not 0 < after <= MAX_AFTER:
        return f"`after` is a number of seconds, from 1 to {MAX_AFTER}."
    if not isinstance(group, str) or not isinstance(remind, bool):
        return "`group` is the name of a group, and `remind` true or false."
    if not group and not remind:
        return "name a group that may decide from then on, or set `remind`."
    return ""


def steps_of(value: Any) -> tuple[Step, ...]:
    """The steps of a rule. A list that was written past the checks has none: unreadable steps add nobody."""
    try:
        validate_steps(value)
    except ValidationError:
        return ()
    return tuple(Step(one["after"], one.get("group", ""), one.get("remind", False)) for one in value)


def groups_named(value: object) -> list[str]:
    """The groups that some steps name, however malformed the rest is."""
    steps = value if isinstance(value, list) else []
    return [one["group"] for one in steps if isinstance(one, dict) and isinstance(one.get("group"), str)]


def steps_of_all(rules: Sequence[Terms]) -> tuple[Step, ...]:
    """What several asking rules say together. The first one's reminders hold.

    A group is added only if every rule lets it decide by then, from the start or by a step of its own, and at the
    latest of these moments. So no rule is widened by another.
    """
    first, *others = rules
    steps = steps_of(first.escalation)
    if not others:
        return steps
    found = {step.after: Step(step.after, remind=True) for step in steps if step.remind}
    named = dict.fromkeys(step.group for rule in rules for step in steps_of(rule.escalation) if step.group)
    for group in named:
        moments = [_lets(rule, group) for rule in rules]
        latest = max((moment for moment in moments if moment is not None), default=0)
        if None not in moments and latest:
            while latest in found and found[latest].group:
                latest += 1
            found[latest] = Step(latest, group, latest in found)
    return tuple(found[after] for after in sorted(found))


def _lets(rule: Terms, group: str) -> int | None:
    """The seconds after which a rule lets this group decide. None: never."""
    names = {one.name for one in rule.groups.all()}
    if not names or group in names:
        return 0
    return next((step.after for step in steps_of(rule.escalation) if step.group == group), None)
