"""Who holds the right to decide about what: people their own, and what others have lent them. Reads only.

What is lent is the membership of a group. A delegation counts by the rows of this moment: it has begun and is not
over, and its lender is active, may decide, and is in the group that is asked. What was lent is no membership, so it
cannot be lent on.
"""

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.auth.models import User
from django.db.models import (
    Case,
    CharField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce, Concat, NullIf, StrIndex, Trim

from approvals.clock import Now
from approvals.models import Approval, Decision, Delegation, Risk
from approvals.policy import RISK_ORDER

# With several ways to sign in, Django wants to be told which of them knows permissions.
_RIGHTS = "django.contrib.auth.backends.ModelBackend"
_EDITED_BY_ANOTHER = (Risk.HIGH, Risk.CRITICAL)


def deciders() -> QuerySet[User]:
    """Everybody with the right to decide, whatever about."""
    return User.objects.with_perm("approvals.decide_approval", backend=_RIGHTS)


def delegations() -> QuerySet[Delegation]:
    """What is lent at this moment, by those who may decide themselves."""
    return Delegation.objects.filter(ended_at__isnull=True, since__lte=Now(), until__gt=Now(), lender__in=deciders())


def covering(approval: Approval, risk: str = "") -> QuerySet[Delegation]:
    """What is lent about a request, whoever lends it and to whom. `risk`: as if it were of this one."""
    return _about(Value(approval.tool), Value(risk or approval.risk), groups__approval=approval.pk)


def lent_to(user: User) -> QuerySet[Delegation]:
    """What is lent to a person about each request of a query around this one."""
    return _about(OuterRef("tool"), OuterRef("risk"), groups__approval=OuterRef("pk"), deputy=user)


def visible(user: User) -> QuerySet[Approval]:
    """The requests a person may see: all, those they may be asked about, or those of their own runs.

    Of mocked runs none: nobody is asked about their calls. What became of them stands on the run's page.
    """
    if user.has_perm("approvals.view_approval"):
        return Approval.objects.filter(mocked=False)
    own = Q(starter=user)
    if user.has_perm("approvals.decide_approval"):
        links = Approval.groups.through.objects.filter(approval=OuterRef("pk"))
        own |= ~Exists(links) | Exists(links.filter(group__in=user.groups.all()))
        own |= Q(Exists(lent_to(user)))
    return Approval.objects.filter(own, mocked=False)


def lender_shown(user: User) -> Case:
    """A column for requests: the name of whoever lends this person the right to decide. Empty: it is their own."""
    links = Approval.groups.through.objects.filter(approval=OuterRef("pk"))
    full = NullIf(Trim(Concat("lender__first_name", Value(" "), "lender__last_name")), Value(""))
    named = Coalesce(full, F("lender__username"), output_field=CharField())
    own = Exists(links.filter(group__in=user.groups.all()))
    return Case(
        When(own, then=Value("")),
        default=Subquery(lent_to(user).order_by("created_at", "pk").annotate(named=named).values("named")[:1]),
        output_field=CharField(),
    )


def barred(approval: Approval) -> set[int]:
    """Those who have no say in a request, by whomever they speak: it is about what they did themselves."""
    found = set(approval.excluded)
    if approval.starter_excluded and approval.starter_id is not None:
        found.add(approval.starter_id)
    if approval.editor_id is not None and approval.risk in _EDITED_BY_ANOTHER:
        found.add(approval.editor_id)
    return found


def spent(approval: Approval) -> set[int]:
    """Those whose say has been had about a request: they gave it, or somebody gave it for them."""
    given = [each for each in approval.decisions.all() if each.undone_at is None]
    return {pk for each in given for pk in (each.user_id, each.on_behalf_of_id) if pk is not None}


def within(decisions: Iterable[Decision], groups: Collection[int], tool: str, risk: str) -> list[Decision]:
    """Of decisions, those that were in the right of somebody in one of these groups, their own or a lent one."""
    given = list(decisions)
    in_group = User.groups.through.objects.filter(group__in=groups, user__in=[each.user_id for each in given])
    members = set(in_group.values_list("user_id", flat=True))
    pairs: set[tuple[int, int]] = set()
    if any(each.on_behalf_of_id for each in given):
        lent = _about(Value(tool), Value(risk), groups__in=list(groups))
        pairs = set(lent.values_list("deputy_id", "lender_id"))
    return [
        each
        for each in given
        if ((each.user_id, each.on_behalf_of_id) in pairs if each.on_behalf_of_id else each.user_id in members)
    ]


def deputies(approval: Approval) -> QuerySet[Any, Any]:
    """To whom the right to decide about a request is lent, by somebody who has a say in it and has not had it."""
    spoken = approval.decisions.filter(undone_at__isnull=True)
    given = Q(lender__in=spoken.filter(user__isnull=False).values("user"))
    given |= Q(lender__in=spoken.filter(on_behalf_of__isnull=False).values("on_behalf_of"))
    return covering(approval).exclude(given).exclude(lender__in=barred(approval)).values("deputy")


def deputies_of_call(groups: Collection[int], tool: str, risk: str, without: Collection[int]) -> frozenset[int]:
    """To whom the right to decide about a call is lent that is yet to be asked about, by others than these."""
    lent = _about(Value(tool), Value(risk), groups__in=list(groups)).exclude(lender__in=without)
    return frozenset(lent.values_list("deputy_id", flat=True))


def _about(tool: Any, risk: Any, **asked: Any) -> QuerySet[Delegation]:
    """What is lent about calls of a tool at a risk. `asked` says of which groups."""
    named = StrIndex(Cast("tools", TextField()), Concat(Value('"'), tool, Value('"'), output_field=TextField()))
    reaches = Q(pk__in=[])
    for place, level in enumerate(RISK_ORDER):
        reaches |= Q(highest_risk=level, asked_risk__in=RISK_ORDER[: place + 1])
    found = delegations().alias(named=named, asked_risk=ExpressionWrapper(risk, output_field=CharField()))
    # One group is both asked and the lender's.
    return found.filter(Q(tools=[]) | Q(named__gt=0), reaches, groups__user=F("lender"), **asked)
