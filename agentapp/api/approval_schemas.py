"""How the API shows an approval, and the body of a decision."""

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from agentapp.api.escalation import EscalationStepOut
from agentapp.api.paging import Page
from agentapp.api.plans import PlannedCallOut
from agentapp.api.tool_executions import DecisionOut, Person


class DecisionIn(BaseModel):
    """A decision about the approval as you read it, which `version` and `action_digest` identify."""

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

    decision_id: uuid.UUID = Field(description="A new UUID of yours. Sending it again returns the first answer.")
    type: Literal["approve", "edit", "reject", "respond"]
    args: dict[str, Any] | None = Field(
        default=None, description="With `edit`: all the arguments to run with. A masked argument keeps its value."
    )
    message: Annotated[str, StringConstraints(strict=True, max_length=10_000)] = Field(
        default="", description="For the agent. Required to reject, and to respond in the tool's place."
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
    kind: str = Field(
        description="`authorization`: people decide about one call. `plan`: people decide about several calls at once. "
        "`confirmation`: the customer of the conversation decides."
    )
    run: uuid.UUID
    agent: str
    route: str | None
    run_title: str
    tool: str
    effect_class: str
    title: str
    risk: str
    rule: str | None
    rule_version: int | None = Field(description="The version of the rule that asked. Null if it was not yet recorded.")
    rule_digest: str | None = Field(description="Digest of the terms of that version.")
    reason: str | None
    state: str
    version: int
    action_digest: str = Field(description="Digest of the exact call that is waiting, including edits.")
    created_at: datetime
    expires_at: datetime
    target_at: datetime | None = Field(description="When a decision is due. Null if no target is set.")
    breached_at: datetime | None = Field(description="When the missed target was noticed.")
    decided_at: datetime | None


class Effect(BaseModel):
    title: str
    detail: str


class AskerOut(BaseModel):
    """One agent on the path to the one that asks, and its run."""

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
    """Something a rule's condition looked at. Without `value`, the call has no such thing."""

    name: str
    value: Any = None


class ValueOrigin(BaseModel):
    """Where one value in the arguments came from."""

    path: str = Field(description="For example items[0].iban. Empty for the call as a whole.")
    origin: str = Field(
        description="`staff`, `trusted`, `customer`, `outside`, `default`, `model`; `unmarked`: too common to trace."
    )
    source: str | None = Field(default=None, description="The tool, or the message.")
    step: int | None = None
    call: str | None = Field(default=None, description="The id of the call whose result holds it.")
    ref: str | None = Field(default=None, description="The evidence that contains it.")
    quote: str | None = Field(default=None, description="The passage there. Never shown for a secret argument.")
    part: str | None = Field(default=None, description="The part of a longer text that this applies to.")


class RiskFactor(BaseModel):
    """One reason why a call is risky, and its weight."""

    name: str
    points: int
    words: str


class SecondLookOut(BaseModel):
    """What another model said about a risky call before people were asked."""

    verdict: str = Field(description="`concern`, `nothing`, or `unavailable` if no second look was possible.")
    why: str = Field(description="The model's own words: a claim. Or why there was no second look.")
    model: str


class QuestionOut(BaseModel):
    """A question someone asked before deciding."""

    id: uuid.UUID
    asker: Person
    text: str
    asked_at: datetime
    answer_by: datetime
    answer: str | None = Field(description="The agent's words (a claim), or those of `answerer`.")
    answerer: Person | None
    closed_at: datetime | None


class ThresholdOut(BaseModel):
    """How many approvals by these people are enough, and how many rejections end the request."""

    approve: int
    deny: int
    groups: list[str] = Field(description="Whose members count. Empty: everyone who may decide.")
    condition: str | None = Field(description="For which reviewers and calls it applies, in CEL.")


class ApprovalDetail(ApprovalOut):
    """Everything the card shows, and everything a decision must echo."""

    path: list[AskerOut] = Field(
        description="From the agent that was started to the one that asks: one entry, unless agents asked agents."
    )
    tool_version: str
    sentence: str = Field(description="What will happen, from the tool's own template.")
    effects: list[Effect]
    button: str | None = Field(description="The size of the effect, such as $214.50.")
    args: dict[str, Any] = Field(description="The proposed arguments; secret ones are masked.")
    final_args: dict[str, Any] | None = Field(description="What will run instead, if a person edited the call.")
    locked_fields: list[str] = Field(
        description="Arguments that were locked when people were asked. An edit may change neither these nor those "
        "that the tool has locked since."
    )
    secret_fields: list[str]
    evidence: list[dict[str, Any]]
    difference: list[dict[str, Any]] = Field(description="What changed since the approval this one replaces.")
    state_unavailable: list[str] = Field(
        description="Why a state that the decision rests on could not be looked up. Once approved, the call runs if "
        "this is still the case. Empty if everything was looked up."
    )
    preview: dict[str, Any] | None = Field(
        description="A dry run of what would run now: `lines` of {name, before, after}, or `unavailable`, which says "
        "why there are none. Null if the tool has no dry run."
    )
    second_look: SecondLookOut | None = Field(description="Null if none was wanted; see `SECOND_LOOK_MODEL`.")
    plan: list[PlannedCallOut] = Field(description="The calls of a plan, in order. Empty for other approvals.")
    condition: str | None = Field(description="What the rule looked at.")
    rule_values: list[RuleValue] = Field(description="What it found there; secrets are masked.")
    risk_factors: list[RiskFactor] = Field(description="Why the call is risky. They raise the risk that a rule sets.")
    provenance: list[ValueOrigin] = Field(description="Where each value of `args` came from.")
    questions: list[QuestionOut]
    business_hours: bool = Field(description="Whether its times count only business hours.")
    escalation: list[EscalationStepOut]
    paused_seconds: int = Field(description="For how long questions have stopped the clock.")
    explanation: str | None = Field(description="The model's words: a claim, not a fact.")
    allowed_decisions: list[str]
    approvals_needed: int = Field(description="With terms: the smallest number that can approve it.")
    terms: str | None = Field(description="Who must approve, in words, if a rule has thresholds.")
    thresholds: list[list[ThresholdOut]] = Field(
        description="The ways in which each rule that asked can be satisfied; every rule needs one."
    )
    groups: list[str] = Field(description="Who may decide. Empty: everyone with the right to decide.")
    assurance_needed: str | None = Field(
        description="How people must show who they are to approve: `password`, `totp`, `passkey` or `signed`, in the "
        "console. A token cannot show this, so with one such a request can only be rejected or answered."
    )
    starter: Person | None
    starter_excluded: bool
    you_may_decide: bool = Field(description="Whether you can decide now, with this token.")
    you_may_not_because: str | None
    left_to_approve: str | None = Field(
        description="For arguments made by people, at high and critical risk: a sentence that says who may approve "
        "them, or that nobody may. Null otherwise, and once the request is closed."
    )
    you_decide_for: Person | None = Field(description="Who lent you the right to decide. Null if it is your own.")
    supersedes: uuid.UUID | None
    runs_at: datetime | None = Field(description="The decision can be undone in the console until then.")
    use_by: datetime | None
    used_at: datetime | None
    decisions: list[DecisionOut]
    execution: ExecutionResult | None


class ApprovalPage(Page[ApprovalOut]):
    """Approvals, newest first."""


class TakenOut(BaseModel):
    """The recorded decision and the current state of the approval."""

    decision: DecisionOut
    approval: ApprovalDetail
