"""The life of a rule: drafted, simulated, activated, restored, switched off. The only writer of Rule and RuleVersion.

What is in force stays until a draft is activated, and a draft can only be activated after a simulation of exactly its
terms. A configuration file is reviewed where it is kept, so its rules come into force at once, as versions.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from approvals import configuration, ledger, policy, rule_terms
from approvals.models import Event, Rule, RuleVersion, Verdict
from approvals.standing import Refusal

# A simulation covers the last month. After a day, that is a different month.
FRESH = timedelta(days=1)
# The most drafts that watch at once: each adds a look at every call.
MAX_SHADOWS = 5
# A change to one of these makes a simulation out of date.
_SIMULATED = ("approvals.Rule", "agentapp.Tool")

State = RuleVersion.State


@dataclass(frozen=True)
class Simulated:
    """What a simulation found, and about what: the terms, and the configuration's height when it began."""

    digest: str
    height: int
    numbers: dict[str, Any]
    calls: list[dict[str, Any]]


def draft_of(rule: Rule) -> RuleVersion | None:
    """The rule's draft, watching or not."""
    return RuleVersion.objects.select_related("rule", "editor").filter(rule=rule, state__in=RuleVersion.OPEN).first()


def in_force(rule: Rule) -> RuleVersion | None:
    return RuleVersion.objects.filter(rule=rule, state=State.IN_FORCE).first()


def may_delete(rule: Rule) -> bool:
    """Whether a rule can be deleted at once: without it, nothing runs that waited or was refused before."""
    return rule.version == 0 or not rule.active or rule.verdict == Verdict.ALLOW


def naming(group: str) -> list[Rule]:
    """The rules that, in force or as a draft, name a group in thresholds or steps. Renaming it breaks them."""
    drafts = RuleVersion.objects.filter(state__in=RuleVersion.OPEN).select_related("rule")
    found = {
        rule.pk: rule for rule in Rule.objects.all() if group in rule_terms.named_in(rule_terms.terms_of(rule, ()))
    }
    found |= {draft.rule_id: draft.rule for draft in drafts if group in rule_terms.named_in(draft.terms)}
    return sorted(found.values(), key=lambda rule: rule.name)


def about(agent: str, route: str = "", *, of_any_agent: bool = True) -> list[Rule]:
    """The rules that, in force or as a draft, are for an agent of this name or for this route of it; also those for
    such a route of any agent.
    """

    def is_about(terms: Mapping[str, Any]) -> bool:
        if route:
            return terms.get("route") == route and terms.get("agent", "") in (agent, *([""] if of_any_agent else []))
        return terms.get("agent") == agent

    return _saying(is_about)


def about_tool(tool: str) -> list[Rule]:
    """The rules that, in force or as a draft, are for the tool of this name."""
    return _saying(lambda terms: terms.get("tool") == tool)


def _saying(it: Callable[[Mapping[str, Any]], bool]) -> list[Rule]:
    drafts = RuleVersion.objects.filter(state__in=RuleVersion.OPEN).select_related("rule")
    found = {
        rule.pk: rule
        for rule in Rule.objects.all()
        if it({"agent": rule.agent, "route": rule.route, "tool": rule.tool})
    }
    found |= {draft.rule_id: draft.rule for draft in drafts if it(draft.terms)}
    return sorted(found.values(), key=lambda rule: rule.name)


# --- Drafts --------------------------------------------------------------------------------------


def draft_new(rule: Rule, groups: Sequence[Group], user: User, actor: str) -> RuleVersion:
    """Keep a new rule as a draft. Its row exists for its name and decides nothing."""
    terms = rule_terms.terms_of(rule, [group.name for group in groups])
    with ledger.transaction():
        rule.version, rule.active = 0, False
        configuration.save(rule, actor, {rule_terms.GROUPS: groups})
        return _new_draft(rule, terms, user, actor)


