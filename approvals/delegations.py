"""The only writer of Delegation: the right to decide for your groups, lent to somebody for a time.

Only membership of a group is lent. The deputy already holds the right to decide, critical calls stay with the people
whose right it is, and a lent right cannot be lent on. Whether a delegation counts is asked each time, in `entitlement`.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet

from approvals import entitlement, ledger
from approvals.clock import Now
from approvals.models import Delegation, Risk
from approvals.standing import Refusal

LONGEST = timedelta(days=30)
# The most at a time: more than anybody can keep in mind.
MOST = 20
MAX_TOOLS = 50
MAX_TOOL_CHARS = 120
RISKS = (Risk.LOW, Risk.MEDIUM, Risk.HIGH)


@dataclass(frozen=True)
class Scope:
    """What is lent: for which groups' requests, for which tools (none named: all), up to which risk."""

    groups: Collection[int]
    tools: tuple[str, ...] = ()
    highest_risk: str = Risk.HIGH


def deputies(user: User) -> QuerySet[User]:
    """The people a person can lend their right to: everybody else who may decide."""
    return entitlement.deciders().exclude(pk=user.pk).order_by("first_name", "username")


def lent_by(user: User) -> QuerySet[Delegation]:
    """What a person has lent or will have lent, and that is not over yet."""
    return _not_over().filter(lender=user)


def lent_to(user: User) -> QuerySet[Delegation]:
    """What is lent to a person, now or later."""
    return _not_over().filter(deputy=user)


def about_tool(tool: str) -> list[Delegation]:
    """What is lent, now or later, for a tool by name."""
    return [delegation for delegation in _not_over().exclude(tools=[]) if tool in delegation.tools]


def begin(lender: User, deputy: User, since: datetime, until: datetime, scope: Scope) -> Delegation | Refusal:
    """Lend your right to decide from `since` to `until`. Earlier delegations are not affected."""
    refused = _refusal(lender, deputy, since, until, scope)
    if refused is not None:
        return refused
    groups = list(lender.groups.filter(pk__in=scope.groups).order_by("name"))
    with ledger.transaction():
        delegation: Delegation = Delegation.objects.create(
            lender=lender,
            deputy=deputy,
            since=since,
            until=until,
            tools=list(scope.tools),
            highest_risk=scope.highest_risk,
            created_at=Now(),
        )
        delegation.groups.set(groups)
        data = {
            "delegation": str(delegation.pk),
            "lender": lender.get_username(),
            "deputy": deputy.get_username(),
            "groups": [group.name for group in groups],
            "tools": list(scope.tools),
            "highest_risk": str(scope.highest_risk),
            "since": since.isoformat(),
            "until": until.isoformat(),
        }
        ledger.record(ledger.CONFIGURATION, "delegation.begun", data, ledger.actor_of(lender))
    return delegation


def end(delegation_id: uuid.UUID, by: User, via: str = "") -> bool:
    """End a delegation at once. Its lender may, and so may anyone with the right to end others'. False: nothing was
    ended.
    """
    standing = Delegation.objects.filter(pk=delegation_id, ended_at__isnull=True, until__gt=Now())
    if not by.has_perm("approvals.revoke_delegation"):
        standing = standing.filter(lender=by)
    with ledger.transaction():
        # A decision made under it holds the row until it is stored.
        ended = standing.update(ended_at=Now(), ended_by=by)
        if ended:
            delegation = Delegation.objects.select_related("lender", "deputy").get(pk=delegation_id)
            data = {"delegation": str(delegation_id), "lender": delegation.lender.get_username()}
            data["deputy"] = delegation.deputy.get_username()
            ledger.record(ledger.CONFIGURATION, "delegation.ended", data, ledger.actor_of(by, via))
    return bool(ended)


def _refusal(lender: User, deputy: User, since: datetime, until: datetime, scope: Scope) -> Refusal | None:
    if until <= since:
        return Refusal("invalid", "A delegation must end after it begins.")
    if until - since > LONGEST:
        return Refusal("too_long", f"A delegation lasts {LONGEST.days} days at most. Lend it again later if needed.")
    if not lender.is_active or not lender.has_perm("approvals.decide_approval"):
        return Refusal("forbidden", "You have no right to decide, so there is nothing to lend.")
    if not deputies(lender).filter(pk=deputy.pk).exists():
        return Refusal("may_not_decide", "Only somebody else who may decide can decide for you.")
    wanted = set(scope.groups)
    own = set(Group.objects.filter(user=lender, pk__in=wanted).values_list("pk", flat=True))
    if not wanted or wanted != own:
        return Refusal("invalid", "Choose groups that you are in yourself: you cannot lend what was lent to you.")
    if scope.highest_risk not in RISKS:
        return Refusal("invalid", "The right to decide critical calls cannot be lent. Choose a lower risk.")
    if len(scope.tools) > MAX_TOOLS or any(not name or len(name) > MAX_TOOL_CHARS for name in scope.tools):
        return Refusal("invalid", f"Name up to {MAX_TOOLS} tools.")
    if lent_by(lender).count() >= MOST:
        return Refusal("too_many", f"You can have at most {MOST} delegations at a time. End one first.")
    return None


def _not_over() -> QuerySet[Delegation]:
    found = Delegation.objects.filter(Q(ended_at__isnull=True), until__gt=Now())
    return found.select_related("lender", "deputy").prefetch_related("groups").order_by("since", "created_at")
