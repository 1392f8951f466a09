"""The only writer of Absence: who looks after a person's queue while they are away.

An absence hands on work, never rights: the deputy must already be able to decide.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals import ledger
from approvals.clock import Now
from approvals.entitlement import deciders
from approvals.models import Absence
from approvals.standing import Refusal


def deputies(user: User) -> QuerySet[User]:
    """Who can stand in for a person: everybody else who may decide."""
    return deciders().exclude(pk=user.pk).order_by("first_name", "username")


def of(user: User) -> Absence | None:
    """A person's current or coming absence."""
    return Absence.objects.select_related("deputy").filter(user=user, until__gt=Now()).first()


def standing_in(user_ids: Collection[int]) -> dict[int, User]:
    """Which of these people are away now, and who looks after their queue. If their deputy is away too, it is the
    deputy's deputy, and so on. People whose deputies are all away or switched off are left out.
    """
    hands_to: dict[int, User] = {}
    asked = set(user_ids)
    while unknown := asked - hands_to.keys():
        away = Absence.objects.select_related("deputy").filter(user__in=unknown, since__lte=Now(), until__gt=Now())
        found = {absence.user_id: absence.deputy for absence in away}
        hands_to |= found
        # Anybody asked about before is either not away or already in `hands_to`.
        asked = {deputy.pk for deputy in found.values()}
    ends = {user_id: _last(user_id, hands_to) for user_id in user_ids}
    return {user_id: deputy for user_id, deputy in ends.items() if deputy is not None and deputy.is_active}


def _last(user_id: int, hands_to: Mapping[int, User]) -> User | None:
    """The end of a chain of deputies. None: the chain is a circle, or empty."""
    seen, deputy = {user_id}, hands_to.get(user_id)
    while deputy is not None and deputy.pk in hands_to:
        if deputy.pk in seen:
            return None
        seen.add(deputy.pk)
        deputy = hands_to[deputy.pk]
    return deputy


def begin(user: User, deputy: User, since: datetime, until: datetime) -> Absence | Refusal:
    """Hand your queue on from `since` to `until`. Replaces any absence set before."""
    if until <= since:
        return Refusal("invalid", "An absence must end after it begins.")
    if not deputies(user).filter(pk=deputy.pk).exists():
        return Refusal("may_not_decide", "Only somebody else who may decide can stand in for you.")
    with ledger.transaction():
        # Lock both people, so that neither can begin another absence meanwhile, nor the same one twice.
        list(User.objects.select_for_update(no_key=True).filter(pk__in=[user.pk, deputy.pk]).order_by("pk"))
        if Absence.objects.filter(user=deputy, since__lt=until, until__gt=since).exists():
            return Refusal("away_too", f"{_name(deputy)} is away at that time too. Choose somebody else.")
        # Old rows go first: a new one would conflict with them.
        Absence.objects.filter(user=user).delete()
        absence: Absence = Absence.objects.create(user=user, deputy=deputy, since=since, until=until)
        data = {"user": user.get_username(), "deputy": deputy.get_username()}
        times = {"since": since.isoformat(), "until": until.isoformat()}
        ledger.record(ledger.CONFIGURATION, "absence.begun", data | times, ledger.actor_of(user))
    return absence


def end(user: User) -> bool:
    """End your absence. False: you were not away."""
    with ledger.transaction():
        ended, _ = Absence.objects.filter(user=user).delete()
        if ended:
            data = {"user": user.get_username()}
            ledger.record(ledger.CONFIGURATION, "absence.ended", data, ledger.actor_of(user))
    return bool(ended)


def _name(user: User) -> str:
    return user.get_full_name() or user.get_username()
