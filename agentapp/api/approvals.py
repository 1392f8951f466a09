"""Approvals: read what is asked, and decide as the token's person."""

import json
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from django.contrib.auth.models import User
from django.http import HttpResponse
from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from agentapp import actions, auth, executions, lineage
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import ApiProblem, not_found, problems
from agentapp.api.masking import unmasked
from agentapp.api.paging import Listing, Page, page_of
from agentapp.api.runs import REPLAY_HEADER
from agentapp.api.tool_executions import DecisionOut, Person, decision_out
from agentapp.models import ToolExecution
from approvals import standing
from approvals.digest import canonical
from approvals.masking import masked
from approvals.models import Approval, Decision, Question

router = Router(tags=["Approvals"])

ApprovalState = Literal[
    "pending", "asked", "approved", "rejected", "responded", "expired", "withdrawn", "superseded", "used",
]  # fmt: skip


class DecisionIn(BaseModel):
    """A decision about what you have read. `version` and `action_digest` say what that was."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "decision_id": "0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11",
                    "type": "edit",
                    "args": {"order": "1042", "amount": 120.0},
                    "message": "Only the kettle, not the shipping.",
                    "version": 1,
                    "action_digest": "7f0a5d31c4b8e2962d1f3a60b97c45e8d2604fb1a39ce8570d6b24f183ac59e7",
                }
            ]
        },
    )

    decision_id: uuid.UUID = Field(description="A new UUID of yours. Sent again, it gives the first answer again.")
    type: Literal["approve", "edit", "reject", "respond"]
    args: dict[str, Any] | None = Field(
        default=None, description="With `edit`: all arguments, as they shall run. A masked one keeps its value."
    )
    message: Annotated[str, StringConstraints(strict=True, max_length=10_000)] = Field(
        default="", description="Read by the agent. Needed to reject, and to respond in the tool's place."
    )
    stop_run: StrictBool = Field(default=False, description="With `reject`: stop the run instead of letting it go on.")
    version: StrictInt = Field(description="`version` of the approval you read.")
    action_digest: Annotated[str, StringConstraints(strict=True, pattern="^[0-9a-f]{64}$")] = Field(
        description="`action_digest` of the approval you read."
    )


class ApprovalOut(BaseModel):
    """An approval, as lists show it."""

    id: uuid.UUID
    reference: str
    kind: str = Field(description="`authorization`, by people; or `confirmation`, by the customer of the conversation.")
    run: uuid.UUID
    agent: str
    route: str | None
    run_title: str
    tool: str
    effect_class: str
    title: str
    risk: str
    rule: str | None
    reason: str | None
    state: str
    version: int
    action_digest: str = Field(description="Digest of the exact call that waits here, edits included.")
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None


class Effect(BaseModel):
    title: str
    detail: str


class AskerOut(BaseModel):
    """One agent on the way to the one that asks, and its run."""

    agent: str
    run: uuid.UUID


class ExecutionResult(BaseModel):
    """What came of the call."""

    id: uuid.UUID
    state: str
    result_status: str | None
    reason: str | None
    message: str | None
    result: Any
    started_at: datetime | None
    finished_at: datetime | None


class RuleValue(BaseModel):
    """Something a rule's condition looked at. Without a value: the call has no such thing."""

    name: str
    value: Any = None


class QuestionOut(BaseModel):
    """What somebody asked before deciding."""

    id: uuid.UUID
    asker: Person
    text: str
    asked_at: datetime
    answer_by: datetime
    answer: str | None = Field(description="The agent's words, a claim; or those of `answerer`.")
    answerer: Person | None
    closed_at: datetime | None


class ApprovalDetail(ApprovalOut):
    """Everything the card shows, and everything a decision must echo."""

    path: list[AskerOut] = Field(
        description="From the agent that was started to the one that asks here: one, unless agents asked agents."
    )
    tool_version: str
    sentence: str = Field(description="What will happen, from the tool's own template.")
    effects: list[Effect]
    button: str | None = Field(description="The size of the effect, as in $214.50.")
    args: dict[str, Any] = Field(description="The proposed arguments; secret ones are masked.")
    final_args: dict[str, Any] | None = Field(description="What will run instead, when a person edited.")
    locked_fields: list[str]
    secret_fields: list[str]
    evidence: list[dict[str, Any]]
    difference: list[dict[str, Any]] = Field(description="What changed since the approval this one replaces.")
    condition: str | None = Field(description="What the rule looked at.")
    rule_values: list[RuleValue] = Field(description="What it found there; secrets are masked.")
    questions: list[QuestionOut]
    paused_seconds: int = Field(description="How long questions have stopped the clock.")
    explanation: str | None = Field(description="The model's words: a claim, not a fact.")
    allowed_decisions: list[str]
    approvals_needed: int
    groups: list[str] = Field(description="Who may decide. Empty means everybody with the right to decide.")
    starter: Person | None
    starter_excluded: bool
    you_may_decide: bool
    you_may_not_because: str | None
    supersedes: uuid.UUID | None
    runs_at: datetime | None = Field(description="Until then the decision can be undone in the console.")
    use_by: datetime | None
    used_at: datetime | None
    decisions: list[DecisionOut]
    execution: ExecutionResult | None


