"""Events: the ledger as it was written."""

import uuid
from datetime import datetime
from typing import Annotated, Any

from ninja import Query, Router
from pydantic import BaseModel, Field

from agentapp import auth
from agentapp.api.bearer import ApiRequest, Bearer, person, require_any
from agentapp.api.errors import ApiProblem, not_found, problems
from agentapp.api.paging import MAX_LIMIT, Page, Parameters
from agentapp.audit import finding
from agentapp.audit.query import MAX_CHARS, Malformed, parse
from approvals import ledger
from approvals.digest import storable
from approvals.models import Event
from approvals.places import Place

router = Router(tags=["Events"])

# The largest `seq` that either database can store.
MAX_SEQ = 2**31 - 1


class EventOut(BaseModel):
    """One fact. `hash` is the SHA-256 of `body`, which names the hash of the event before it."""

    id: uuid.UUID = Field(description="The `event_id` for `GET /events/{event_id}/proof`.")
    seq: int
    type: str
    actor: str
    at: datetime
    data: dict[str, Any]
    body: str = Field(description="The canonical text (RFC 8785) that was hashed; see `masked`.")
    masked: bool = Field(
        default=False,
        description="Whether anything in `body` is masked for the token's person. If so, `hash` is that of the body "
        "as written, which the event's proof contains. An unmasked body with another hash was tampered with.",
    )
    previous_hash: str
    hash: str


class EventPage(BaseModel):
    """Events of one chain, oldest first."""

    chain: str
    items: list[EventOut]
    next: int | None = Field(description="`after` for the next page. Null if the chain ends here.")


class EventListing(Parameters):
    run: uuid.UUID | None = Field(
        default=None, description="The run whose chain to read. Default: the configuration's."
    )
    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = Field(default=0, description="Only events after this `seq`.")
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many events a page holds.")] = MAX_LIMIT


class FoundEvent(EventOut):
    """One fact, with the chain it belongs to."""

    chain: str


class EventSearch(Parameters):
    q: Annotated[
        str,
        Field(
            max_length=MAX_CHARS, description="Conditions, such as `who:dana did:approved since:7d`. Empty: everything."
        ),
    ] = ""
    cursor: Annotated[str, Field(max_length=100, description="`next` from the previous page.")] = ""


@router.get(
    "/events/search",
    auth=Bearer("events:read"),
    response={200: Page[FoundEvent], **problems(403, 422)},
    operation_id="search_events",
    summary="Search the ledger",
)
def search_events(request: ApiRequest, search: Query[EventSearch]) -> Page[FoundEvent]:
    """Events of every chain, newest first, filtered with the same query line as the console's audit trail. Runs that
    the token's person may not see are left out.
    """
    require_any(request, "approvals.view_event")
    user = person(request)
    try:
        found = finding.seen(finding.find(parse(storable(search.q)), user), user)
    except Malformed as error:
        raise ApiProblem("invalid", str(error), "q") from error
    try:
        start = Place.read(search.cursor) if search.cursor else None
    except ValueError as error:
        raise ApiProblem("invalid_cursor", "This cursor does not belong to this list.", "cursor") from error
    shown = finding.page(found, start)
    items = [FoundEvent(chain=event.chain, **_shown(event).model_dump()) for event in shown.events]
    return Page[FoundEvent](items=items, next=str(shown.older) if shown.older else None)


@router.get(
    "/events",
    auth=Bearer("events:read"),
    response={200: EventPage, **problems(404, 422)},
    operation_id="list_events",
    summary="Read the ledger",
)
def list_events(request: ApiRequest, listing: Query[EventListing]) -> EventPage:
    """The chain of one run, for anyone who may see the run. Without `run`, the chain of configuration and sign-ins, for
    anyone who may see the ledger.
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
    if not auth.visible_runs(person(request)).filter(pk=run_id).exists():
        raise not_found()
    return ledger.run_chain(run_id)


def _shown(event: Event) -> EventOut:
    return EventOut(
        id=event.pk,
        seq=event.seq,
        type=event.type,
        actor=event.actor,
        at=event.at,
        data=event.data,
        body=event.body,
        previous_hash=event.previous_hash,
        hash=event.hash,
    )
