"""Approvals: read them, and decide as the token's person."""

import json
import uuid
from collections.abc import Sequence
from typing import Any, Literal

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.utils import timezone
from ninja import Query, Router
from ninja.responses import Status
from pydantic import Field

from agentapp import actions, auth, confirming, lineage
from agentapp.api.approval_schemas import (
    ApprovalDetail,
    ApprovalOut,
    ApprovalPage,
    AskerOut,
    DecisionIn,
    Effect,
    ExecutionResult,
    QuestionOut,
    RiskFactor,
    RuleValue,
    SecondLookOut,
    TakenOut,
    ThresholdOut,
    ValueOrigin,
)
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import ApiProblem, not_found, problems
from agentapp.api.escalation import step_out
from agentapp.api.masking import unmasked
from agentapp.api.paging import Listing, page_of
from agentapp.api.plans import plan_out
from agentapp.api.repeats import REPLAY_HEADER, of_a_repeat
from agentapp.api.tool_executions import Person, decision_out
from agentapp.cards import words_of
from agentapp.models import ToolExecution
from agentapp.secrecy import result_shown
from approvals import lens, questions, remaining, say
from approvals.digest import canonical
from approvals.masking import masked, masked_lines
from approvals.models import Approval, Decision, Question, Risk
from approvals.standing import Refusal, Right, right_of
from approvals.thresholds import Terms, Threshold

router = Router(tags=["Approvals"])

ApprovalState = Literal[
    "pending", "asked", "approved", "rejected", "responded", "expired", "withdrawn", "superseded", "used",
]  # fmt: skip


class ApprovalListing(Listing):
    state: ApprovalState | None = Field(default=None, description="Only approvals in this state.")
    run: uuid.UUID | None = Field(default=None, description="Only approvals of this run.")


@router.get(
    "/approvals",
    auth=Bearer("approvals:read"),
    response={200: ApprovalPage, **problems(422)},
    operation_id="list_approvals",
    summary="List approvals",
)
def list_approvals(request: ApiRequest, listing: Query[ApprovalListing]) -> ApprovalPage:
    """The approvals the token's person may see, newest first."""
    rows = auth.visible_approvals(person(request))
    if listing.state:
        rows = rows.filter(state=listing.state)
    if listing.run:
        rows = rows.filter(run_id=listing.run)
    found, following = page_of(rows, "-id", listing)
    return ApprovalPage(items=[ApprovalOut(**_shown(approval)) for approval in found], next=following)


@router.get(
    "/approvals/{approval_id}",
    auth=Bearer("approvals:read"),
    response={200: ApprovalDetail, **problems(404)},
    operation_id="get_approval",
    summary="Read an approval",
)
def get_approval(request: ApiRequest, approval_id: uuid.UUID) -> ApprovalDetail:
    """Everything the card shows. Read it before you decide: a decision echoes `version` and `action_digest`."""
    return approval_detail(visible_approval(request, approval_id), person(request))


@router.post(
    "/approvals/{approval_id}/decisions",
    auth=Bearer("approvals:decide"),
    response={201: TakenOut, 200: TakenOut, **problems(400, 404, 409, 413, 415, 422)},
    operation_id="decide",
    summary="Decide",
    openapi_extra={"responses": {200: of_a_repeat("The decision made earlier with this id")}},
)
def decide(request: ApiRequest, response: HttpResponse, approval_id: uuid.UUID, body: DecisionIn) -> Status[TakenOut]:
    """Approve, edit, reject, or respond in the tool's place. The first decision counts; a later one is refused
    (409) with who decided first and what they decided.
    """
    approval = visible_approval(request, approval_id)
    new = actions.NewDecision(
        id=body.decision_id,
        type=body.type,
        version=body.version,
        action_digest=body.action_digest,
        arguments_text=_edited_text(approval, body),
        message=body.message,
        stop_run=body.stop_run,
        via=f"api {request.auth.prefix}",
    )
    taken = actions.decide(approval_id, new, person(request))
    if taken.repeated:
        response[REPLAY_HEADER] = "true"
    shown = TakenOut(
        decision=decision_out(Decision.objects.select_related("user", "on_behalf_of").get(pk=taken.decision.pk)),
        approval=approval_detail(visible_approval(request, approval_id), person(request)),
    )
    return Status(200 if taken.repeated else 201, shown)


