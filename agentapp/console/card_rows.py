"""The rows behind cards: the requests a person may see, with all that a card shows, in a few queries."""

import uuid
from typing import Any

from django.contrib.auth.models import User
from django.db.models import (
    Exists,
    ExpressionWrapper,
    IntegerField,
    OuterRef,
    Prefetch,
    QuerySet,
    UUIDField,
    Value,
    prefetch_related_objects,
)
from django.http import Http404

from agentapp import auth, switches
from approvals import entitlement, presence
from approvals.models import Approval, Comment, Decision, Question, Viewer
from approvals.prepared import Given


def visible(user: User) -> QuerySet[Approval]:
    """The requests a person may see, with all that a card shows. Three queries when read."""
    return whole(auth.visible_approvals(user), user)


def whole(approvals: QuerySet[Approval], user: User) -> QuerySet[Approval]:
    """These requests with all that a card shows to this person. Three queries when read."""
    return _but_for_decisions(approvals, user.pk).prefetch_related(_decisions())


def _decisions(there_are: bool = True) -> "Prefetch[Any]":
    """The decisions about requests, oldest first. Needs no query if there are none."""
    given = Decision.objects.select_related("user", "on_behalf_of").order_by("decided_at")
    return Prefetch("decisions", given if there_are else given.none())


def _but_for_decisions(approvals: QuerySet[Approval], person: entitlement.Person) -> QuerySet[Approval]:
    links = Approval.groups.through.objects
    return (
        approvals.select_related(
            "starter",
            "editor",
            "editor_lender",
            "execution__tool",
            "execution__step",
            "execution__run__starter",
            "execution__run__taken_over_by",
            "claim__user",
            "claim__group",
        )
        .prefetch_related("groups")
        .annotate(
            was_decided=Exists(Decision.objects.filter(approval=OuterRef("pk"))),
            was_asked=Exists(Question.objects.filter(approval__execution_id=OuterRef("execution_id"))),
            was_commented=Exists(Comment.objects.filter(approval=OuterRef("pk"))),
            reader=ExpressionWrapper(Value(person) if isinstance(person, int) else person, IntegerField()),
            was_shown=Exists(Viewer.objects.filter(approval=OuterRef("pk"), user=person)),
            is_member=Exists(links.filter(approval=OuterRef("pk"), group__in=entitlement.groups_of(person))),
            is_anything_stopped=switches.any_engaged(),
            is_lent=Exists(entitlement.lent_to(person)),
        )
    )


def visible_or_404(user: User, approval_id: uuid.UUID) -> Approval:
    approval = one(user, approval_id)
    if approval is None:
        raise Http404("There is no such request, or it is not for you to see.")
    return approval


def one(user: User, approval_id: uuid.UUID) -> Approval | None:
    """A request with all that its card shows. None if there is none, or this person may not see it."""
    approval = _CARDS.first(user, pk=approval_id)
    if approval is not None:
        prefetch_related_objects([approval], _decisions(approval.was_decided))  # type: ignore[attr-defined]
    return approval


def _card(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval]:
    return _but_for_decisions(entitlement.seen(sight, reader).filter(pk=Given("pk", UUIDField())), reader)


_CARDS = entitlement.Seen(_card)


def note_shown(approval: Approval, user: User) -> None:
    """Record when somebody first saw this request. `approval` comes from `whole`."""
    if approval.state in Approval.UNDECIDED and not approval.was_shown:  # type: ignore[attr-defined]
        presence.shown(approval, user)
