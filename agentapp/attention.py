"""How people choose who looks after a request: claim, release, hand over, snooze. Nothing here decides."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.utils import timezone

from agentapp import auth, runs
from agentapp.refused import Refused
from approvals import claims, ledger
from approvals.digest import as_typed
from approvals.models import Approval, Claim, Snooze
from approvals.standing import Refusal, is_party

MAX_NOTE = 300
MORNING = 9
SNOOZES: dict[str, str] = {"15m": "15 minutes", "1h": "1 hour", "tomorrow": f"Tomorrow, {MORNING}:00"}


def lease() -> timedelta:
    return timedelta(seconds=settings.CLAIM_SECONDS)


def claim_request(approval_id: uuid.UUID, user: User) -> Claim:
    """Look after a request for a while. Others see that, and may still decide."""
    return _changed(approval_id, user, lambda: claims.take(approval_id, user, lease()))


def renew_claim(approval_id: uuid.UUID, user: User) -> bool:
    """Keep a claim while working on it. False: it has run out, or somebody else has it now."""
    return claims.renew(approval_id, user, lease())


def release_claim(approval_id: uuid.UUID, user: User) -> None:
    """Give a request back to everybody."""
    _changed(approval_id, user, lambda: claims.release(approval_id, user))


def hand_over(approval_id: uuid.UUID, to: User | Group | None, note: str, user: User) -> Claim:
    """Hand a request to a person or group who may decide."""
    if not _may_hand_over(user):
        raise Refused("forbidden", "Handing requests over needs the right to decide approvals or to see all of them.")
    if not may_hand_over(user, _seen(approval_id, user)):
        raise Refused("forbidden", "You had a hand in this call, so others choose who looks after the request.")
    if to is None:
        raise Refused("invalid", "Choose a person or a group.", "to")
    words = as_typed(note)
    if len(words) > MAX_NOTE:
        raise Refused("invalid", f"A note has {MAX_NOTE} characters at most.", "note")
    return _changed(approval_id, user, lambda: claims.hand_over(approval_id, user, to, words))


def may_hand_over(user: User, approval: Approval) -> bool:
    """Whether this person may choose who looks after a request. A person who started the run, or had a hand in the
    call, may not choose who judges it.
    """
    return _may_hand_over(user) and not is_party(user, approval)


def _may_hand_over(user: User) -> bool:
    return user.has_perm("approvals.decide_approval") or user.has_perm("approvals.view_approval")


def snooze_request(approval_id: uuid.UUID, preset: str, user: User) -> Snooze:
    """Put a request out of your own sight for a while, never past its deadline."""
    if preset not in SNOOZES:
        raise Refused("invalid", "Choose how long.", "until")
    until = snooze_ends(preset, timezone.localtime())
    return _changed(approval_id, user, lambda: claims.snooze(approval_id, user, until))


def wake_request(approval_id: uuid.UUID, user: User) -> bool:
    """Bring a snoozed request back. False: it was in sight."""
    _seen(approval_id, user)
    with ledger.transaction():
        return claims.wake(approval_id, user)


def snooze_ends(preset: str, now: datetime) -> datetime:
    """When a snooze that begins now ends. `now` is the reader's local time, and so is tomorrow."""
    if preset == "tomorrow":
        return (now + timedelta(days=1)).replace(hour=MORNING, minute=0, second=0, microsecond=0)
    # Add in UTC: when clocks go back, an hour comes twice.
    after = now.astimezone(UTC) + {"15m": timedelta(minutes=15), "1h": timedelta(hours=1)}[preset]
    return after.astimezone(now.tzinfo)


def _changed[R](approval_id: uuid.UUID, user: User, change: Callable[[], R | Refusal]) -> R:
    """Change something about a request this person may see, with its run locked."""
    approval = _seen(approval_id, user)
    with ledger.transaction():
        runs.lock(approval.run_id)
        done = change()
        if isinstance(done, Refusal):
            # Raised inside the transaction, so that no partial change is kept.
            raise Refused.by(done, approval)
    return done


def _seen(approval_id: uuid.UUID, user: User) -> Approval:
    approval: Approval | None = auth.visible_approvals(user).filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    return approval
