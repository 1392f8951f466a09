"""Events: the ledger, as it was written."""

import uuid
from datetime import datetime
from typing import Annotated, Any

from ninja import Query, Router
from pydantic import BaseModel, Field

from agentapp import auth
from agentapp.api.bearer import ApiRequest, Bearer, person, require_any
from agentapp.api.errors import not_found, problems
from agentapp.api.paging import MAX_LIMIT, Parameters
from agentapp.models import Run
from approvals import ledger
from approvals.models import Event

router = Router(tags=["Events"])

# The largest place a chain can have in either database.
MAX_SEQ = 2**31 - 1


class EventOut(BaseModel):
    """One fact. `hash` is the SHA-256 of `body`, which names the hash of the event before it."""

    seq: int
    type: str
    actor: str
    at: datetime
    data: dict[str, Any]
    body: str = Field(description="The canonical text (RFC 8785) that was hashed.")
    previous_hash: str
    hash: str


class EventPage(BaseModel):
    """Events of one chain, oldest first."""

    chain: str
    items: list[EventOut]
    next: int | None = Field(description="`after` of the next page. Null when the chain ends here.")


class EventListing(Parameters):
    run: uuid.UUID | None = Field(default=None, description="The run whose chain is wanted; else the configuration's.")
    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = Field(default=0, description="Only events past this `seq`.")
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many events a page holds.")] = MAX_LIMIT


@router.get(
    "/events",
    auth=Bearer("events:read"),
    response={200: EventPage, **problems(404, 422)},
    operation_id="list_events",
    summary="Read the ledger",
)
def list_events(request: ApiRequest, listing: Query[EventListing]) -> EventPage:
    """The chain of one run, for whoever may see the run or the ledger; without `run`, the chain of
    configuration and sign-ins, for whoever may see the ledger.
    """
    chain = _readable_chain(request, listing.run)
    rows = Event.objects.filter(chain=chain, seq__gt=listing.after).order_by("seq")
    found = list(rows[: listing.limit + 1])
    more = len(found) > listing.limit
    found = found[: listing.limit]
    return EventPage(chain=chain, items=[_shown(event) for event in found], next=found[-1].seq if more else None)


def _readable_chain(request: ApiRequest, run_id: uuid.UUID | None) -> str:
    if run_id is None:
        require_any(request, "approvals.view_event")
        return ledger.CONFIGURATION
    user = person(request)
    rows = Run.objects.all() if user.has_perm("approvals.view_event") else auth.visible_runs(user)
    if not rows.filter(pk=run_id).exists():
        raise not_found()
    return ledger.run_chain(run_id)


def _shown(event: Event) -> EventOut:
    return EventOut(
        seq=event.seq,
        type=event.type,
        actor=event.actor,
        at=event.at,
        data=event.data,
        body=event.body,
        previous_hash=event.previous_hash,
        hash=event.hash,
    )
