"""The only writer of Viewer: who has a request open. It is a courtesy; nothing rests on it."""

from datetime import timedelta

from django.contrib.auth.models import User

from approvals.clock import Now
from approvals.models import Approval, Viewer

# A page says so every 15 seconds; what has missed two turns has gone.
STALE_AFTER = timedelta(seconds=45)


def note(approval: Approval, user: User, doing: str) -> None:
    """This person has the request open, and is at this. Anything unknown is viewing."""
    known = doing if doing in Viewer.Doing.values else Viewer.Doing.VIEWING
    Viewer.objects.update_or_create(approval=approval, user=user, defaults={"doing": known, "seen_at": Now()})


def others(approval: Approval, user: User) -> list[Viewer]:
    """The other people who have the request open now: those at work on it first."""
    here = Viewer.objects.filter(approval=approval, seen_at__gt=Now() - STALE_AFTER).exclude(user=user)
    order = [Viewer.Doing.EDITING, Viewer.Doing.VIEWING, Viewer.Doing.AWAY]
    return sorted(here.select_related("user"), key=lambda viewer: order.index(Viewer.Doing(viewer.doing)))
