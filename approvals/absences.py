"""The only writer of Absence: who looks after a person's queue while they are away.

It hands on work, never rights: the deputy must be able to decide already.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals import ledger
from approvals.clock import Now
from approvals.models import Absence
from approvals.standing import Refusal


def deputies(user: User) -> QuerySet[User]:
    """Who can stand in for a person: everybody else who may decide."""
    return User.objects.with_perm("approvals.decide_approval").exclude(pk=user.pk).order_by("first_name", "username")


def of(user: User) -> Absence | None:
    """The absence of a person that is now or yet to come."""
    return Absence.objects.select_related("deputy").filter(user=user, until__gt=Now()).first()


def standing_in(user_ids: Collection[int]) -> dict[int, User]:
    """Of these people, those who are away now, and who looks after their queue: where their deputy is away as well, it
    is that one's deputy, and so on. Left out is who has only deputies that are away themselves or switched off.
    """
    hands_to: dict[int, User] = {}
    asked = set(user_ids)
    while unknown := asked - hands_to.keys():
        away = Absence.objects.select_related("deputy").filter(user__in=unknown, since__lte=Now(), until__gt=Now())
        found = {absence.user_id: absence.deputy for absence in away}
        hands_to |= found
        # Whoever was asked about before is here, or is known already.
        asked = {deputy.pk for deputy in found.values()}
    ends = {user_id: _last(user_id, hands_to) for user_id in user_ids}
    return {user_id: deputy for user_id, deputy in ends.items() if deputy is not None and deputy.is_active}


def _last(user_id: int, hands_to: Mapping[int, User]) -> User | None:
    """Where a chain of deputies ends. None: it has no end, or does not begin."""
    seen, deputy = {user_id}, hands_to.get(user_id)
    while deputy is not None and deputy.pk in hands_to:
        if deputy.pk in seen:
            return None
        seen.add(deputy.pk)
        deputy = hands_to[deputy.pk]
    return deputy


def begin(user: User, deputy: User, since: datetime, until: datetime) -> Absence | Refusal:
    """Hand one's queue on from `since` to `until`. It takes the place of what was said before."""
    if until <= since:
        return Refusal("invalid", "An absence ends after it begins.")
    if not deputies(user).filter(pk=deputy.pk).exists():
        return Refusal("may_not_decide", "Only somebody else who may decide can stand in for you.")
    with ledger.transaction():
        # Both are held: neither can begin another absence meanwhile, in the other's hands or by a second press.
        list(User.objects.select_for_update(no_key=True).filter(pk__in=[user.pk, deputy.pk]).order_by("pk"))
        if Absence.objects.filter(user=deputy, since__lt=until, until__gt=since).exists():
            return Refusal("away_too", f"{_name(deputy)} is away in that time too. Choose somebody else.")
        # Rows that are over go first: until then a new one would be in their way.
        Absence.objects.filter(user=user).delete()
        absence: Absence = Absence.objects.create(user=user, deputy=deputy, since=since, until=until)
        data = {"user": user.get_username(), "deputy": deputy.get_username()}
        times = {"since": since.isoformat(), "until": until.isoformat()}
        ledger.record(ledger.CONFIGURATION, "absence.begun", data | times, ledger.actor_of(user))
    return absence


def end(user: User) -> bool:
    """Look after one's queue again. False: one was not away."""
    with ledger.transaction():
        ended, _ = Absence.objects.filter(user=user).delete()
        if ended:
            data = {"user": user.get_username()}
            ledger.record(ledger.CONFIGURATION, "absence.ended", data, ledger.actor_of(user))
    return bool(ended)


def _name(user: User) -> str:
    return user.get_full_name() or user.get_username()
