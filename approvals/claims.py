"""The only writer of Claim and Snooze: who looks after a request, and who does not want to see it for a while.

A claim is advice. It gives and takes no rights: everybody who may decide still may. It counts while the request waits,
by the database's clock; rows that no longer count are swept.

The caller holds the lock on the run's row and is inside `ledger.transaction()`.
"""

import functools
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet

from approvals import absences, approval_events, entitlement, ledger, people
from approvals.clock import Now
from approvals.models import Approval, Claim, Notification, Snooze
from approvals.prepared import Prepared
from approvals.sealed import ERASED, sealed
from approvals.standing import Refusal, may_decide


def standing() -> QuerySet[Claim]:
    """The claims that count: their request waits and their lease has not run out."""
    lasts = Q(until__isnull=True) | Q(until__gt=Now())
    return Claim.objects.filter(lasts, approval__state__in=Approval.UNDECIDED)


def of(approval_id: uuid.UUID) -> Claim | None:
    """The claim on a request, if one counts."""
    return standing().select_related("user", "group", "handed_by").filter(approval=approval_id).first()


def concerns(claim: Claim, user: User) -> bool:
    """Whether a claim is this person's: their own, or one of a group they are in."""
    if claim.user_id is not None:
        return claim.user_id == user.pk
    return user.groups.filter(pk=claim.group_id).exists()


def take(approval_id: uuid.UUID, user: User, lease: timedelta) -> Claim | Refusal:
    """Claim a request for the length of the lease, or renew your claim. First wins."""
    approval = _waiting(approval_id)
    if isinstance(approval, Refusal):
        return approval
    if forbidden := may_decide(user, approval):
        return forbidden
    current = of(approval_id)
    if current is not None and current.user_id == user.pk:
        renew(approval_id, user, lease)
        return of(approval_id) or current
    if current is not None and not concerns(current, user):
        return Refusal("claimed", f"{_name(current)} has claimed this. You may still decide.")
    Claim.objects.filter(approval=approval_id).delete()
    now = _now(approval)
    # The constraint stops a caller that did not take the lock first.
    claim, made = Claim.objects.get_or_create(
        approval=approval, defaults={"user": user, "until": now + lease, "claimed_at": now}
    )
    if not made:
        return Refusal("claimed", f"{_name(claim)} has claimed this. You may still decide.")
    _record(approval, "claimed", user, until=(now + lease).isoformat())
    return claim


def renew(approval_id: uuid.UUID, user: User, lease: timedelta) -> bool:
    """Lengthen your own lease. False: there is none to lengthen. No event: a claim is a fact, its renewal is not."""
    mine = standing().annotate(database_now=Now()).filter(approval=approval_id, user=user, until__isnull=False)
    claim = mine.first()
    if claim is None:
        return False
    # Never shorten it: another page may have renewed it a moment later.
    until = claim.database_now + lease
    return bool(Claim.objects.filter(pk=claim.pk, user=user, until__lte=until).update(until=until))


def release(approval_id: uuid.UUID, user: User) -> Refusal | None:
    """Give back a request that you claimed or were handed."""
    approval = _waiting(approval_id)
    if isinstance(approval, Refusal):
        return approval
    claim = of(approval_id)
    if claim is None or not concerns(claim, user):
        return Refusal("not_claimed", "You have not claimed this.")
    claim.delete()
    _record(approval, "released", user)
    return None


def hand_over(approval_id: uuid.UUID, by: User, to: User | Group, note: str) -> Claim | Refusal:
    """Hand a request to a person or a group who may decide about it. It stays theirs until they give it back.

    If the person is away, the request goes to their deputy, provided that the deputy may decide.
    """
    approval = _waiting(approval_id)
    if isinstance(approval, Refusal):
        return approval
    current = of(approval_id)
    if current is not None and not concerns(current, by) and current.handed_by_id != by.pk:
        return Refusal("claimed", f"{_name(current)} has claimed this, so only they can hand it over.")
    instead_of = ""
    if isinstance(to, User):
        if not entitlement.deciders_of(approval).filter(pk=to.pk).exists():
            return Refusal("may_not_decide", f"{_called(to)} may not decide about this. Hand it to somebody who may.")
        if (deputy := _deputy(to, approval)) is not None:
            to, instead_of = deputy, _called(to)
    elif not entitlement.deciding_groups(approval).filter(pk=to.pk).exists():
        return Refusal("may_not_decide", f"Nobody in {to.name} may decide about this. Hand it to somebody who may.")
    if to == by:
        return Refusal("own_claim", "To take it yourself, claim it.")
    Claim.objects.filter(approval=approval_id).delete()
    claim = Claim.objects.create(
        approval=approval,
        user=to if isinstance(to, User) else None,
        group=to if isinstance(to, Group) else None,
        handed_by=by,
        note=note,
        claimed_at=_now(approval),
    )
    _record(approval, "handed_over", by, to=_called(to), instead_of=instead_of, note=sealed(note, approval.salt))
    if isinstance(to, User):
        people.tell_again(approval.pk, to.pk, Notification.Kind.HANDED)
    return claim


