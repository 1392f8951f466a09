"""The only writer of Grant and GrantLimit: what people allow for a while, and how much of it has been used.

Making and revoking a grant changes the configuration, so that its readers read it again. What a call uses is recorded
in its run's chain. The caller is inside `ledger.transaction()`.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet

from approvals import entitlement, ledger
from approvals.clock import Now
from approvals.digest import canonical, storable, storable_json
from approvals.granted import ANY, AT_MOST, IS, Wanted, covers, number_of, takes
from approvals.masking import masked
from approvals.models import HIGH_RISKS, Approval, ApprovalKind, Grant, GrantLimit, Risk
from approvals.sealed import ERASED, sealed
from approvals.standing import Refusal, right_of

MAX_REASON = 500
MAX_HITS = 10_000
MAX_AMOUNT = Decimal(10) ** 12
MAX_CONSTRAINTS_CHARS = 64 * 1024
MAX_LIMITS = 10
RIGHT = "approvals.add_grant"

# A grant can be made from these requests: open ones, and approved ones that were used.
_STATES = (*Approval.OPEN, Approval.State.USED)


@dataclass(frozen=True)
class Terms:
    """What a person allows, for how long and how often."""

    constraints: Sequence[Mapping[str, Any]]
    days: int
    reason: str
    max_hits: int | None = None
    limits: Sequence[tuple[str, str, Decimal]] = ()
    """What calls may use in total: kind, name, the most."""


class _NoRoom(Exception):
    """Too little is left of a grant; nothing was used of it."""


def in_force(agent: str) -> list[Grant]:
    """The grants for an agent that stand now, oldest first, with their limits."""
    return list(standing_grants().filter(agent=agent).prefetch_related("limits").order_by("id"))


def standing_grants() -> QuerySet[Grant]:
    """Grants that are not revoked, over or used up. Whatever else may void one is checked when it is used."""
    left = Q(max_hits__isnull=True) | Q(hits__lt=F("max_hits"))
    return Grant.objects.filter(left, revoked_at__isnull=True, expires_at__gt=Now())


def may_make(user: User, approval: Approval) -> Refusal | None:
    """None if this person may make a grant from this request, as far as the request says; otherwise why not."""
    if not user.is_active or not user.has_perm(RIGHT):
        return Refusal("forbidden", "Allowing calls for a while needs the right to add grants.")
    if approval.starter_id == user.pk:
        return Refusal("starter", "You started this run, so someone else must decide about its calls.")
    right = right_of(user, approval)
    if isinstance(right, Refusal):
        return right
    if right.lender is not None:
        return Refusal(
            "forbidden", "You decide about this for somebody else. Only they can allow such calls in advance."
        )
    if approval.risk in HIGH_RISKS and user.pk in _editors(approval):
        why = entitlement.why_editor(approval, user.pk)
        return Refusal("editor", f"{why}, so somebody else must allow calls like this one.")
    if approval.kind != ApprovalKind.AUTHORIZATION or approval.approvals_needed > 1:
        return Refusal(
            "not_grantable", "Several people or the customer decide this, so one person cannot allow it in advance."
        )
    if approval.effect_class not in Grant.EFFECT_CLASSES:
        return Refusal("not_grantable", "Only calls that can be undone or made good can be allowed for a while.")
    if approval.risk == Risk.CRITICAL:
        return Refusal("not_grantable", "A critical call needs a decision each time, so no grant can allow it.")
    if approval.assurance_needed:
        return Refusal("not_grantable", "The approver must show who they are each time, so no grant can allow this.")
    if approval.state not in _STATES:
        return Refusal("not_grantable", "Nothing came of this request, so no grant can be made from it.")
    if approval.erased_at is not None:
        return Refusal("not_grantable", "This request was erased, so no grant can be made from it.")
    return None


def _editors(approval: Approval) -> set[int]:
    """Who made a request's arguments, on it or on the one it replaces, and whose right they used."""
    made = entitlement.people_of(entitlement.changes_of(approval)) if approval.is_edited else set()
    return entitlement.editors(approval) | made


