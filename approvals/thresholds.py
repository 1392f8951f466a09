"""How many of whom must approve, and how many rejections are enough: "two of Payments, or one of Managers".

A rule has alternatives: the first that is reached satisfies it. If several rules ask, each must be satisfied; one
person may count for several of them. Rejections count across all: the first threshold to have its number of them ends
the request. Pure: who decided, and what they are, is given.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.core.exceptions import ValidationError

from approvals import conditions
from approvals.models import Risk, Rule

# The names that a threshold's condition may look at.
NAMES = ("reviewer", "args", "tool", "run", "customer")
MAX_THRESHOLDS = 10
MAX_PEOPLE = 20
_KEYS = {"approve", "deny", "group", "condition"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Reviewer:
    """Somebody who decides, as a threshold sees them."""

    pk: int
    name: str
    groups: Mapping[int, str]


@dataclass(frozen=True)
class Threshold:
    """This many approvals by people who count for it are enough; this many rejections end the request."""

    approve: int
    deny: int = 1
    groups: tuple[int, ...] = ()
    """The groups whose members count. Empty: everybody who may decide."""
    names: tuple[str, ...] = ()
    condition: str = ""
    nobody: bool = False
    """It names a group that its rule no longer has: nobody counts."""
    open: bool = False
    """It names no group of its own, so anyone who may decide later, by a step of its rule, counts as well."""

    def counts(self, reviewer: Reviewer, about: Mapping[str, Any]) -> bool:
        """Whether a person's decision counts. A condition that cannot be evaluated counts nobody."""
        if self.nobody or (self.groups and not set(self.groups) & set(reviewer.groups)):
            return False
        who = {"name": reviewer.name, "groups": sorted(reviewer.groups.values())}
        try:
            return conditions.is_true(self.condition, {**about, "reviewer": who})
        except Exception:  # a condition can fail in any way its author did not foresee
            return False

    @property
    def words(self) -> str:
        """As in "two of Payments"."""
        people = f"{_number(self.approve)} of {' or '.join(self.names)}" if self.names else _people(self.approve)
        where = f" where {' '.join(self.condition.split())}" if self.condition.strip() else ""
        return f"{people}{where}"