def left_behind(limit: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Requests handed to somebody who is away now, as (request, run)."""
    return _left_behind(limit).rows()


@functools.cache
def _left_behind(limit: int) -> Prepared[tuple[uuid.UUID, uuid.UUID]]:
    handed = standing().filter(until__isnull=True, user__absence__since__lte=Now(), user__absence__until__gt=Now())
    return Prepared(lambda: handed.values_list("approval_id", "approval__run_id")[:limit])


def hand_on(approval_id: uuid.UUID) -> bool:
    """Give such a request to the deputy. False: it is not such a request, or the deputy may not decide about it."""
    claim, approval = of(approval_id), _waiting(approval_id)
    if claim is None or claim.user is None or claim.until is not None or isinstance(approval, Refusal):
        return False
    deputy = _deputy(claim.user, approval)
    return deputy is not None and isinstance(hand_over(approval_id, claim.user, deputy, claim.note), Claim)


def snooze(approval_id: uuid.UUID, user: User, until: datetime) -> Snooze | Refusal:
    """Keep a request out of one person's queue until then, but not past the time it is due."""
    approval = _waiting(approval_id)
    if isinstance(approval, Refusal):
        return approval
    if until <= _now(approval):
        return Refusal("invalid", "That time has already passed.")
    if until >= approval.expires_at:
        return Refusal("past_expiry", "It expires before that, so it stays where it is. Choose a shorter time.")
    Snooze.objects.filter(user=user, until__lte=Now()).delete()
    return Snooze.objects.update_or_create(approval=approval, user=user, defaults={"until": until})[0]


def wake(approval_id: uuid.UUID, user: User) -> bool:
    """Bring a snoozed request back. False: it was not snoozed."""
    return bool(Snooze.objects.filter(approval=approval_id, user=user).delete()[0])


def wake_in_time(approval: Approval) -> None:
    """Bring a request back to people who would sleep past its time, which is now sooner than when they snoozed it."""
    Snooze.objects.filter(approval=approval.pk, until__gte=approval.expires_at).delete()


def forget_ended(limit: int) -> int:
    """Delete the claims and snoozes of requests that no longer wait. Returns how many."""
    gone = 0
    for model in (Claim, Snooze):
        if ended := _ended(model, limit).rows():
            gone += model.objects.filter(pk__in=ended).delete()[0]
    return gone


@functools.cache
def _ended(model: type[Claim] | type[Snooze], limit: int) -> Prepared[uuid.UUID]:
    about = model._default_manager.exclude(approval__state__in=Approval.UNDECIDED)
    return Prepared(lambda: about.values_list("pk", flat=True)[:limit])


def _waiting(approval_id: uuid.UUID) -> Approval | Refusal:
    found = Approval.objects.select_for_update().annotate(database_now=Now()).filter(pk=approval_id).first()
    if found is None:
        return Refusal("not_found", "There is no such request.")
    if found.state not in Approval.UNDECIDED or found.expires_at <= _now(found):
        return Refusal("not_waiting", "This request is no longer waiting for anybody.")
    return found


def _deputy(user: User, approval: Approval) -> User | None:
    """Who looks after an absent person's work, if they may decide about this."""
    deputy = absences.standing_in([user.pk]).get(user.pk)
    if deputy is None or not entitlement.deciders_of(approval).filter(pk=deputy.pk).exists():
        return None
    return deputy


def _now(approval: Approval) -> datetime:
    now: datetime = approval.database_now  # type: ignore[attr-defined]
    return now


def _record(approval: Approval, what: str, user: User, **data: str | dict[str, Any]) -> None:
    approval_events.record(approval, what, {**data}, ledger.actor_of(user))


def _name(claim: Claim) -> str:
    return _called(claim.user or claim.group)


def _called(who: User | Group | None) -> ledger.Named:
    if isinstance(who, User):
        return ledger.Named(who.get_full_name() or who.get_username())
    return ledger.Named(who.name if who is not None else "Somebody")


def erase(approval_ids: Iterable[uuid.UUID]) -> None:
    """Erase the notes that some requests were handed over with."""
    Claim.objects.filter(approval__in=approval_ids).exclude(note="").update(note=ERASED)
