"""One person's decision on a request, as it came in, and why it cannot be accepted. Reads only."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from django.contrib.auth.models import User
from django.db.models import IntegerField, Q, UUIDField

from approvals import entitlement, ledger, step_up
from approvals.cards import digest_of
from approvals.models import HIGH_RISKS, Approval, Decision, DecisionType
from approvals.prepared import Given, Prepared
from approvals.sealed import ERASED
from approvals.signatures import Assertion, statement_of, verify
from approvals.standing import Refusal, Right, progress, right_of

# The decider of a mocked run's calls.
EVAL = "eval"

_USER = Given("user", IntegerField())
_OF_ONE = Prepared(
    lambda: (
        Decision.objects.select_related("user", "on_behalf_of")
        .filter(Q(user=_USER) | Q(on_behalf_of=_USER), approval=Given("approval", UUIDField()), undone_at__isnull=True)
        .order_by("decided_at")[:1]
    )
)


@dataclass(frozen=True)
class Incoming:
    """One person's decision on one request, as it came in, or a customer's. `id` makes a repeat harmless."""

    id: uuid.UUID
    type: str
    user: User | None
    version: int
    action_digest: str
    message: str = ""
    stop_run: bool = False
    via: str = "console"
    edited_text: str = ""
    edited_title: str = ""
    edited_preview: str = ""
    """A dry run of the call as edited."""
    assurance: str = ""
    """How they have just proved who they are; empty if they have not."""
    assertion: Assertion | None = None
    """Their passkey's answer, if it signs this very decision."""
    customer: str = ""
    """Who answers if there is no user: the holder of the customer's access to the conversation."""
    way: Mapping[str, Any] = field(default_factory=dict)
    """How a customer's answer came, for the record."""
    mocked: bool = False
    """An eval answers in place of the people who would be asked."""

    @classmethod
    def in_place_of_people(cls, approval: Approval, type: str, via: str, **said: Any) -> Self:
        """The answer to a mocked run's request, as the people asked would give it, to the call as it waits."""
        digest = approval.final_digest or approval.action_digest
        return cls(uuid.uuid4(), type, None, approval.version, digest, via=via, mocked=True, **said)

    @property
    def actor(self) -> str:
        """The name that events give them."""
        via = "" if self.via == "console" else self.via
        if self.mocked:
            return via or EVAL
        if self.user is not None:
            return ledger.actor_of(self.user, via)
        return (f"customer:{self.customer}" + (f" ({via})" if via else ""))[: ledger.MAX_ACTOR]

    @property
    def approves(self) -> bool:
        return self.type in (DecisionType.APPROVE, DecisionType.EDIT)


def right_to(approval: Approval, incoming: Incoming) -> Right | Refusal:
    """By what right a decision on a locked request is made, or why this person has no say.

    People authorize, and only the customer confirms. A lent right stays lent until this is stored.
    """
    if approval.mocked or incoming.mocked:
        if approval.mocked and incoming.mocked and incoming.user is None:
            return Right()
        return Refusal("mocked", "Only an eval can decide about the calls of a mocked run, and about no others.")
    if incoming.user is not None:
        return right_of(incoming.user, approval, getattr(approval, "is_member", None), lock=True)
    if not approval.asks_customer:
        return Refusal("forbidden", "People with the right to decide are asked about this.")
    return Right()


def refusal(approval: Approval, incoming: Incoming, right: Right) -> Refusal | None:
    """Why a decision on a locked request is not accepted from somebody who has a say in it. None: it counts."""
    closed = no_longer_open(approval, incoming.user)
    if closed:
        return closed
    if incoming.stop_run and incoming.type != DecisionType.REJECT:
        return Refusal("not_allowed", "Only a rejection can stop the run.", "stop_run")
    if incoming.version != approval.version:
        return Refusal("changed", "This request changed while you were reading. Look again, then decide.")
    if incoming.action_digest != (approval.final_digest or approval.action_digest):
        return Refusal("action_changed", "The call you saw is not the call waiting here. Look again, then decide.")
    # An edit that changes nothing is an approval.
    type_ = decision_of(approval, incoming, None).type
    if not {incoming.type, type_} <= set(approval.allowed_decisions):
        return Refusal("not_allowed", f"The rule does not allow '{type_}' here.")
    wordless = incoming.user is not None and not incoming.message.strip()
    if incoming.type in (DecisionType.REJECT, DecisionType.RESPOND) and wordless:
        return Refusal("message_required", "Say why: the agent reads it." if incoming.type == DecisionType.REJECT
                       else "Write the answer that the agent gets in the tool's place.", "message")  # fmt: skip
    if incoming.user is None:
        return None
    if incoming.approves and (unsure := _unsure(approval, incoming)):
        return unsure
    approves_high = type_ == DecisionType.APPROVE and approval.risk in HIGH_RISKS
    if approves_high and incoming.user.pk in entitlement.editors(approval):
        why = entitlement.why_editor(approval, incoming.user.pk)
        return Refusal("editor", f"{why}, so somebody else must approve them.")
    earlier = next(iter(_OF_ONE.rows(approval=approval.pk, user=incoming.user.pk)), None)
    if earlier is None:
        return _of_no_account(approval, incoming.user, right) if approval.terms else None
    if earlier.on_behalf_of_id == incoming.user.pk:
        return Refusal("decided_for_you", f"{earlier.name} has decided for you; this request needs another person.")
    return Refusal("decided_by_you", "You have already decided; this request needs another person.")