def keep_draft(
    rule: Rule, terms: dict[str, Any], user: User, actor: str, restores: int | None = None
) -> RuleVersion | Refusal:
    """Make these terms the rule's draft, or change the draft it has. What is in force stays."""
    with ledger.transaction():
        _lock(rule)
        draft = draft_of(rule)
        if draft is None and rule.version and terms == _terms_now(rule):
            return Refusal("same", "Nothing was changed, so there is no draft to keep.")
        if draft is None:
            return _new_draft(rule, terms, user, actor, restores)
        digest = rule_terms.digest_of(terms)
        if digest == draft.terms_digest:
            return draft
        changed = {"state": State.DRAFT, "terms": terms, "terms_digest": digest, "restores": restores, "editor": user}
        _change(draft, actor, **changed, edited_at=timezone.now(), **_NOT_SIMULATED, shadowed_at=None)
        if not rule.version:
            _mirror(rule, terms)
        return draft


def restore(rule: Rule, number: int, user: User, actor: str) -> RuleVersion | Refusal:
    """Draft the terms of an earlier version again. It comes into force like any draft, under a new number."""
    with ledger.transaction():
        _lock(rule)
        earlier = rule.versions.filter(number=number).first()
        if earlier is None:
            return Refusal("no_version", f"There is no version {number} of this rule.")
        if draft_of(rule) is not None:
            return Refusal("has_draft", "There is already a draft. Activate or discard it first.")
        known = {**_terms_now(rule), **earlier.terms}  # a column added after the version keeps its value
        return keep_draft(rule, known, user, actor, restores=number)


def discard(draft: RuleVersion, actor: str) -> bool:
    """Throw a draft away, and the row of a rule that was never in force. False: it is no longer a draft."""
    with ledger.transaction():
        _lock(draft.rule)
        if not RuleVersion.objects.filter(pk=draft.pk, state__in=RuleVersion.OPEN).exists():
            return False
        rule = Rule.objects.get(pk=draft.rule_id)
        configuration.delete(rule if rule.version == 0 else draft, actor)
        return True


def watch(draft_id: uuid.UUID, digest: str, on: bool, actor: str) -> RuleVersion | Refusal:
    """Make a draft watch every call from now on, or stop it. Either way it decides nothing."""
    with ledger.transaction():
        _lock_rules()
        draft = _open(draft_id)
        if draft is None or draft.terms_digest != digest:
            return _OVERTAKEN
        if on and RuleVersion.objects.filter(state=State.SHADOW).exclude(pk=draft.pk).count() >= MAX_SHADOWS:
            return Refusal("too_many", f"{MAX_SHADOWS} drafts are already watching. Stop one of them first.")
        if on and draft.state == State.SHADOW:
            return draft
        if on:
            _change(draft, actor, state=State.SHADOW, shadowed_at=timezone.now())
        else:
            _change(draft, actor, state=State.DRAFT)
        return draft


def note_simulation(draft_id: uuid.UUID, found: Simulated, actor: str) -> RuleVersion | Refusal:
    """Keep what a simulation of a draft found. Refused if its terms have changed meanwhile."""
    with ledger.transaction():
        draft = _open(draft_id, locked=True)
        if draft is None or draft.terms_digest != found.digest:
            return _OVERTAKEN
        _change(
            draft,
            actor,
            simulated_at=timezone.now(),
            simulated_digest=found.digest,
            simulated_height=found.height,
            simulation=found.numbers,
            simulated_calls=found.calls,
        )
        return draft


# --- Coming into force -----------------------------------------------------------------------------


def why_not(draft: RuleVersion, user: User) -> Refusal | None:
    """Why somebody cannot activate a draft as it stands. None: they can. The caller checks their rights."""
    if draft.simulated_at is None or draft.simulated_digest != draft.terms_digest:
        return Refusal("not_simulated", "Simulate it first: nobody has seen yet what it would change.")
    if timezone.now() - draft.simulated_at > FRESH:
        return Refusal("simulation_old", "Its simulation is more than a day old. Simulate it again.")
    if _changed_since(draft.simulated_height or 0):
        return Refusal("configuration_changed", "Rules or tools have changed since its simulation. Simulate it again.")
    if settings.RULES_NEED_SECOND_PERSON and draft.editor_id == user.pk:
        return Refusal("second_person", "You changed it last, so somebody else must activate it.")
    return None