@dataclass(frozen=True)
class Terms:
    """What a request needs: one threshold of every rule that asked."""

    rules: tuple[tuple[Threshold, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    @classmethod
    def from_json(cls, value: Iterable[Iterable[Mapping[str, Any]]]) -> "Terms":
        def one(fields: Mapping[str, Any]) -> Threshold:
            given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
            return Threshold(**given)

        return cls(tuple(tuple(one(fields) for fields in rule) for rule in value))

    def as_json(self) -> list[list[dict[str, Any]]]:
        def one(threshold: Threshold) -> dict[str, Any]:
            fields = asdict(threshold)
            return {name: list(item) if isinstance(item, tuple) else item for name, item in fields.items()}

        return [[one(threshold) for threshold in rule] for rule in self.rules]

    def at_least(self, number: int) -> "Terms":
        """The same, except that no threshold is reached by fewer people than this."""
        return Terms(tuple(tuple(replace(t, approve=max(t.approve, number)) for t in rule) for rule in self.rules))

    def with_added(self, groups: Collection[int]) -> "Terms":
        """The same, once these groups may decide as well. A threshold that names a group counts only that one."""

        def one(threshold: Threshold) -> Threshold:
            widens = threshold.open and threshold.groups and groups
            return replace(threshold, groups=(*threshold.groups, *groups)) if widens else threshold

        return Terms(tuple(tuple(one(threshold) for threshold in rule) for rule in self.rules))

    @property
    def looks(self) -> bool:
        """Whether any of them has a condition."""
        return any(threshold.condition.strip() for rule in self.rules for threshold in rule)

    @property
    def fewest(self) -> int:
        """The fewest people who can approve it."""
        return max((min(threshold.approve for threshold in rule) for rule in self.rules), default=1)

    @property
    def words(self) -> str:
        """As in "Two of Payments, or one of Managers"."""
        said = "; and ".join(", or ".join(threshold.words for threshold in rule) for rule in self.rules)
        return said[:1].upper() + said[1:]

    @property
    def may_decide(self) -> tuple[int, ...]:
        """The groups whose members may decide. Empty: everybody with the right to decide."""
        every = [threshold for rule in self.rules for threshold in rule if not threshold.nobody]
        if any(not threshold.groups for threshold in every):
            return ()
        return tuple(dict.fromkeys(group for threshold in every for group in threshold.groups))


@dataclass(frozen=True)
class Count:
    """Who has approved and who has rejected, with the terms that apply."""

    terms: Terms
    about: Mapping[str, Any]
    """What conditions look at besides the reviewer."""
    approving: Sequence[Reviewer] = ()
    rejecting: Sequence[Reviewer] = ()
    people: Mapping[int, Reviewer] = field(default_factory=dict)
    """Everybody involved, deciders and the reader, by key."""

    @property
    def is_enough(self) -> bool:
        return bool(self.terms) and all(self._is_satisfied(rule) for rule in self.terms.rules)

    @property
    def is_denied(self) -> bool:
        every = [threshold for rule in self.terms.rules for threshold in rule]
        return any(self._number(threshold, self.rejecting) >= threshold.deny for threshold in every)

    def involves(self, reviewer: Reviewer) -> bool:
        """Whether this person's decision counts for anything."""
        return any(t.counts(reviewer, self.about) for rule in self.terms.rules for t in rule)

    def rejections_needed(self) -> int:
        """How many rejections end it, by the threshold that needs the fewest."""
        return min((threshold.deny for rule in self.terms.rules for threshold in rule), default=1)

    def next_for(self, reviewer: Reviewer | None = None) -> tuple[int, int]:
        """How many have approved of how many needed, for the threshold that this person's approval takes furthest.

        Of several rules, the one that lacks most people counts. None: nobody is looking, and the nearest threshold
        counts.
        """
        found = [self._nearest(rule, reviewer) for rule in self.terms.rules if not self._is_satisfied(rule)]
        return max((pair for pair in found if pair), key=lambda pair: pair[1] - pair[0], default=(0, self.terms.fewest))

    def _nearest(self, rule: Sequence[Threshold], reviewer: Reviewer | None) -> tuple[int, int] | None:
        own = [t for t in rule if reviewer is None or t.counts(reviewer, self.about)]
        pairs = [(self._number(t, self.approving), t.approve) for t in own]
        return min(pairs, key=lambda pair: pair[1] - pair[0], default=None)

    def _is_satisfied(self, rule: Sequence[Threshold]) -> bool:
        return any(self._number(threshold, self.approving) >= threshold.approve for threshold in rule)

    def _number(self, threshold: Threshold, people: Sequence[Reviewer]) -> int:
        return len({one.pk for one in people if threshold.counts(one, self.about)})


def of_rules(rules: Sequence[Rule]) -> Terms:
    """The terms of rules that ask, with `groups` prefetched.

    Empty if each says only how many of which groups, and all that name groups have some in common.
    """
    named = groups_named(rules)
    if not any(rule.thresholds for rule in rules) and (not named or in_common(named)):
        return Terms()
    return Terms(tuple(_of(rule) for rule in rules))


def groups_named(rules: Sequence[Rule]) -> list[tuple[int, ...]]:
    """The groups of each rule that names any."""
    return [ids for rule in rules if (ids := tuple(group.pk for group in rule.groups.all()))]


def in_common(named: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The groups that are in each of these lists, in the order of the first."""
    return tuple(pk for pk in named[0] if all(pk in ids for ids in named)) if named else ()


def floor(terms: Terms, risk: str, two_can: bool) -> Terms:
    """At critical risk nobody approves alone, whatever a threshold says, unless only one person may decide at all."""
    return terms.at_least(2) if risk == Risk.CRITICAL and two_can else terms


def validate(value: object) -> None:
    """Raises ValidationError unless `value` is a list of thresholds as a rule may have them."""
    if not isinstance(value, list) or len(value) > MAX_THRESHOLDS:
        raise ValidationError(f"Give a list of at most {MAX_THRESHOLDS} thresholds.")
    for number, entry in enumerate(value, start=1):
        if not isinstance(entry, dict) or (set(entry) - _KEYS):
            raise ValidationError(f"Threshold {number}: give an object of approve, deny, group and condition.")
        for key, default in (("approve", None), ("deny", 1)):
            people = entry.get(key, default)
            if isinstance(people, bool) or not isinstance(people, int) or not 1 <= people <= MAX_PEOPLE:
                raise ValidationError(f"Threshold {number}: {key} must be a number of people from 1 to {MAX_PEOPLE}.")
        for key in ("group", "condition"):
            if not isinstance(entry.get(key, ""), str):
                raise ValidationError(f"Threshold {number}: {key} must be text.")
        try:
            conditions.check(entry.get("condition", ""), NAMES)
        except ValidationError as error:
            raise ValidationError(f"Threshold {number}: {error.messages[0]}") from error


def validate_groups(value: Sequence[Mapping[str, Any]], groups: Iterable[str]) -> None:
    """Raises ValidationError if a threshold counts members of a group that the rule does not let decide."""
    known = sorted(groups)
    for number, entry in enumerate(value, start=1):
        group = entry.get("group", "")
        if group and group not in known:
            listed = f" It has {', '.join(known)}." if known else ""
            raise ValidationError(f"Threshold {number}: {group!r} is not among the rule's groups.{listed}")


def validate_steps(value: Sequence[Mapping[str, Any]], added: Iterable[str]) -> None:
    """Raises ValidationError if a step lets a group decide that no threshold would count."""
    late = [group for group in added if group and group not in {entry.get("group", "") for entry in value}]
    if late and value and all(entry.get("group") for entry in value):
        raise ValidationError(
            f"A step lets {late[0]} decide, but no threshold would count them. Leave the group out of one."
        )


def said(value: Sequence[Mapping[str, Any]]) -> str:
    """The thresholds of a rule in words, whatever groups exist."""
    every = (_one(entry, {str(entry["group"]): 0} if entry.get("group") else {}) for entry in value)
    return ", or ".join(f"{one.words}{_rejections(one.deny)}" for one in every)


def _rejections(deny: int) -> str:
    return f" ({_number(deny)} rejections end it)" if deny > 1 else ""


def _of(rule: Rule) -> tuple[Threshold, ...]:
    groups = {group.name: group.pk for group in rule.groups.all()}
    if not rule.thresholds:
        return (Threshold(rule.approvals_needed, 1, tuple(groups.values()), tuple(groups), open=True),)
    try:
        validate(rule.thresholds)
    except ValidationError:  # a row changed by hand: it cannot be approved
        return (Threshold(approve=1, nobody=True, names=("nobody",)),)
    return tuple(_one(entry, groups) for entry in rule.thresholds)


def _one(entry: Mapping[str, Any], groups: Mapping[str, int]) -> Threshold:
    """One threshold. Without a group of its own it counts everybody whom the rule lets decide."""
    name = entry.get("group", "")
    named = {name: groups[name]} if name in groups else {} if name else groups
    return Threshold(
        approve=entry["approve"],
        deny=entry.get("deny", 1),
        groups=tuple(named.values()),
        names=tuple(named) or ((name,) if name else ()),
        condition=entry.get("condition", ""),
        nobody=bool(name) and name not in groups,
        open=not name,
    )


def _number(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def _people(number: int) -> str:
    return "one person who may decide" if number == 1 else f"{_number(number)} different people who may decide"
