"""A rule's terms as JSON: kept in its versions, compared, and turned back into a rule. Writes nothing.

Every column of a rule except its name and number is a term, and so are its groups, by name. A new column needs nothing
here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group

from approvals import configuration
from approvals.digest import canonical, sha256
from approvals.escalation import groups_named
from approvals.models import Rule

GROUPS = "groups"
LONG = 120


@dataclass(frozen=True)
class Difference:
    """One term that differs between two versions of a rule, in words. None: the version does not have it."""

    name: str
    label: str
    before: str
    after: str

    @property
    def is_long(self) -> bool:
        return max(len(self.before), len(self.after)) > LONG


def terms_of(rule: Rule, groups: Collection[str] | None = None) -> dict[str, Any]:
    """The terms of a rule as it stands. `groups`: the names of its groups, if they are not stored yet."""
    said = configuration.describe(rule)
    terms = {name: value for name, value in said.items() if name not in Rule.IDENTITY}
    return {**terms, GROUPS: sorted(groups if groups is not None else terms.get(GROUPS, []))}


def named_in(terms: dict[str, Any]) -> set[str]:
    """The groups that terms refer to only by name."""
    counted = {entry.get("group", "") for entry in terms.get("thresholds", []) if isinstance(entry, dict)}
    return {*terms.get(GROUPS, []), *groups_named(terms.get("escalation")), *counted} - {""}


def digest_of(terms: dict[str, Any]) -> str:
    return sha256(canonical(terms))


def columns(terms: dict[str, Any]) -> dict[str, Any]:
    """The terms that are columns, as the model has them. Terms that rules no longer have are left out."""
    known = {field.name: field for field in Rule._meta.concrete_fields if field.name not in Rule.IDENTITY}
    return {name: known[name].to_python(value) for name, value in terms.items() if name in known}


def as_rule(rule: Rule, terms: dict[str, Any], groups: Sequence[Group] = ()) -> Rule:
    """The rule as it would be with these terms, for reading and judging. It is not stored."""
    made = Rule(pk=rule.pk, name=rule.name, version=rule.version, **columns(terms))
    made._state.adding = False
    found = Group.objects.none()
    found._result_cache = list(groups)
    made._prefetched_objects_cache = {GROUPS: found}  # type: ignore[attr-defined]
    return made


def groups_of(terms: dict[str, Any]) -> list[Group]:
    """The groups that terms name. Raises LookupError if one no longer exists: without it, everybody might decide."""
    names = terms.get(GROUPS, [])
    found = {group.name: group for group in Group.objects.filter(name__in=names)} if names else {}
    if missing := [name for name in names if name not in found]:
        raise LookupError(f"There is no longer a group {missing[0]!r}.")
    return [found[name] for name in names]


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    """The terms that differ, in the order of the rule's columns."""
    order = [field.name for field in (*Rule._meta.concrete_fields, *Rule._meta.many_to_many)]
    names = sorted({*before, *after}, key=lambda name: order.index(name) if name in order else len(order))
    return [
        Difference(name, name.replace("_", " ").capitalize(), as_text(before.get(name)), as_text(after.get(name)))
        for name in names
        if before.get(name) != after.get(name)
    ]


def as_text(value: Any) -> str:
    if value is None or value == "":
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return value if isinstance(value, str) else canonical(value)
