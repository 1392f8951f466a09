"""What the ledger must have a chain for: every run begins with an event, in the transaction that creates it."""

import uuid

from agentapp.models import Run


def runs(after: uuid.UUID | None, most: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """The next runs after one, each paired with itself, as `verifying.told_of` expects."""
    rows = Run.objects.filter(pk__gt=after) if after else Run.objects.all()
    return [(key, key) for key in rows.order_by("pk").values_list("pk", flat=True)[:most]]
