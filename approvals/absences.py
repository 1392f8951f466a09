"""The only writer of Absence: who looks after a person's queue while they are away.

It hands on work, never rights: the deputy must be able to decide already.
"""

from collections.abc import Iterable
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


def standing_in(user_ids: Iterable[int]) -> dict[int, User]:
    """Of these people, those who are away now, and who looks after their queue."""
    away = Absence.objects.select_related("deputy").filter(user__in=list(user_ids), since__lte=Now(), until__gt=Now())
    return {absence.user_id: absence.deputy for absence in away if absence.deputy.is_active}


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
