"""Rules as somebody supposes them, for a run in which nothing can happen: some left out, some drafts as if in force."""

from collections.abc import Iterable
from typing import Any

from approvals import rule_terms
from approvals.models import Rule, RuleVersion
from approvals.shadows import with_draft

WITHOUT, DRAFTS = "without", "drafts"


class Unknown(LookupError):
    """There is no such rule in force, or no such draft. The message says which."""

    def __init__(self, message: str, *, is_draft: bool = False) -> None:
        super().__init__(message)
        self.is_draft = is_draft


def supposed(without: Iterable[str], drafts: Iterable[str]) -> dict[str, Any]:
    """What a run keeps of it: the names of rules, and the current terms of drafts. Raises Unknown."""
    named, wanted = sorted(set(without)), sorted(set(drafts))
    in_force = set(Rule.objects.filter(name__in=named, active=True).values_list("name", flat=True))
    for name in named:
        if name not in in_force:
            raise Unknown(f"There is no rule {name!r} in force.")
    rows = RuleVersion.objects.filter(rule__name__in=wanted, state__in=RuleVersion.OPEN).select_related("rule")
    terms = {row.rule.name: row.terms for row in rows}
    for name in wanted:
        if name not in terms:
            raise Unknown(f"The rule {name!r} has no draft.", is_draft=True)
    return {WITHOUT: named, DRAFTS: [{"rule": name, "terms": terms[name]} for name in wanted]}


def suppose(rules: Iterable[Rule], wanted: dict[str, Any]) -> tuple[Rule, ...]:
    """The rules with what is supposed. Raises LookupError if a draft's rule, or a group, no longer exists."""
    made = tuple(rule for rule in rules if rule.name not in wanted.get(WITHOUT, ()))
    drafts = {draft["rule"]: draft["terms"] for draft in wanted.get(DRAFTS, ())}
    rows = list(Rule.objects.filter(name__in=drafts)) if drafts else []
    if gone := sorted(drafts.keys() - {row.name for row in rows}):
        raise LookupError(f"There is no longer a rule {gone[0]!r}.")
    for row in rows:
        draft = rule_terms.as_rule(row, drafts[row.name], rule_terms.groups_of(drafts[row.name]))
        made = with_draft(made, draft) if draft.active else tuple(rule for rule in made if rule.pk != row.pk)
    return made


def words(wanted: dict[str, Any]) -> list[str]:
    """What is supposed, as people read it. Empty: the rules in force."""
    drafts = [f"with the draft of {draft['rule']}" for draft in wanted.get(DRAFTS, ())]
    return [*drafts, *(f"without {name}" for name in wanted.get(WITHOUT, ()))]


def drafted() -> list[str]:
    """The names of rules that have a draft."""
    open_ = RuleVersion.objects.filter(state__in=RuleVersion.OPEN)
    return sorted(open_.values_list("rule__name", flat=True).distinct())


def in_force() -> list[str]:
    return list(Rule.objects.filter(active=True).order_by("order", "name").values_list("name", flat=True))
