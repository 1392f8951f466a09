"""What the API says of an approval, and what it takes for a decision."""

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from agentapp.api.escalation import EscalationStepOut
from agentapp.api.paging import Page
from agentapp.api.plans import PlannedCallOut
from agentapp.api.tool_executions import DecisionOut, Person


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
    kind: str = Field(
        description="`authorization`, by people; `plan`, by people of several calls at once; or "
        "`confirmation`, by the customer of the conversation."
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
    rule_version: int | None = Field(description="The version of that rule which asked. None: of before this was kept.")
    rule_digest: str | None = Field(description="Digest of the terms of that version.")
    reason: str | None
    state: str
    version: int
    action_digest: str = Field(description="Digest of the exact call that waits here, edits included.")
    created_at: datetime
    expires_at: datetime
    target_at: datetime | None = Field(description="By when somebody should decide. None: nobody said.")
    breached_at: datetime | None = Field(description="When it was noticed that nobody had.")
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


class ValueOrigin(BaseModel):
    """Where one value of the arguments came from."""

    path: str = Field(description="As in items[0].iban. Empty: the call as a whole.")
    origin: str = Field(
        description="`staff`, `trusted`, `customer`, `outside`, `default`, `model`; `unmarked`: too common to say."
    )
    source: str | None = Field(default=None, description="The tool, or the message.")
    step: int | None = None
    call: str | None = Field(default=None, description="The id of the call whose result it is.")
    ref: str | None = Field(default=None, description="The evidence it stands in.")
    quote: str | None = Field(default=None, description="The place there. Never of a secret argument.")
    part: str | None = Field(default=None, description="The piece of a longer text that this is about.")


class RiskFactor(BaseModel):
    """One reason why a call is risky, and its weight."""

    name: str
    points: int
    words: str


class SecondLookOut(BaseModel):
    """What another model said of a risky call before people were asked."""

    verdict: str = Field(description="`concern`, `nothing`, or `unavailable`: no look could be taken.")
    why: str = Field(description="The model's own words: a claim. Or why there was no look.")
    model: str


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


class ThresholdOut(BaseModel):
    """So many approvals of these people are enough; so many rejections end the request."""

    approve: int
    deny: int
    groups: list[str] = Field(description="Whose members count. Empty: everybody who may decide.")
    condition: str | None = Field(description="For which reviewers and calls it counts, in CEL.")


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
    state_unavailable: list[str] = Field(
        description="Why a state that the decision rests on could not be looked up. Once approved the call runs, if "
        "that is still so then. Empty: all was looked up."
    )
    preview: dict[str, Any] | None = Field(
        description="A dry run of what would run now: `lines` of {name, before, after}, or `unavailable`, why there "
        "are none. Null: the tool makes none."
    )
    second_look: SecondLookOut | None = Field(description="Null: none was wanted, see `SECOND_LOOK_MODEL`.")
    plan: list[PlannedCallOut] = Field(description="Of a plan: its calls, in their order. Else empty.")
    condition: str | None = Field(description="What the rule looked at.")
    rule_values: list[RuleValue] = Field(description="What it found there; secrets are masked.")
    risk_factors: list[RiskFactor] = Field(description="What speaks for its risk. They raise what a rule says.")
    provenance: list[ValueOrigin] = Field(description="Where each value of `args` came from.")
    questions: list[QuestionOut]
    business_hours: bool = Field(description="Whether its times count business hours only.")
    escalation: list[EscalationStepOut]
    paused_seconds: int = Field(description="How long questions have stopped the clock.")
    explanation: str | None = Field(description="The model's words: a claim, not a fact.")
    allowed_decisions: list[str]
    approvals_needed: int = Field(description="With terms: the fewest with whom it can be approved.")
    terms: str | None = Field(description="Who must approve, in words, where a rule has thresholds.")
    thresholds: list[list[ThresholdOut]] = Field(
        description="The ways in which each rule that asked can be satisfied; of every rule one is needed."
    )
    groups: list[str] = Field(description="Who may decide. Empty means everybody with the right to decide.")
    assurance_needed: str | None = Field(
        description="How whoever approves shows who they are: `password`, `totp`, `passkey` or `signed`, in the "
        "console. A token shows nothing, so with it such a request can only be rejected or answered."
    )
    starter: Person | None
    starter_excluded: bool
    you_may_decide: bool = Field(description="Whether you can decide now, with this token.")
    you_may_not_because: str | None
    left_to_approve: str | None = Field(
        description="At high and critical risk, of arguments that people made: who may approve them, or that nobody "
        "may, as a sentence. Null: of others, and once it is closed."
    )
    you_decide_for: Person | None = Field(description="Who has lent you the right to decide. Null: it is your own.")
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
