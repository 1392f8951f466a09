"""Who holds the right to decide about what: people their own, and what others have lent them. Reads only.

What is lent is the membership of a group. A delegation counts by the rows of this moment: it has begun and is not
over, and its lender is active, may decide, and is in the group that is asked. What was lent is no membership, so it
cannot be lent on.
"""

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db.models import (
    Case,
    CharField,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
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
from approvals.models import HIGH_RISKS, Approval, Decision, DecisionType, Delegation, Question
from approvals.policy import RISK_ORDER
from approvals.prepared import Given, Prepared

# With several ways to sign in, Django wants to be told which of them knows permissions.
_RIGHTS = "django.contrib.auth.backends.ModelBackend"

type Person = int | Given
"""Somebody's id, or where it goes in a statement that is put together once and asked for everybody."""


class Sight(Enum):
    """Which requests somebody may see: all, those they may be asked about and of their own runs, or these alone."""

    ALL = "all"
    ASKED = "asked"
    OWN = "own"


def deciders() -> QuerySet[User]:
    """Everybody with the right to decide, whatever about."""
    return User.objects.with_perm("approvals.decide_approval", backend=_RIGHTS)


def delegations() -> QuerySet[Delegation]:
    """What is lent at this moment, by those who may decide themselves."""
    return Delegation.objects.filter(ended_at__isnull=True, since__lte=Now(), until__gt=Now(), lender__in=deciders())


def covering(approval: Approval, risk: str = "") -> QuerySet[Delegation]:
    """What is lent about a request, whoever lends it and to whom. `risk`: as if it were of this one."""
    return _about(Value(approval.tool), Value(risk or approval.risk), groups__approval=approval.pk)


def lent_to(person: Person) -> QuerySet[Delegation]:
    """What is lent to a person about each request of a query around this one."""
    return _about(OuterRef("tool"), OuterRef("risk"), groups__approval=OuterRef("pk"), deputy=person)


def groups_of(person: Person) -> QuerySet[Any, Any]:
    """The groups somebody is in, for a query around this one."""
    return User.groups.through.objects.filter(user=person).values("group")


def visible(user: User) -> QuerySet[Approval]:
    """The requests a person may see."""
    return seen(sight_of(user), user.pk)


def sight_of(user: User) -> Sight:
    if user.has_perm("approvals.view_approval"):
        return Sight.ALL
    return Sight.ASKED if user.has_perm("approvals.decide_approval") else Sight.OWN


def seen(sight: Sight, person: Person) -> QuerySet[Approval]:
    """The requests that a person of this sight may see.

    Of mocked runs none: nobody is asked about their calls. What became of them stands on the run's page.
    """
    if sight is Sight.ALL:
        return Approval.objects.filter(mocked=False)
    own = Q(starter=person)
    if sight is Sight.ASKED:
        links = Approval.groups.through.objects.filter(approval=OuterRef("pk"))
        own |= ~Exists(links) | Exists(links.filter(group__in=groups_of(person)))
        own |= Q(Exists(lent_to(person)))
    return Approval.objects.filter(own, mocked=False)


class Seen[T]:
    """A question about the requests somebody may see, put together once for each sight.

    `build` makes it of a sight and a person. `sees_all_apart`: whoever may see all is asked nothing about themselves.
    """

    def __init__(self, build: "Callable[[Sight, Person], QuerySet[Any, T]]", *, sees_all_apart: bool = False) -> None:
        reader = Given("reader", IntegerField())
        self._asked = {sight: Prepared(partial(build, sight, reader)) for sight in Sight}
        self._without_reader = {Sight.ALL} if sees_all_apart else set()

    def rows(self, user: User, **given: Any) -> list[T]:
        """Ask for a person, with the other values that the question is given."""
        sight = sight_of(user)
        about = {} if sight in self._without_reader else {"reader": user.pk}
        return self._asked[sight].rows(**about, **given)

    def first(self, user: User, **given: Any) -> T | None:
        """As `Prepared.first`."""
        return next(iter(self.rows(user, **given)), None)


def lender_shown(person: Person) -> Case:
    """A column for requests: the name of whoever lends this person the right to decide. Empty: it is their own."""
    links = Approval.groups.through.objects.filter(approval=OuterRef("pk"))
    full = NullIf(Trim(Concat("lender__first_name", Value(" "), "lender__last_name")), Value(""))
    named = Coalesce(full, F("lender__username"), output_field=CharField())
    own = Exists(links.filter(group__in=groups_of(person)))
    return Case(
        When(own, then=Value("")),
        default=Subquery(lent_to(person).order_by("created_at", "pk").annotate(named=named).values("named")[:1]),
        output_field=CharField(),
    )


def barred(approval: Approval) -> set[int]:
    """Those who have no say in a request, by whomever they speak: it is about what they did themselves."""
    found = set(approval.excluded)
    if approval.starter_excluded and approval.starter_id is not None:
        found.add(approval.starter_id)
    if approval.risk in HIGH_RISKS:
        found |= editors(approval)
    return found


def editors(approval: Approval) -> set[int]:
    """Who made a request's arguments, on the one it replaces or before the last change of this one, and whose right
    they used: the two count as one. With them who asked the agent or told it what to propose, as its card has it.
    """
    made = {pk for pk in (approval.editor_id, approval.editor_lender_id) if pk is not None}
    earlier = people_of(changes_of(approval)[1:]) if approval.is_edited else set()
    return made | earlier | in_whole(approval) | in_parts(approval)


def changes_of(approval: Approval) -> list[Decision]:
    """The changes by which a request came to its arguments, the last first: the one that stands, the one it was made
    on, and so on. One that was taken back is none of them, nor is what had stood before it.
    """
    made = [each for each in approval.decisions.all() if each.type == DecisionType.EDIT]
    made.sort(key=lambda each: each.approval_version, reverse=True)
    found: list[Decision] = []
    for each in made:
        # A change ends the one before it in the same transaction, so never earlier than it was made itself.
        if each.undone_at is None or (found and each.undone_at >= found[-1].decided_at):
            found.append(each)
        elif found:
            break
    return found


def people_of(decisions: Iterable[Decision]) -> set[int]:
    """Who gave these, and whose right they used."""
    return {pk for each in decisions for pk in (each.user_id, each.on_behalf_of_id) if pk is not None}


def in_whole(approval: Approval) -> set[int]:
    """Who had a hand in a request's arguments as a whole: they asked, and the agent proposed these instead."""
    return {pk for row in approval.provenance if not row.get("path") for pk in row.get("by", ())}


def in_parts(approval: Approval) -> set[int]:
    """In whose words about an earlier call some of a request's values stand."""
    return {pk for row in approval.provenance if row.get("path") for pk in row.get("by", ())}


def had_a_hand(replaced: Approval, edits: Iterable[Decision], asked: Iterable[Question]) -> set[int]:
    """Who had a hand in what a request had come to, with its edits, and in what was proposed after these questions."""
    made = {pk for pk in (replaced.editor_id, replaced.editor_lender_id) if pk is not None}
    return in_whole(replaced) | {question.asker_id for question in asked} | made | people_of(edits)


def why_editor(approval: Approval, person: int) -> str:
    """How somebody came by a request's arguments, told to themselves."""
    changes = changes_of(approval)
    if person in (approval.editor_id, *(each.user_id for each in changes)):
        return "You changed these arguments"
    if person in (approval.editor_lender_id, *(each.on_behalf_of_id for each in changes)):
        return "These were changed for you"
    return "What you asked or said went into these arguments"


def spent(approval: Approval) -> set[int]:
    """Those whose say has been had about a request: they gave it, or somebody gave it for them."""
    return people_of(each for each in approval.decisions.all() if each.undone_at is None)


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
