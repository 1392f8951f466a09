"""One person's answer to a request, as it came in, and why it cannot be taken. Reads only."""

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

# Who has decided about a call of a mocked run.
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
class Verdict:
    """One person's answer to one request, as it came in, or a customer's. `id` makes a repeat harmless."""

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
    """A dry run of the call as it was edited."""
    assurance: str = ""
    """How they have just shown who they are; empty when they have not."""
    assertion: Assertion | None = None
    """Their passkey's answer, where it signs this very decision."""
    customer: str = ""
    """Who answers, where there is no user: the one who holds the customer's access to the conversation."""
    way: Mapping[str, Any] = field(default_factory=dict)
    """How a customer's answer came, for the record."""
    mocked: bool = False
    """An eval answers, in the place of whoever would be asked."""

    @classmethod
    def in_place_of_people(cls, approval: Approval, type: str, via: str, **said: Any) -> Self:
        """The answer to a request of a mocked run, as whoever is asked would give it, to the call as it waits."""
        digest = approval.final_digest or approval.action_digest
        return cls(uuid.uuid4(), type, None, approval.version, digest, via=via, mocked=True, **said)

    @property
    def actor(self) -> str:
        """The name an event gives them."""
        via = "" if self.via == "console" else self.via
        if self.mocked:
            return via or EVAL
        if self.user is not None:
            return ledger.actor_of(self.user, via)
        return (f"customer:{self.customer}" + (f" ({via})" if via else ""))[: ledger.MAX_ACTOR]

    @property
    def approves(self) -> bool:
        return self.type in (DecisionType.APPROVE, DecisionType.EDIT)


def right_to(approval: Approval, verdict: Verdict) -> Right | Refusal:
    """By what right a verdict on a locked request is given, or why whoever this is has no say.

    People authorize, and only the customer confirms. A right that was lent stays lent until this is stored.
    """
    if approval.mocked or verdict.mocked:
        if approval.mocked and verdict.mocked and verdict.user is None:
            return Right()
        return Refusal("mocked", "Only an eval decides about the calls of a mocked run, and about no others.")
    if verdict.user is not None:
        return right_of(verdict.user, approval, getattr(approval, "is_member", None), lock=True)
    if not approval.asks_customer:
        return Refusal("forbidden", "People with the right to decide are asked about this.")
    return Right()


def refusal(approval: Approval, verdict: Verdict, right: Right) -> Refusal | None:
    """Why a verdict on a locked request is not taken, from somebody who has a say in it. None: it counts."""
    closed = no_longer_open(approval, verdict.user)
    if closed:
        return closed
    if verdict.stop_run and verdict.type != DecisionType.REJECT:
        return Refusal("not_allowed", "Only a rejection can stop the run.", "stop_run")
    if verdict.version != approval.version:
        return Refusal("changed", "This request changed while you were reading. Look again, then decide.")
    if verdict.action_digest != (approval.final_digest or approval.action_digest):
        return Refusal("action_changed", "The call you saw is not the call that waits here. Look again, then decide.")
    # An edit that changes nothing is an approval.
    type_ = decision_of(approval, verdict, None).type
    if not {verdict.type, type_} <= set(approval.allowed_decisions):
        return Refusal("not_allowed", f"The rule does not allow '{type_}' here.")
    wordless = verdict.user is not None and not verdict.message.strip()
    if verdict.type in (DecisionType.REJECT, DecisionType.RESPOND) and wordless:
        return Refusal("message_required", "Say why: the agent reads it." if verdict.type == DecisionType.REJECT
                       else "Write the answer the agent gets in the tool's place.", "message")  # fmt: skip
    if verdict.user is None:
        return None
    if verdict.approves and (unsure := _unsure(approval, verdict)):
        return unsure
    approves_high = verdict.type == DecisionType.APPROVE and approval.risk in HIGH_RISKS
    if approves_high and verdict.user.pk in entitlement.editors(approval):
        why = entitlement.why_editor(approval, verdict.user.pk)
        return Refusal("editor", f"{why}, so somebody else approves them.")
    earlier = next(iter(_OF_ONE.rows(approval=approval.pk, user=verdict.user.pk)), None)
    if earlier is None:
        return _of_no_account(approval, verdict.user, right) if approval.terms else None
    if earlier.on_behalf_of_id == verdict.user.pk:
        return Refusal("decided_for_you", f"{earlier.name} has decided for you; this request needs another person.")
    return Refusal("decided_by_you", "You have already decided; this request needs another person.")


def _unsure(approval: Approval, verdict: Verdict) -> Refusal | None:
    """Why somebody has not shown well enough who they are to approve a locked request."""
    if verdict.assertion is not None:
        if not verify(decision_of(approval, verdict, None)):
            return Refusal("signature", "That signature is not of this decision by a passkey of yours. Sign again. "
                           "Nothing was decided.")  # fmt: skip
        return None
    needed = approval.assurance_needed
    if needed == step_up.SIGNED:
        return Refusal("signature", "This is approved by signing it with your passkey. Nothing was decided.")
    if not step_up.is_enough(decision_of(approval, verdict, None).assurance, needed):
        words = step_up.NEEDS[needed]
        return Refusal("reauthenticate", f"Show that it is you: this is approved with {words}. Nothing was decided.")
    return None


def decision_of(approval: Approval, verdict: Verdict, lender: User | None) -> Decision:
    """The decision that a verdict on a request comes to, not stored. An edit that changes nothing is an approval."""
    current = approval.final_arguments_text or approval.arguments_text
    edited = verdict.type == DecisionType.EDIT and verdict.edited_text != current
    text = verdict.edited_text if edited else current
    decision = Decision(
        pk=verdict.id,
        approval=approval,
        user=verdict.user,
        on_behalf_of=lender,
        customer=verdict.customer[:200],
        mocked=verdict.mocked,
        type=DecisionType.APPROVE if verdict.type == DecisionType.EDIT and not edited else verdict.type,
        arguments_text=text,
        message=verdict.message,
        stop_run=verdict.stop_run,
        approval_version=verdict.version,
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
        via=verdict.via[:20],
        assurance=verdict.assurance if step_up.is_claimable(verdict.assurance) else "",
    )
    if verdict.assertion is not None and verdict.approves:
        decision.assurance = step_up.SIGNED
        decision.signature = verdict.assertion.as_json(statement_of(decision, verdict.assertion.nonce))
    return decision


def _of_no_account(approval: Approval, user: User, right: Right) -> Refusal | None:
    """Why the decision of somebody who may decide would count for none of the thresholds."""
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
    if approval.expires_at <= approval.db_now:  # type: ignore[attr-defined]
        return Refusal("expired", "Time ran out before this decision; the call will not run.")
    return None


def says(decision: Decision, approval_id: uuid.UUID, verdict: Verdict) -> bool:
    """Whether a verdict sent again asks for what was recorded. An edit that changed nothing was an approval."""
    user_id = verdict.user.pk if verdict.user is not None else None
    by = (user_id, verdict.customer, verdict.mocked)
    if (decision.approval_id, decision.user_id, decision.customer, decision.mocked) != (approval_id, *by):
        return False
    if decision.stop_run != verdict.stop_run or decision.message not in (verdict.message, ERASED):
        return False
    if verdict.type == DecisionType.EDIT:
        approving = decision.type in (DecisionType.APPROVE, DecisionType.EDIT)
        return approving and decision.arguments_text == verdict.edited_text
    return decision.type == verdict.type


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
