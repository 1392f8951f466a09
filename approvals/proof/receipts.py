"""Decision receipts: signed statements about one request that anyone with the public key can check anywhere, years
later.

A tool that acts on an approval can pass one on to the system it calls, which need not trust agent or worker.
"""

import base64
import uuid
from datetime import UTC, datetime
from typing import Any

from approvals import clock, digest
from approvals.detectors import clean
from approvals.models import Approval, Decision, Event
from approvals.proof import keys, signing_key
from approvals.proof.manifest import signed

KIND = "receipt"
VERSION = 4
# Other facts about a request, such as claims and comments, have no end and decide nothing.
_OF_ITS_DECISION = tuple(
    f"approval.{what}"
    for what in (
        "requested", "changed", "approved", "rejected", "responded", "undone", "used", "expired", "withdrawn",
        "superseded",
    )
)  # fmt: skip


class Erased(LookupError):
    """What people decided about has been erased, so nothing can be signed about it any more."""


def receipt(approval: Approval) -> dict[str, Any]:
    """What people decided about one request, signed. Raises signing_key.NoKey, Erased.

    It contains arguments and what was shown only as digests with the request's own salt, so that nobody finds them by
    trying.
    """
    if approval.erased_at is not None:
        raise Erased("What this request was about has been erased, so it no longer has a receipt.")
    said = {
        "kind": KIND,
        "version": VERSION,
        "approval": str(approval.pk),
        "reference": approval.reference,
        "request": approval.kind,
        "run": str(approval.run_id),
        "execution": str(approval.execution_id),
        "agent": approval.agent,
        "tool": approval.tool,
        "tool_version": approval.tool_version,
        "action_digest": approval.final_digest or approval.action_digest,
        "view_digest": approval.view_digest,
        "edited": approval.is_edited,
        "risk": approval.risk,
        "rule": approval.rule,
        "rule_version": approval.rule_version or None,
        "rule_digest": approval.rule_digest,
        "assurance_needed": approval.assurance_needed,
        "decision": approval.state,
        "asked_at": _at(approval.created_at),
        "decided_at": _at(approval.decided_at),
        "use_by": _at(approval.use_by),
        "deciders": [_decider(decision) for decision in _decisions(approval)],
        "events": list(
            Event.objects.filter(approval_id=approval.pk, type__in=_OF_ITS_DECISION)
            .order_by("seq")
            .values_list("hash", flat=True)
        ),
        "made_at": _at(clock.now()),
        **({"succession": leading} if (leading := keys.succession()) else {}),
    }
    found: dict[str, Any] = digest.load(signed(said))
    return found


def header(approval_id: uuid.UUID) -> str:
    """The receipt of a request as an HTTP header: its JSON in base64url. Empty if nothing can be signed."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None or approval.erased_at is not None or signing_key.problem():
        return ""
    return base64.urlsafe_b64encode(digest.canonical(receipt(approval)).encode()).decode("ascii")


def _decisions(approval: Approval) -> list[Decision]:
    found = approval.decisions.filter(undone_at__isnull=True).select_related("user", "on_behalf_of")
    return list(found.order_by("decided_at", "pk"))


def _decider(decision: Decision) -> dict[str, Any]:
    """As in the ledger: people who work here by name, a customer by an id that may be shown."""
    user, lender = decision.user, decision.on_behalf_of
    customer = clean(f"customer:{decision.customer}")
    return {
        "decision": str(decision.pk),
        "type": decision.type,
        "user": f"user:{user.pk}" if user else customer,
        "name": (user.get_full_name() or user.get_username()) if user else customer.removeprefix("customer:"),
        "on_behalf_of": f"user:{lender.pk}" if lender else "",
        "assurance": decision.assurance,
        "signed": decision.signature is not None,
        "at": _at(decision.decided_at),
    }


def _at(moment: datetime | None) -> str:
    return moment.astimezone(UTC).isoformat() if moment else ""