def make(approval: Approval, terms: Terms, user: User) -> Grant | Refusal:
    """Allow calls like a request's, for a while. Refusal: this person may not, or not on these terms."""
    refusal = may_make(user, approval) or _problem(approval, terms)
    if refusal is not None:
        return refusal
    days = timedelta(days=terms.days)
    grant = Grant(
        approval=approval,
        tool=approval.tool,
        tool_version=approval.tool_version,
        effect_class=approval.effect_class,
        agent=approval.agent,
        risk=approval.risk,
        constraints=storable_json([dict(each) for each in terms.constraints]),
        reason=storable(terms.reason.strip()),
        made_by=user,
        made_at=Now(),
        expires_at=Now() + days,
        max_hits=terms.max_hits,
    )
    grant.save(force_insert=True)
    grant.refresh_from_db()
    for kind, name, most in terms.limits:
        GrantLimit.objects.create(grant=grant, kind=kind, name=name, most=most)
    ledger.record(ledger.CONFIGURATION, "grant.made", _facts(grant), ledger.actor_of(user))
    return grant


def revoke(grant_id: uuid.UUID, user: User, why: str) -> bool:
    """End a grant at once. False: it was revoked before. The caller holds the lock on the row of its request's run.

    If its request is erased, the reason is not kept: nobody would erase it.
    """
    is_erased = Approval.objects.filter(grants=grant_id, erased_at__isnull=False).exists()
    words = ERASED if is_erased else storable(why)[:MAX_REASON]
    changed = Grant.objects.filter(pk=grant_id, revoked_at__isnull=True).update(
        revoked_at=Now(), revoked_by=user, revoked_why=words
    )
    if changed:
        approval = Grant.objects.select_related("approval").get(pk=grant_id).approval
        data = {"grant": str(grant_id), "approval": str(approval.pk), "why": sealed(words, approval.salt)}
        ledger.record(ledger.CONFIGURATION, "grant.revoked", data, ledger.actor_of(user))
    return bool(changed)


def use(grant: Grant, wanted: Wanted, run_id: uuid.UUID, execution_id: uuid.UUID) -> bool:
    """Count one call under a grant, in the transaction in which it begins. False: the grant does not allow it now."""
    if not _maker_stands(grant, wanted):
        return False
    try:
        with ledger.transaction():
            # This change locks the row: of two workers that want its last call, the second comes too late.
            if not standing_grants().filter(pk=grant.pk).update(hits=F("hits") + 1, last_used_at=Now()):
                return False
            current = Grant.objects.prefetch_related("limits").get(pk=grant.pk)
            if not covers(current, wanted):
                raise _NoRoom
            for limit in current.limits.all():
                # A running tool counts on its own, without this grant's lock: what it has counted stays.
                if taken := takes(limit, wanted.arguments):
                    # Added exactly, which SQLite would not do. The grant's lock keeps others out.
                    limit.used += taken
                    GrantLimit.objects.filter(pk=limit.pk).update(used=limit.used)
            left = {str(limit): str(limit.left) for limit in current.limits.all()}
            data = {"grant": str(grant.pk), "execution": str(execution_id), "hits": current.hits, "left": left}
            ledger.record(ledger.run_chain(run_id), "grant.used", data)
    except _NoRoom:
        return False
    return True


def count(grant_id: uuid.UUID, name: str, number: int) -> bool:
    """Take what a tool is about to do from its grant's limit. False: not enough is left.

    The tool itself calls this, in its own thread and outside the run's lock. The total is in the record of the call.
    """
    counted = GrantLimit.objects.filter(grant_id=grant_id, kind=GrantLimit.Kind.COUNT, name=name)
    if counted.filter(used__lte=F("most") - number).update(used=F("used") + number):
        return True
    return not counted.exists()


def _maker_stands(grant: Grant, wanted: Wanted) -> bool:
    """Whether the grant's maker could decide about this call today."""
    maker = User.objects.filter(pk=grant.made_by_id, is_active=True).first()
    if maker is None or not maker.has_perms(["approvals.decide_approval", RIGHT]):
        return False
    groups = wanted.ruling.groups
    return not groups or maker.groups.filter(pk__in=groups).exists()


