"""Drafts of rules that watch: what each would have said of a live call, compared with what the rules said. Decides
nothing.

They are read with the rules, in the same query, and judged by the same evaluation.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Case, F, FilteredRelation, Q, QuerySet, Value, When

from approvals import policy, rule_terms
from approvals.masking import blotted, secret_texts
from approvals.models import Rule, RuleVersion

MAX_REASON = 300


@dataclass
class Shadow:
    """A watching draft, and the rule in force. `None` for a rule that was never in force."""

    row: Rule
    terms: dict[str, Any]
    digest: str

    @property
    def replaces(self) -> Rule | None:
        return self.row if self.row.active else None

    @cached_property
    def rule(self) -> Rule:
        """The rule as it would be. Raises whatever invalid terms raise."""
        return rule_terms.as_rule(self.row, self.terms)


def read() -> tuple[tuple[Rule, ...], tuple[Shadow, ...]]:
    """The rules in force, in order, with their groups; and the watching drafts. Two queries."""
    found = list(_found().all())
    for row in found:
        row.terms_digest = row.digest_in_force
    shadows = [Shadow(row, row.shadow_terms, row.shadow_digest) for row in found if row.shadow_digest]
    return tuple(row for row in found if row.active), tuple(shadows)


@functools.cache
def _found() -> QuerySet[Any]:
    watching = FilteredRelation("versions", condition=Q(versions__state=RuleVersion.State.SHADOW))
    in_force = FilteredRelation("versions", condition=Q(versions__state=RuleVersion.State.IN_FORCE))
    return (
        Rule.objects.annotate(
            watching=watching,
            shadow_terms=F("watching__terms"),
            shadow_digest=F("watching__terms_digest"),
            in_force=in_force,
            # The digest of its current version: something other than `rule_versions` may have written the rule since.
            digest_in_force=Case(
                When(in_force__number=F("version"), then=F("in_force__terms_digest")), default=Value("")
            ),
        )
        .filter(Q(active=True) | Q(watching__isnull=False))
        .prefetch_related("groups")
        .order_by("order", "name")
    )


def with_draft(rules: Iterable[Rule], draft: Rule) -> tuple[Rule, ...]:
    """The rules with a draft in place of what it would replace."""
    kept = [rule for rule in rules if rule.pk != draft.pk]
    return tuple(sorted([*kept, draft], key=lambda rule: (rule.order, rule.name)))


def verdicts(shadows: Sequence[Shadow], rules: Sequence[Rule], call: policy.Call) -> tuple[dict[str, Any], ...]:
    """What each draft about a call would have made of it. Errors are reported and stop nothing."""
    said = []
    for shadow in shadows:
        known = {"rule": shadow.row.name, "terms": shadow.digest}
        try:
            before = shadow.replaces
            if policy.addresses(shadow.rule, call) or (before is not None and policy.addresses(before, call)):
                ruling = policy.evaluate(with_draft(rules, shadow.rule), call)
                said.append({**known, "verdict": str(ruling.verdict), "reason": plain(ruling.reason, call)})
        except Exception as error:  # a draft may be wrong in any way its author did not foresee
            said.append({**known, "error": type(error).__name__})
    return tuple(said)


def plain(reason: str, call: policy.Call) -> str:
    """A reason without the secret arguments of its call, cut to a length."""
    if call.secret:
        reason = blotted(reason, secret_texts(call.arguments, call.secret))
    return reason[:MAX_REASON]
