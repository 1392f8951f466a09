"""What a decision leads to: it is used for its one call, or it has reached the agent."""

from django.db.models import IntegerField, Q, TextField, UUIDField

from approvals import approval_events
from approvals.cards import final_digest
from approvals.clock import Now
from approvals.models import Approval
from approvals.prepared import Given, PreparedUpdate

_CONSUME = PreparedUpdate(
    lambda: (
        Approval.objects.filter(
            pk=Given("pk", UUIDField()),
            state=Approval.State.APPROVED,
            used_at__isnull=True,
            runs_at__lte=Now(),
            use_by__gt=Now(),
            final_digest=Given("digest", TextField()),
            version=Given("version", IntegerField()),
        ),
        {"state": Approval.State.USED, "used_at": Now()},
    )
)


def consume(approval: Approval) -> bool:
    """Use an approval for the one execution it allows.

    False: it is not approved, not due, too old, already used, or its arguments are not those that were approved.
    """
    if not approval.final_digest or approval.final_digest != final_digest(approval):
        return False
    used = _CONSUME(pk=approval.pk, digest=approval.final_digest, version=approval.version)
    if used:
        approval_events.record(approval, "used", {"action_digest": approval.final_digest})
    return bool(used)


def settle(approval: Approval) -> bool:
    """Mark that a rejection, an answer or an expiry has reached the agent.

    False: it can still be undone, or was undone or settled meanwhile.
    """
    states = [Approval.State.REJECTED, Approval.State.RESPONDED, Approval.State.EXPIRED]
    due = Q(runs_at__isnull=True) | Q(runs_at__lte=Now())
    found = Approval.objects.filter(
        due, pk=approval.pk, state__in=states, used_at__isnull=True, version=approval.version
    )
    return bool(found.update(used_at=Now()))