class ApprovalPage(Page[ApprovalOut]):
    """Approvals, newest first."""


class TakenOut(BaseModel):
    """The decision that was taken, and where the approval stands now."""

    decision: DecisionOut
    approval: ApprovalDetail


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
    """Everything the card shows. Read it before deciding: a decision echoes `version` and `action_digest`."""
    return approval_detail(_visible(request, approval_id), person(request))


@router.post(
    "/approvals/{approval_id}/decisions",
    auth=Bearer("approvals:decide"),
    response={201: TakenOut, 200: TakenOut, **problems(400, 404, 409, 413, 415, 422)},
    operation_id="decide",
    summary="Decide",
    openapi_extra={
        "responses": {
            200: {
                "description": "The decision this id has made before",
                "headers": {REPLAY_HEADER: {"schema": {"type": "string", "const": "true"}, "required": True}},
            }
        }
    },
)
def decide(request: ApiRequest, response: HttpResponse, approval_id: uuid.UUID, body: DecisionIn) -> Status[TakenOut]:
    """Approve, edit, reject, or respond in the tool's place. The first decision counts; whoever comes second
    is told who was first and what they decided (409).
    """
    approval = _visible(request, approval_id)
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
        decision=decision_out(Decision.objects.select_related("user").get(pk=taken.decision.pk)),
        approval=approval_detail(_visible(request, approval_id), person(request)),
    )
    return Status(200 if taken.repeated else 201, shown)


def approval_detail(approval: Approval, user: User) -> ApprovalDetail:
    execution = ToolExecution.objects.select_related("run").filter(pk=approval.execution_id).first()
    path = lineage.path_of(execution.run) if execution else ()
    refusal = standing.may_decide(user, approval)
    secret = approval.secret_fields
    starter = approval.starter
    return ApprovalDetail(
        **_shown(approval),
        path=[AskerOut(agent=asker.agent, run=asker.run) for asker in path],
        tool_version=approval.tool_version,
        sentence="".join(piece["text"] for piece in approval.sentence),
        effects=[Effect(title=line.get("title", ""), detail=line.get("detail", "")) for line in approval.effects],
        button=approval.button or None,
        args=masked(json.loads(approval.arguments_text), secret),
        final_args=masked(json.loads(approval.final_arguments_text), secret) if approval.is_edited else None,
        locked_fields=approval.locked_fields,
        secret_fields=secret,
        evidence=approval.evidence,
        difference=approval.difference,
        condition=approval.condition or None,
        rule_values=[RuleValue(**value) for value in approval.rule_values],
        questions=[_question(question) for question in approval.questions.select_related("asker", "answerer")],
        paused_seconds=approval.paused_seconds,
        explanation=approval.explanation or None,
        allowed_decisions=approval.allowed_decisions,
        approvals_needed=approval.approvals_needed,
        groups=[group.name for group in approval.groups.all()],
        starter=_person(starter),
        starter_excluded=approval.starter_excluded,
        you_may_decide=refusal is None,
        you_may_not_because=refusal.message if refusal else None,
        supersedes=approval.supersedes_id,
        runs_at=approval.runs_at,
        use_by=approval.use_by,
        used_at=approval.used_at,
        decisions=[decision_out(decision) for decision in approval.decisions.select_related("user")],
        execution=_execution_result(execution) if execution else None,
    )


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
        "reason": approval.reason or None,
        "state": approval.state,
        "version": approval.version,
        "action_digest": approval.final_digest or approval.action_digest,
        "created_at": approval.created_at,
        "expires_at": approval.expires_at,
        "decided_at": approval.decided_at,
    }


def _execution_result(execution: ToolExecution) -> ExecutionResult:
    return ExecutionResult(
        id=execution.pk,
        state=execution.state,
        result_status=execution.result_status or None,
        reason=execution.reason or None,
        message=execution.message or None,
        result=executions.result_value(execution),
        started_at=execution.started_at,
        finished_at=execution.finished_at,
    )


def _edited_text(approval: Approval, body: DecisionIn) -> str:
    """The canonical text of the edited arguments; empty unless the decision is an edit."""
    if body.type != "edit":
        if body.args is not None:
            raise ApiProblem("invalid", "Only an edit carries arguments.", "args")
        return ""
    if body.args is None:
        raise ApiProblem("invalid", "An edit carries all arguments, as they shall run.", "args")
    current = approval.final_arguments_text or approval.arguments_text
    return canonical(unmasked(body.args, current, approval.secret_fields))


def _visible(request: ApiRequest, approval_id: uuid.UUID) -> Approval:
    rows = auth.visible_approvals(person(request)).select_related("starter").prefetch_related("groups")
    approval = rows.filter(pk=approval_id).first()
    if approval is None:
        raise not_found()
    return approval