def activate(draft_id: uuid.UUID, digest: str, user: User, actor: str, why: str = "") -> RuleVersion | Refusal:
    """Bring a draft into force as its reviewer saw it. Of two people who do so at once, one is told of the other."""
    with ledger.transaction():
        _lock_rules()
        draft = _open(draft_id)
        if draft is None or draft.terms_digest != digest:
            return _OVERTAKEN
        refusal = why_not(draft, user)
        if refusal is not None:
            return refusal
        rule = draft.rule
        found = _ready(rule, draft.terms)
        if isinstance(found, Refusal):
            return found
        _retire(rule, actor)
        rule.version += 1
        second = {"needed_second_person": settings.RULES_NEED_SECOND_PERSON, "activator": user}
        if not _change(draft, actor, number=rule.version, why=why.strip(), **second, **_active(actor)):
            raise AssertionError("A draft was activated despite the lock on its rule.")
        for name, value in rule_terms.columns(draft.terms).items():
            setattr(rule, name, value)
        configuration.save(rule, actor, {rule_terms.GROUPS: found})
        return draft


def switch_off(rule: Rule, user: User, actor: str) -> RuleVersion | Refusal:
    """Take an allowing rule out of force at once: what it let run now waits for a person. Other rules need a draft."""
    with ledger.transaction():
        _lock_rules()
        rule = Rule.objects.get(pk=rule.pk)
        if not rule.active:
            return Refusal("same", f"{rule.name} already decides nothing.")
        if rule.verdict != Verdict.ALLOW:
            return Refusal("needs_simulation", f"Without {rule.name}, calls may run that now wait or are refused. "
                           "Draft it switched off, simulate the draft, and activate it.")  # fmt: skip
        _retire(rule, actor)
        rule.active = False
        configuration.save(rule, actor)
        return _as_version(rule, actor, RuleVersion.Origin.SWITCH, "Switched off at once.", user)


def delete(rule: Rule, actor: str) -> bool:
    """Remove a rule that decides nothing or only allows, with its versions. False: without it, more would run."""
    with ledger.transaction():
        _lock_rules()
        stored = Rule.objects.filter(pk=rule.pk).first()
        if stored is None or not may_delete(stored):
            return False
        configuration.delete(stored, actor)
        return True


def load(row: Rule, actor: str, many: Mapping[str, Sequence[models.Model]], why: str) -> configuration.Change | None:
    """Store a rule as a configuration file wants it, as a version in force. None: nothing changed."""
    with ledger.transaction():
        if not row._state.adding:
            _lock(row)
            _kept(Rule.objects.get(pk=row.pk), actor)
        change = configuration.save(row, actor, many)
        if change is not None:
            _retire(row, actor, keep=False)
            _as_version(row, actor, RuleVersion.Origin.FILE, why)
        return change


# --- Rows ------------------------------------------------------------------------------------------

_OVERTAKEN = Refusal("changed", "Somebody was here before you: the draft has changed or is in force. Look again.")
_NOT_SIMULATED: dict[str, Any] = {
    "simulated_at": None, "simulated_digest": "", "simulated_height": None, "simulation": {}, "simulated_calls": [],
}  # fmt: skip


def _open(draft_id: uuid.UUID, locked: bool = False) -> RuleVersion | None:
    found = RuleVersion.objects.select_related("rule").filter(pk=draft_id, state__in=RuleVersion.OPEN)
    return (found.select_for_update(of=("self",)) if locked else found).first()


def _new_draft(rule: Rule, terms: dict[str, Any], user: User, actor: str, restores: int | None = None) -> RuleVersion:
    _kept(rule, actor)
    draft = RuleVersion(
        rule=rule, terms=terms, terms_digest=rule_terms.digest_of(terms), editor=user, edited_at=timezone.now(),
        restores=restores,
    )  # fmt: skip
    configuration.save(draft, actor)
    return draft


