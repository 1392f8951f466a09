"""Tool executions: one proposed call and everything that became of it."""

import json
import uuid
from datetime import datetime
from typing import Any, Literal

from ninja import Router
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from agentapp import actions, auth, executions
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import not_found, problems
from agentapp.api.masking import masked_text
from agentapp.api.wire import money
from agentapp.models import Run, ToolEvaluation, ToolExecution
from agentapp.secrecy import shown
from approvals import lens
from approvals.masking import masked, masked_lines
from approvals.models import Approval, Decision

router = Router(tags=["Tool executions"])


class Person(BaseModel):
    username: str
    name: str


class DecisionOut(BaseModel):
    """One person's verdict on an approval."""

    id: uuid.UUID
    type: str
    user: Person | None = Field(description="Null if the customer decided, named in `customer`.")
    on_behalf_of: Person | None = Field(description="Who lent `user` the right. Null if it was their own.")
    customer: str | None
    message: str
    stop_run: bool
    via: str
    assurance: str | None = Field(
        description="How they had just shown who they are: `password`, `totp`, `passkey`, or `signed` with a passkey."
    )
    decided_at: datetime
    undone_at: datetime | None


class CallApproval(BaseModel):
    """A summary of the approval that a call waited for."""

    id: uuid.UUID
    reference: str
    state: str
    risk: str
    rule: str | None
    reason: str | None
    decisions: list[DecisionOut]


class SubrunOut(BaseModel):
    """A summary of the run of another agent that answers a call."""

    id: uuid.UUID
    reference: str
    agent: str
    state: str
    stop_reason: str | None
    cost: str
    created_at: datetime
    finished_at: datetime | None


class EvaluationOut(BaseModel):
    """Why a call was proposed, where guidelines decide."""

    state: str
    mode: str = Field(description="`auto_approved` (no model was asked), `short` or `full` (argument by argument).")
    guidelines: list[str] = Field(description="Those that asked for the tool. Empty if guidance is open.")
    rationale: str | None = Field(description="The model's own words: a claim.")


class ToolExecutionOut(BaseModel):
    """One proposed call. Secret arguments are masked."""

    id: uuid.UUID
    index: int
    call_id: str
    tool: str
    effect_class: str
    args: Any = Field(
        description="As proposed, or as a hook changed them. Text if the model sent something that is not JSON."
    )
    executed_args: Any = Field(description="What ran, if it ran. Differs from `args` if a person edited it.")
    was_changed_by_hook: bool
    was_blocked: bool = Field(description="A hook blocked it.")
    state: str
    result_status: str | None
    reason: str | None = Field(description="A code: why it was refused or failed.")
    message: str | None
    result: Any
    comparison: dict[str, Any] | None = Field(
        description="What its dry run predicted compared with what happened: `lines` of {name, before, predicted, "
        "actual, state}, where state is `as_predicted`, `drifted` or `not_measured`. Null if nothing was predicted."
    )
    trust: str
    evidence_ref: str | None
    allowed_by: str | None = Field(
        description="What let it run without asking a person about it: `rule:…`, `grant:…`, `plan:…`, `read`."
    )
    approval: CallApproval | None
    evaluation: EvaluationOut | None = Field(description="Why it was proposed, if the agent follows guidelines.")
    subrun: SubrunOut | None = Field(description="The run that answers it, if the call asks another agent.")
    attempts: int
    outcome_note: str | None
    proposed_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ResultOut(BaseModel):
    """Everything kept of what a call returned. A model sees only the result, possibly cut."""

    id: uuid.UUID
    tool: str
    state: str
    result_status: str | None
    reason: str | None
    message: str | None
    result: Any
    artifact: Any = Field(description="What the tool returned for the application, in addition to its result.")
    metadata: dict[str, Any]
    retry_after: float | None = Field(description="In seconds, if the tool said when to try again.")
    cost: str = Field(description="In US dollars.")