def approval_detail(approval: Approval, user: User) -> ApprovalDetail:
    execution = ToolExecution.objects.select_related("run", "tool").filter(pk=approval.execution_id).first()
    path = lineage.path_of(execution.run) if execution else ()
    right = right_of(user, approval)
    given = list(approval.decisions.select_related("user", "on_behalf_of"))
    if isinstance(right, Right):
        lens.show()  # people who may decide it see its personal data
    refusal, lender = _say_of(approval, user, right, [decision for decision in given if decision.undone_at is None])
    secret = lens.hidden(approval.secret_fields, approval.pii_fields)
    terms = Terms.from_json(approval.terms)
    waits = json.loads(approval.final_arguments_text or approval.arguments_text)
    words = words_of(approval, execution.tool if execution else None, waits)
    return ApprovalDetail(
        **_shown(approval),
        path=[AskerOut(agent=asker.agent, run=asker.run) for asker in path],
        tool_version=approval.tool_version,
        sentence="".join(piece["text"] for piece in words.sentence),
        effects=[Effect(title=line.get("title", ""), detail=line.get("detail", "")) for line in words.effects],
        button=words.button or None,
        args=masked(json.loads(approval.arguments_text), secret),
        final_args=masked(json.loads(approval.final_arguments_text), secret) if approval.is_edited else None,
        locked_fields=approval.locked_fields,
        secret_fields=secret,
        evidence=approval.evidence,
        difference=masked_lines(approval.difference, secret),
        state_unavailable=approval.why_unseen,
        preview=_preview(approval.shown_preview_text, secret) if approval.shown_preview_text else None,
        plan=plan_out(approval),
        condition=approval.condition or None,
        rule_values=[RuleValue(**value) for value in approval.rule_values],
        risk_factors=[RiskFactor(**factor) for factor in approval.risk_factors],
        provenance=[ValueOrigin(**row) for row in approval.provenance],
        second_look=SecondLookOut(**approval.second_look) if approval.second_look else None,
        questions=[_question(question) for question in questions.about(approval).select_related("asker", "answerer")],
        business_hours=approval.business_hours,
        escalation=[step_out(step) for step in approval.escalation],
        paused_seconds=approval.paused_seconds,
        explanation=approval.explanation or None,
        allowed_decisions=approval.allowed_decisions,
        approvals_needed=approval.approvals_needed,
        terms=terms.words or None,
        thresholds=[list(map(_threshold, rule)) for rule in terms.rules],
        groups=[group.name for group in approval.groups.all()],
        assurance_needed=approval.assurance_needed or None,
        starter=_person(approval.starter),
        starter_excluded=approval.starter_excluded,
        you_may_decide=refusal is None,
        you_may_not_because=refusal.message if refusal else None,
        left_to_approve=left.words if (left := remaining.of(approval)) else None,
        you_decide_for=_person(lender),
        supersedes=approval.supersedes_id,
        runs_at=approval.runs_at,
        use_by=approval.use_by,
        used_at=approval.used_at,
        decisions=[decision_out(decision) for decision in given],
        execution=_execution_result(execution) if execution else None,
    )


def _say_of(
    approval: Approval, user: User, right: Right | Refusal, given: Sequence[Decision]
) -> tuple[Refusal | None, User | None]:
    """Why a program acting for this person cannot decide now, or whose right it would use if not the person's own."""
    if isinstance(right, Refusal):
        return right, None
    if approval.state not in Approval.UNDECIDED:
        return Refusal("already_decided", f"Nothing is left to decide: this request is {approval.state}."), None
    if approval.expires_at <= timezone.now():
        return Refusal("expired", "The request has expired; the call will not run."), None
    if approval.risk == Risk.CRITICAL:
        return Refusal("needs_person", confirming.NO_PROGRAM), None
    return say.of(approval, user, right, given)


def _threshold(one: Threshold) -> ThresholdOut:
    return ThresholdOut(approve=one.approve, deny=one.deny, groups=list(one.names), condition=one.condition or None)


def _preview(text: str, secret: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found | ({"lines": masked_lines(found["lines"], secret)} if "lines" in found else {})


def _question(question: Question) -> QuestionOut:
    asker = _person(question.asker)
    assert asker is not None
    return QuestionOut(
        id=question.pk,
        asker=asker,
        text=question.text,
        asked_at=question.asked_at,
        answer_by=question.answer_by,
        answer=question.answer or None,
        answerer=_person(question.answerer),
        closed_at=question.closed_at,
    )


def _person(user: User | None) -> Person | None:
    return Person(username=user.get_username(), name=user.get_full_name() or user.get_username()) if user else None


def _shown(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.pk,
        "reference": approval.reference,
        "kind": approval.kind,
        "run": approval.run_id,
        "agent": approval.agent,
        "route": approval.route or None,
        "run_title": approval.run_title,
        "tool": approval.tool,
        "effect_class": approval.effect_class,
        "title": approval.shown_title,
        "risk": approval.risk,
        "rule": approval.rule or None,
        "rule_version": approval.rule_version or None,
        "rule_digest": approval.rule_digest or None,
        "reason": approval.reason or None,
        "state": approval.state,
        "version": approval.version,
        "action_digest": approval.final_digest or approval.action_digest,
        "created_at": approval.created_at,
        "expires_at": approval.expires_at,
        "target_at": approval.target_at,
        "breached_at": approval.breached_at,
        "decided_at": approval.decided_at,
    }


def _execution_result(execution: ToolExecution) -> ExecutionResult:
    return ExecutionResult(
        id=execution.pk,
        state=execution.state,
        result_status=execution.result_status or None,
        reason=execution.reason or None,
        message=execution.message or None,
        result=result_shown(execution),
        started_at=execution.started_at,
        finished_at=execution.finished_at,
    )


def _edited_text(approval: Approval, body: DecisionIn) -> str:
    """The canonical text of the edited arguments; empty unless the decision is an edit."""
    if body.type != "edit":
        if body.args is not None:
            raise ApiProblem("invalid", "Only an edit may carry arguments.", "args")
        return ""
    if body.args is None:
        raise ApiProblem("invalid", "An edit must carry all the arguments to run with.", "args")
    current = approval.final_arguments_text or approval.arguments_text
    return canonical(unmasked(body.args, current, approval.secret_fields))


def visible_approval(request: ApiRequest, approval_id: uuid.UUID) -> Approval:
    rows = auth.visible_approvals(person(request)).select_related("starter").prefetch_related("groups")
    approval = rows.filter(pk=approval_id).first()
    if approval is None:
        raise not_found()
    return approval