def _unsure(approval: Approval, incoming: Incoming) -> Refusal | None:
    """Why somebody has not proved well enough who they are to approve a locked request."""
    if incoming.assertion is not None:
        if not verify(decision_of(approval, incoming, None)):
            return Refusal("signature", "That is not a signature of this decision by one of your passkeys. Sign again. "
                           "Nothing was decided.")  # fmt: skip
        return None
    needed = approval.assurance_needed
    if needed == step_up.SIGNED:
        return Refusal("signature", "Sign the decision with your passkey to approve this. Nothing was decided.")
    if not step_up.is_enough(decision_of(approval, incoming, None).assurance, needed):
        words = step_up.NEEDS[needed]
        return Refusal("reauthenticate", f"Confirm that it is you: approving this needs {words}. Nothing was decided.")
    return None


def decision_of(approval: Approval, incoming: Incoming, lender: User | None) -> Decision:
    """The row of a decision as it came in, not stored. An edit that changes nothing is an approval."""
    current = approval.final_arguments_text or approval.arguments_text
    edited = incoming.type == DecisionType.EDIT and incoming.edited_text != current
    text = incoming.edited_text if edited else current
    decision = Decision(
        pk=incoming.id,
        approval=approval,
        user=incoming.user,
        on_behalf_of=lender,
        customer=incoming.customer[:200],
        mocked=incoming.mocked,
        type=DecisionType.APPROVE if incoming.type == DecisionType.EDIT and not edited else incoming.type,
        arguments_text=text,
        message=incoming.message,
        stop_run=incoming.stop_run,
        approval_version=incoming.version,
        action_digest=digest_of(
            approval.tool,
            approval.tool_version,
            text,
            approval.run_id,
            approval.execution_id,
            approval.plan_text,
            approval.salt,
        ),
        view_digest=approval.view_digest,
        via=incoming.via[:20],
        assurance=incoming.assurance if step_up.is_claimable(incoming.assurance) else "",
    )
    if incoming.assertion is not None and incoming.approves:
        decision.assurance = step_up.SIGNED
        decision.signature = incoming.assertion.as_json(statement_of(decision, incoming.assertion.nonce))
    return decision


def _of_no_account(approval: Approval, user: User, right: Right) -> Refusal | None:
    """Why a decision would count for none of the thresholds, though the person may decide."""
    count = progress(approval, [(user.pk, right.lender.pk if right.lender is not None else None)])
    if user.pk in count.people and count.involves(count.people[user.pk]):
        return None
    return Refusal("forbidden", f"Your decision would not count here. It needs: {count.terms.words}.")


def no_longer_open(approval: Approval, decider: User | None = None) -> Refusal | None:
    """Why nothing can be decided or asked about a locked request any more. `decider`: who wants to decide."""
    if approval.state == Approval.State.EXPIRED and approval.decided_at is None:
        return Refusal("expired", "No one decided in time; the call will not run.")
    if approval.state == Approval.State.SUPERSEDED:
        return Refusal("superseded", "This request was replaced by a newer one.")
    if approval.state not in Approval.UNDECIDED:
        return _decided_or_closed(approval, decider)
    if approval.expires_at <= approval.database_now:  # type: ignore[attr-defined]
        return Refusal("expired", "Time ran out before this decision; the call will not run.")
    return None


def says(decision: Decision, approval_id: uuid.UUID, incoming: Incoming) -> bool:
    """Whether a repeated decision is the one that was recorded. An edit that changed nothing was an approval."""
    user_id = incoming.user.pk if incoming.user is not None else None
    by = (user_id, incoming.customer, incoming.mocked)
    if (decision.approval_id, decision.user_id, decision.customer, decision.mocked) != (approval_id, *by):
        return False
    if decision.stop_run != incoming.stop_run or decision.message not in (incoming.message, ERASED):
        return False
    if incoming.type == DecisionType.EDIT:
        approving = decision.type in (DecisionType.APPROVE, DecisionType.EDIT)
        return approving and decision.arguments_text == incoming.edited_text
    return decision.type == incoming.type


def _decided_or_closed(approval: Approval, decider: User | None) -> Refusal:
    words = {
        Approval.State.EXPIRED: "This request has expired.",
        Approval.State.WITHDRAWN: "This request was withdrawn because its run ended.",
    }
    last = approval.decisions.select_related("user", "on_behalf_of").filter(undone_at__isnull=True).last()
    if last is None or approval.state in words:
        return Refusal("already_decided", words.get(Approval.State(approval.state), "This request is closed."))
    done = {"approve": "approved it", "edit": "approved it with changes", "reject": "rejected it"}
    done_by_them = done.get(last.type, "answered it")
    if decider is not None and last.user_id == decider.pk:
        return Refusal("decided_by_you", f"You have already {done_by_them}. This decision was not recorded.")
    return Refusal("already_decided", f"{last.who} already {done_by_them}. Your decision was not recorded.")