class OutcomeIn(BaseModel):
    """What became of a call whose outcome was unknown."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"outcome": "happened", "note": "The refund is in the payment provider's list."}]
        },
    )

    outcome: Literal["happened", "did_not_happen", "retry"] = Field(
        description="`retry` proposes the call again, under the usual rules."
    )
    note: StrictStr = Field(max_length=10_000, description="How you know. Kept on record.")


@router.post(
    "/tool-executions/{execution_id}/outcome",
    auth=Bearer("approvals:decide"),
    response={200: ToolExecutionOut, **problems(400, 404, 409, 413, 415, 422)},
    operation_id="resolve_outcome",
    summary="Say what became of a call",
)
def resolve_outcome(request: ApiRequest, execution_id: uuid.UUID, body: OutcomeIn) -> ToolExecutionOut:
    """A worker died in the middle of this call, so nobody knows what it did. Say what you found out, and the run goes
    on. Nobody who started the run, took it over or made the token it was started with may do this.
    """
    user = person(request)
    visible = ToolExecution.objects.filter(pk=execution_id, run__in=auth.visible_runs(user))
    if not visible.exists():
        raise not_found()
    actions.resolve_outcome(execution_id, body.outcome, body.note, user)
    rows = ToolExecution.objects.select_related("tool", "approval", "subrun__agent", "evaluation")
    return execution_out(rows.prefetch_related("approval__decisions__user").get(pk=execution_id))


@router.get(
    "/tool-executions/{execution_id}/result",
    auth=Bearer("runs:read"),
    response={200: ResultOut, **problems(404)},
    operation_id="get_result",
    summary="Read all of a result",
)
def get_result(request: ApiRequest, execution_id: uuid.UUID) -> ResultOut:
    """The whole result, of which a model may have seen only a part, and the artifact, which it never sees."""
    visible = ToolExecution.objects.filter(run__in=auth.visible_runs(person(request)))
    execution = visible.select_related("tool", "approval").filter(pk=execution_id).first()
    if execution is None:
        raise not_found()
    secret = secret_fields_of(execution)
    return ResultOut(
        id=execution.pk,
        tool=execution.name,
        state=execution.state,
        result_status=execution.result_status or None,
        reason=execution.reason or None,
        message=execution.message or None,
        result=shown(execution, executions.result_value(execution), secret),
        artifact=shown(execution, json.loads(execution.artifact_text), secret) if execution.artifact_text else None,
        metadata=shown(execution, execution.metadata, secret),
        retry_after=execution.retry_after,
        cost=money(execution.cost),
    )


def execution_out(execution: ToolExecution) -> ToolExecutionOut:
    """Reads `tool`, `evaluation`, `approval`, its decisions, and `subrun` with its agent, all fetched by the caller."""
    secret = secret_fields_of(execution)
    return ToolExecutionOut(
        id=execution.pk,
        index=execution.index,
        call_id=execution.call_id,
        tool=execution.name,
        effect_class=execution.effect_class,
        args=masked_text(execution.arguments_text, secret),
        executed_args=masked(json.loads(execution.executed_text), secret) if execution.executed_text else None,
        was_changed_by_hook=bool(execution.proposed_name),
        was_blocked=execution.was_blocked,
        state=execution.state,
        result_status=execution.result_status or None,
        reason=execution.reason or None,
        message=execution.message or None,
        result=shown(execution, executions.result_value(execution), secret),
        comparison=_comparison(execution, secret),
        trust=execution.trust,
        evidence_ref=execution.evidence_ref or None,
        allowed_by=execution.allowed_by or None,
        approval=_call_approval(execution.approval) if execution.approval else None,
        evaluation=_evaluation(execution.evaluation) if execution.evaluation else None,
        subrun=_subrun(execution.subrun) if execution.subrun else None,
        attempts=execution.attempts,
        outcome_note=execution.outcome_note or None,
        proposed_at=execution.proposed_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
    )


def _comparison(execution: ToolExecution, secret: list[str]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = execution.comparison
    return found and {**found, "lines": masked_lines(found["lines"], secret)}


def secret_fields_of(execution: ToolExecution) -> list[str]:
    """What is secret now, and what was secret when people were asked."""
    return sorted(lens.hidden(execution.all_secret_fields, execution.all_pii_fields))


def decision_out(decision: Decision) -> DecisionOut:
    user, lender = decision.user, decision.on_behalf_of
    return DecisionOut(
        id=decision.pk,
        type=decision.type,
        user=Person(username=user.get_username(), name=decision.name) if user is not None else None,
        on_behalf_of=Person(username=lender.get_username(), name=decision.lender) if lender is not None else None,
        customer=decision.customer or None,
        message=decision.message,
        stop_run=decision.stop_run,
        via=decision.via,
        assurance=decision.assurance or None,
        decided_at=decision.decided_at,
        undone_at=decision.undone_at,
    )


def _evaluation(evaluation: ToolEvaluation) -> EvaluationOut:
    return EvaluationOut(
        state=evaluation.state,
        mode=evaluation.mode,
        guidelines=evaluation.guidelines,
        rationale=evaluation.rationale or None,
    )


def _subrun(run: Run) -> SubrunOut:
    return SubrunOut(
        id=run.pk,
        reference=run.reference,
        agent=run.agent.name,
        state=run.state,
        stop_reason=run.stop_reason or None,
        cost=money(run.cost),
        created_at=run.created_at,
        finished_at=run.finished_at,
    )


def _call_approval(approval: Approval) -> CallApproval:
    return CallApproval(
        id=approval.pk,
        reference=approval.reference,
        state=approval.state,
        risk=approval.risk,
        rule=approval.rule or None,
        reason=approval.reason or None,
        decisions=[decision_out(decision) for decision in approval.decisions.all()],
    )
