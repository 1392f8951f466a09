"""Who holds the right to decide about what: people's own rights, and those lent to them. Reads only.

What is lent is membership of a group. A delegation counts by the current rows: it has begun and is not over, and its
lender is active, may decide, and is in the group that is asked. A lent right is not membership, so it cannot be lent
on.
"""

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from functools import partial
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db.models import (
    BooleanField,
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

type Person = int | Given
"""Somebody's id, or its place in a statement that is built once and used for everybody."""


class Sight(Enum):
    """Which requests somebody may see: all; those they may be asked about and those of their own runs; or only the
    latter.
    """

    ALL = "all"
    ASKED = "asked"
    OWN = "own"


def deciders() -> QuerySet[User]:
    """Everybody with the right to decide, whatever it is about.

    What `with_perm` finds too, in a statement that joins half as many tables: PostgreSQL takes longer to plan the other
    one, wherever it is a part of a query, than to answer the query.
    """
    right = Permission.objects.filter(content_type__app_label="approvals", codename="decide_approval").values("pk")[:1]
    given = User.user_permissions.through.objects.filter(user=OuterRef("pk"), permission=Subquery(right))
    giving = Group.permissions.through.objects.filter(permission=Subquery(right)).values("group")
    through_group = User.groups.through.objects.filter(user=OuterRef("pk"), group__in=giving)
    return User.objects.filter(Q(is_superuser=True) | Exists(given) | Exists(through_group), is_active=True)


def deciders_of(approval: Approval, without: Collection[int] = ()) -> QuerySet[User]:
    """Everybody who may decide about a request, as `standing.may_decide` says, by a right other than these people's."""
    found = deciders()
    groups = list(approval.groups.all())
    if groups:
        members = User.groups.through.objects.filter(group__in=groups).values("user")
        found = found.filter(Q(pk__in=members) | Q(pk__in=deputies(approval).exclude(lender__in=without)))
    if approval.starter_excluded and approval.starter_id is not None:
        found = found.exclude(pk=approval.starter_id)
    barred = {*approval.excluded, *without}
    return found.exclude(pk__in=barred) if barred else found


def deciding_groups(approval: Approval) -> QuerySet[Group]:
    """The groups a request can be handed to: those that decide it, or else those with somebody who may decide."""
    members = User.groups.through.objects.filter(user__in=deciders_of(approval))
    found = Group.objects.filter(pk__in=members.values("group"))
    asked = [group.pk for group in approval.groups.all()]
    return found.filter(pk__in=asked) if asked else found.filter(permissions__codename="decide_approval").distinct()


def delegations() -> QuerySet[Delegation]:
    """What is lent now, by people who may decide themselves."""
    current = Delegation.objects.filter(ended_at__isnull=True, since__lte=Now(), until__gt=Now())
    return current.filter(_apart(Exists(deciders().filter(pk=OuterRef("lender")))))


def covering(approval: Approval, risk: str = "") -> QuerySet[Delegation]:
    """What is lent for a request, whoever lends it and to whom. `risk`: as if the request had this risk."""
    asked = Approval.groups.through.objects.filter(approval=approval.pk).values("group")
    return _about(Value(approval.tool), Value(risk or approval.risk), asked)


def lent_to(person: Person) -> QuerySet[Delegation]:
    """What is lent to a person for each request of an outer query."""
    asked = Approval.groups.through.objects.filter(approval=OuterRef(OuterRef(OuterRef("pk")))).values("group")
    return _about(OuterRef("tool"), OuterRef("risk"), asked).filter(deputy=person)


def groups_of(person: Person) -> QuerySet[Any, Any]:
    """The groups somebody is in, for an outer query."""
    return User.groups.through.objects.filter(user=person).values("group")


def visible(user: User) -> QuerySet[Approval]:
    """The requests a person may see."""
    return seen(sight_of(user), user.pk)


def sight_of(user: User) -> Sight:
    if user.has_perm("approvals.view_approval"):
        return Sight.ALL
    return Sight.ASKED if user.has_perm("approvals.decide_approval") else Sight.OWN


def seen(sight: Sight, person: Person) -> QuerySet[Approval]:
    """The requests that a person with this sight may see.

    None of mocked runs: nobody is asked about their calls. What became of them is on the run's page.
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
    """A query about the requests somebody may see, built once for each sight.

    `build` makes it from a sight and a person. `sees_all_apart`: the query for people who may see all needs no person.
    """

    def __init__(self, build: "Callable[[Sight, Person], QuerySet[Any, T]]", *, sees_all_apart: bool = False) -> None:
        reader = Given("reader", IntegerField())
        self._asked = {sight: Prepared(partial(build, sight, reader)) for sight in Sight}
        self._without_reader = {Sight.ALL} if sees_all_apart else set()

    def rows(self, user: User, **given: Any) -> list[T]:
        """Run the query for a person, with its other values."""
        sight = sight_of(user)
        about = {} if sight in self._without_reader else {"reader": user.pk}
        return self._asked[sight].rows(**about, **given)

    def first(self, user: User, **given: Any) -> T | None:
        """As `Prepared.first`."""
        return next(iter(self.rows(user, **given)), None)


def lender_shown(person: Person) -> Case:
    """A column for requests: the name of the person who lends this one the right to decide. Empty: it is their own."""
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
    """People who have no say in a request, whoever speaks for them: it is about what they did themselves."""
    found = set(approval.excluded)
    if approval.starter_excluded and approval.starter_id is not None:
        found.add(approval.starter_id)
    if approval.risk in HIGH_RISKS:
        found |= editors(approval)
    return found


def editors(approval: Approval) -> set[int]:
    """Who made a request's arguments (on the request it replaces, or before its last change) and whose right they used:
    the two count as one. Also people whose questions or instructions led the agent to propose this, as the card says.
    """
    made = {pk for pk in (approval.editor_id, approval.editor_lender_id) if pk is not None}
    earlier = people_of(changes_of(approval)[1:]) if approval.is_edited else set()
    return made | earlier | in_whole(approval) | in_parts(approval)


def changes_of(approval: Approval) -> list[Decision]:
    """The changes that led to a request's arguments, latest first: the current one, the one it was based on, and so on.
    A change that was taken back is left out, and so are those before it.
    """
    made = [each for each in approval.decisions.all() if each.type == DecisionType.EDIT]
    made.sort(key=lambda each: each.approval_version, reverse=True)
    found: list[Decision] = []
    for each in made:
        # A change ends the one before it in the same transaction, so never before it was made.
        if each.undone_at is None or (found and each.undone_at >= found[-1].decided_at):
            found.append(each)
        elif found:
            break
    return found


def people_of(decisions: Iterable[Decision]) -> set[int]:
    """Who made these decisions, and whose right they used."""
    return {pk for each in decisions for pk in (each.user_id, each.on_behalf_of_id) if pk is not None}


def in_whole(approval: Approval) -> set[int]:
    """People who shaped a request's arguments as a whole: they asked, and the agent proposed these instead."""
    return {pk for row in approval.provenance if not row.get("path") for pk in row.get("by", ())}


def in_parts(approval: Approval) -> set[int]:
    """People from whose words about an earlier call some of a request's values come."""
    return {pk for row in approval.provenance if row.get("path") for pk in row.get("by", ())}


def had_a_hand(replaced: Approval, edits: Iterable[Decision], asked: Iterable[Question]) -> set[int]:
    """People who shaped a replaced request, with its edits, and what was proposed after these questions."""
    made = {pk for pk in (replaced.editor_id, replaced.editor_lender_id) if pk is not None}
    return in_whole(replaced) | {question.asker_id for question in asked} | made | people_of(edits)


def why_editor(approval: Approval, person: int) -> str:
    """Why somebody counts as an author of a request's arguments, worded for them."""
    changes = changes_of(approval)
    if person in (approval.editor_id, *(each.user_id for each in changes)):
        return "You changed these arguments"
    if person in (approval.editor_lender_id, *(each.on_behalf_of_id for each in changes)):
        return "These were changed for you"
    return "What you asked or said went into these arguments"


def spent(approval: Approval) -> set[int]:
    """People whose say is used up: they decided, or somebody decided for them."""
    return people_of(each for each in approval.decisions.all() if each.undone_at is None)


def within(decisions: Iterable[Decision], groups: Collection[int], tool: str, risk: str) -> list[Decision]:
    """The decisions made by the right of somebody in one of these groups: their own or one they lent."""
    given = list(decisions)
    in_group = User.groups.through.objects.filter(group__in=groups, user__in=[each.user_id for each in given])
    members = set(in_group.values_list("user_id", flat=True))
    pairs: set[tuple[int, int]] = set()
    if any(each.on_behalf_of_id for each in given):
        lent = _about(Value(tool), Value(risk), list(groups))
        pairs = set(lent.values_list("deputy_id", "lender_id"))
    return [
        each
        for each in given
        if ((each.user_id, each.on_behalf_of_id) in pairs if each.on_behalf_of_id else each.user_id in members)
    ]


def deputies(approval: Approval) -> QuerySet[Any, Any]:
    """The people to whom somebody who may still decide this request has lent their right."""
    spoken = approval.decisions.filter(undone_at__isnull=True)
    given = Q(lender__in=spoken.filter(user__isnull=False).values("user"))
    given |= Q(lender__in=spoken.filter(on_behalf_of__isnull=False).values("on_behalf_of"))
    return covering(approval).exclude(given).exclude(lender__in=barred(approval)).values("deputy")


def deputies_of_call(groups: Collection[int], tool: str, risk: str, without: Collection[int]) -> frozenset[int]:
    """The people to whom the right to decide a call is lent, before anybody is asked, by anyone but these."""
    lent = _about(Value(tool), Value(risk), list(groups)).exclude(lender__in=without)
    return frozenset(lent.values_list("deputy_id", flat=True))


def _about(tool: Any, risk: Any, asked: Any) -> QuerySet[Delegation]:
    """What is lent for calls of a tool at a risk. `asked`: the groups that are, by id."""
    named = StrIndex(Cast("tools", TextField()), Concat(Value('"'), tool, Value('"'), output_field=TextField()))
    reaches = Q(pk__in=[])
    for place, level in enumerate(RISK_ORDER):
        reaches |= Q(highest_risk=level, asked_risk__in=RISK_ORDER[: place + 1])
    found = delegations().alias(named=named, asked_risk=ExpressionWrapper(risk, output_field=CharField()))
    # The same group must be lent, be asked and be the lender's.
    theirs = User.groups.through.objects.filter(user=OuterRef(OuterRef("lender"))).values("group")
    lent = Delegation.groups.through.objects.filter(delegation=OuterRef("pk"), group__in=asked)
    return found.filter(Q(tools=[]) | Q(named__gt=0), reaches, _apart(Exists(lent.filter(group__in=theirs))))


def _apart(condition: Exists) -> Case:
    """A condition that is looked at for each row by itself.

    PostgreSQL would join its tables with those around it and try them in every order. That was half of the time that a
    page took, and few people have anything lent to them.
    """
    return Case(When(condition, then=Value(True)), default=Value(False), output_field=BooleanField())