def _change(draft: RuleVersion, actor: str, **columns: Any) -> int:
    """Change a draft that is still one, and record it. 0: it no longer is."""
    was = configuration.before(draft)
    changed = RuleVersion.objects.filter(pk=draft.pk, state__in=RuleVersion.OPEN).update(**columns)
    if changed:
        for name, value in columns.items():
            setattr(draft, name, value)
        configuration.record_change(draft, was, actor)
    return changed


def _active(actor: str) -> dict[str, Any]:
    return {"state": State.IN_FORCE, "activated_by": actor[: ledger.MAX_ACTOR], "activated_at": timezone.now()}


def _as_version(rule: Rule, actor: str, origin: str, why: str, user: User | None = None) -> RuleVersion:
    """Keep the rule's current terms as its version in force."""
    terms = rule_terms.terms_of(rule)
    version = RuleVersion(
        rule=rule, number=rule.version, origin=origin, terms=terms, terms_digest=rule_terms.digest_of(terms),
        edited_at=timezone.now(), activator=user, why=why, **_active(actor),
    )  # fmt: skip
    configuration.save(version, actor)
    return version


def _kept(rule: Rule, actor: str) -> None:
    """Make sure that what is in force is a version, even if something else has written the rule."""
    current = in_force(rule)
    if not rule.version or (current is not None and current.number == rule.version):
        return
    _retire(rule, actor, keep=False)
    if not rule.versions.filter(number=rule.version).exists():
        # The stored row: a form that edits a rule passes an object that already holds what was typed.
        stored = Rule.objects.get(pk=rule.pk)
        _as_version(stored, ledger.SYSTEM, RuleVersion.Origin.FOUND, "In force before versions of it were kept.")


def _retire(rule: Rule, actor: str, keep: bool = True) -> None:
    if keep:
        _kept(rule, actor)
    current = in_force(rule)
    if current is not None:
        was = configuration.before(current)
        RuleVersion.objects.filter(pk=current.pk, state=State.IN_FORCE).update(state=State.RETIRED)
        configuration.record_change(current, was, actor)


def _ready(rule: Rule, terms: dict[str, Any]) -> list[Group] | Refusal:
    """The groups of terms that can come into force, or why they cannot."""
    if rule.version and terms == _terms_now(rule):
        return Refusal("same", "This is already in force.")
    wanted = rule_terms.as_rule(rule, terms)
    wanted.version = rule.version + 1
    try:
        wanted.clean_fields(exclude=Rule.IDENTITY)
        wanted.validate_constraints()
        policy.validate_condition(wanted.condition)
        return rule_terms.groups_of(terms)
    except ValidationError as error:
        return Refusal("invalid", " ".join(error.messages))
    except LookupError as error:
        return Refusal("invalid", f"{error.args[0]} Change the draft.")


def _terms_now(rule: Rule) -> dict[str, Any]:
    return rule_terms.terms_of(Rule.objects.get(pk=rule.pk))


def _mirror(rule: Rule, terms: dict[str, Any]) -> None:
    """Show a rule that was never in force as in its draft. The draft's own event says what changed."""
    wanted = {**rule_terms.columns(terms), "active": False}
    Rule.objects.filter(pk=rule.pk, version=0).update(**wanted)
    rule.groups.set(Group.objects.filter(name__in=terms.get(rule_terms.GROUPS, [])))


def _changed_since(height: int) -> bool:
    """Whether anything that a simulation looks at has changed since this height."""
    named = models.Q(pk__in=[])
    for table in _SIMULATED:
        named |= models.Q(body__contains=f'"table":"{table}"')
    since = Event.objects.filter(chain=ledger.CONFIGURATION, seq__gt=height, type__startswith="configuration.")
    # The row of a rule that was never in force comes and goes with its draft, which affects no other rule.
    drafts = models.Q(type__in=["configuration.created", "configuration.deleted"], body__contains='"version":0')
    return since.filter(named).exclude(drafts).exists()


def _lock(rule: Rule) -> None:
    """Let one writer at a time change a rule and its versions."""
    list(Rule.objects.select_for_update().filter(pk=rule.pk).values_list("pk"))


def _lock_rules() -> None:
    """Let one rule at a time come into force: each was simulated with all the others."""
    list(Rule.objects.select_for_update().order_by("pk").values_list("pk"))