def _problem(approval: Approval, terms: Terms) -> Refusal | None:
    """What is wrong with the terms a person gave."""
    if not 1 <= terms.days <= settings.GRANT_MAX_DAYS:
        return Refusal("days", f"Give a number of days from 1 to {settings.GRANT_MAX_DAYS}.")
    if not 1 <= len(terms.reason.strip()) <= MAX_REASON:
        return Refusal("reason", "Say why, in up to 500 characters. It stays on record.")
    if terms.max_hits is not None and not 1 <= terms.max_hits <= MAX_HITS:
        return Refusal("max_hits", f"Give a number of calls from 1 to {MAX_HITS:,}, or leave it out.")
    return wrong_constraint(approval, terms) or _wrong_limit(terms)


def wrong_constraint(approval: Approval, terms: Terms) -> Refusal | None:
    """What is wrong with the constraints on the arguments, before other calls are compared with them."""
    names = [each.get("name") for each in terms.constraints]
    if len(set(names)) != len(names) or len(canonical(list(terms.constraints))) > MAX_CONSTRAINTS_CHARS:
        return Refusal("constraints", "Set one constraint for each argument, and no more than fit on a page.")
    for each in terms.constraints:
        name, rule = each["name"], each["rule"]
        if rule not in (IS, AT_MOST, ANY):
            return Refusal(name, "Choose what values this argument may have.")
        if rule == AT_MOST and number_of(each.get("value")) is None:
            return Refusal(name, "Give a plain number from 0.")
        said = {name: each.get("value")}
        if rule != ANY and masked(said, approval.secret_fields) != said:
            return Refusal(name, "A grant does not store secrets, so it cannot require a particular one.")
    if approval.arguments and all(each["rule"] == ANY for each in terms.constraints):
        return Refusal("constraints", "Constrain at least one argument; otherwise every call would be allowed.")
    return None


def _wrong_limit(terms: Terms) -> Refusal | None:
    if len(terms.limits) > MAX_LIMITS or len({limit[:2] for limit in terms.limits}) != len(terms.limits):
        return Refusal("limits", "Set only one limit for each thing.")
    for _kind, name, most in terms.limits:
        if not most.is_finite() or not 0 < most <= MAX_AMOUNT or most != most.quantize(Decimal("0.0001")):
            return Refusal(f"limit:{name}", "Give a number above 0 with at most four decimals.")
    return None


def _facts(grant: Grant) -> dict[str, Any]:
    return {
        "grant": str(grant.pk),
        "reference": grant.reference,
        "approval": str(grant.approval_id),
        "tool": grant.tool,
        "tool_version": grant.tool_version,
        "agent": grant.agent,
        "constraints": [_sealed(each, grant.approval.salt) for each in grant.constraints],
        "limits": [[limit.kind, limit.name, str(limit.most)] for limit in grant.limits.all()],
        "max_hits": grant.max_hits,
        "expires_at": grant.expires_at.isoformat(),
        "reason": sealed(grant.reason, grant.approval.salt),
    }


def _sealed(constraint: Mapping[str, Any], salt: str) -> dict[str, Any]:
    """What the ledger says of a constraint: its bounds, and an exact value only as a digest."""
    if constraint["rule"] != IS:
        return dict(constraint)
    return {"name": constraint["name"], "rule": IS, "value": sealed(canonical(constraint.get("value")), salt)}


def erase(approvals: Sequence[uuid.UUID]) -> None:
    """Erase what grants made from these requests say about arguments, and their reasons. A grant in force ends."""
    for grant in Grant.objects.filter(approval__in=approvals):
        bounds = [each if each["rule"] == ANY else {**each, "rule": IS, "value": ERASED} for each in grant.constraints]
        Grant.objects.filter(pk=grant.pk).update(constraints=bounds, reason=ERASED)
    left = Grant.objects.filter(approval__in=approvals)
    left.exclude(revoked_why="").update(revoked_why=ERASED)
    left.filter(expires_at__gt=Now()).update(expires_at=Now())
