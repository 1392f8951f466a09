"""What proves the record to outsiders: receipts of decisions, and proofs that an event existed at a checkpoint."""

import uuid
from typing import Any

from django.conf import settings
from ninja import Router
from pydantic import RootModel

from agentapp.api.approvals import visible_approval
from agentapp.api.bearer import ApiRequest, Bearer, person, require_any
from agentapp.api.errors import ApiProblem, not_found, problems
from agentapp.audit import finding
from approvals import lens
from approvals.models import Event
from approvals.proof import inclusion, receipts, signing_key

router = Router(tags=["Proof"])


class Proof(RootModel[dict[str, Any]]):
    """A signed object for `verify_proof.py`. Keep it exactly as it is: any change is detected."""


@router.get(
    "/approvals/{approval_id}/receipt",
    auth=Bearer("approvals:read"),
    response={200: Proof, **problems(404, 409)},
    operation_id="get_receipt",
    summary="Read the receipt of an approval",
)
def get_receipt(request: ApiRequest, approval_id: uuid.UUID) -> Proof:
    """A signed record of what people said about a request: what was asked, by which version of which rule, who decided,
    how they had signed in, and when.
    """
    approval = visible_approval(request, approval_id)
    try:
        return _as_written(receipts.receipt(approval))
    except signing_key.NoKey as error:
        raise ApiProblem("not_signed", str(error)) from error
    except receipts.Erased as error:
        raise ApiProblem("erased", str(error)) from error


@router.get(
    "/events/{event_id}/proof",
    auth=Bearer("events:read"),
    response={200: Proof, **problems(404, 409)},
    operation_id="get_event_proof",
    summary="Read the proof of an event",
)
def get_event_proof(request: ApiRequest, event_id: uuid.UUID) -> Proof:
    """Proves that an event existed when a checkpoint was signed. It contains only the hashes of other events."""
    require_any(request, "approvals.view_event")
    event = Event.objects.filter(pk=event_id).first()
    if event is None or finding.hidden(person(request), [event]):
        raise not_found()
    try:
        return _as_written(inclusion.inclusion(event.pk))
    except inclusion.NotCovered as error:
        raise ApiProblem(
            "not_covered", f"{error} One is signed every {settings.LEDGER.checkpoint_seconds} s."
        ) from error


def _as_written(said: dict[str, Any]) -> Proof:
    lens.leave_as_written()
    return Proof(said)
