"""The only writer of Viewer: who has a request open, and since when it was shown to them.

It is a courtesy, and a figure: no decision depends on it.
"""

from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from approvals.clock import Now
from approvals.models import Approval, Viewer

# A page reports every 15 seconds. One that has missed two reports is gone.
STALE_AFTER = timedelta(seconds=45)


def note(approval: Approval, user: User, doing: str) -> None:
    """Note that a person has the request open and what they are doing. Anything unknown is viewing."""
    known = doing if doing in Viewer.Doing.values else Viewer.Doing.VIEWING
    here = {"doing": known, "seen_at": Now()}
    Viewer.objects.update_or_create(
        approval=approval, user=user, defaults=here, create_defaults={**here, "shown_at": Now()}
    )


def shown(approval: Approval, user: User) -> None:
    """Note that the console shows them the request. Only the first time counts; it does not say whether they are still
    there.
    """
    gone = timezone.now() - STALE_AFTER
    row = Viewer(approval=approval, user=user, doing=Viewer.Doing.AWAY, seen_at=gone, shown_at=Now())
    Viewer.objects.bulk_create([row], ignore_conflicts=True)


def others(approval: Approval, user: User) -> list[Viewer]:
    """The other people who have the request open now, those working on it first."""
    here = Viewer.objects.filter(approval=approval, seen_at__gt=Now() - STALE_AFTER).exclude(user=user)
    order = [Viewer.Doing.EDITING, Viewer.Doing.VIEWING, Viewer.Doing.AWAY]
    return sorted(here.select_related("user"), key=lambda viewer: order.index(Viewer.Doing(viewer.doing)))
