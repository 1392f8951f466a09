"""The shape of the configuration file: for each section, what an entry may say.

Every key may be left out; what is left out stays as it is, or gets its default in a new row. Names
of other rows are checked against the existing rows and those that the file itself makes.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypedDict

from django.core.exceptions import ValidationError
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from agentapp.models import Agent, Guideline, Tool
from agentapp.models.tools import validate_questions
from agentapp.models.webhooks import WEBHOOK_EVENTS
from approvals import escalation, policy, thresholds
from approvals.digest import canonical, parse, storable
from approvals.models import AnsweredBy, Assurance, EffectClass, Risk, Rule, Verdict


@dataclass(frozen=True)
class Known:
    """The names that a file may use: those of existing rows, and of rows it makes."""

    agents: frozenset[str]
    agent_tools: frozenset[str]
    channel_kinds: frozenset[str]
    drivers: frozenset[str]
    groups: frozenset[str]
    permissions: frozenset[str]
    reading_tools: frozenset[str]
    routes: frozenset[str]
    tools: frozenset[str]


def _known(kind: str, word: str, hint: str = "", empty: bool = False) -> AfterValidator:
    """`empty`: an empty text is allowed and means all of them."""

    def check(value: str, info: ValidationInfo) -> str:
        if value not in getattr(info.context, kind) and not (empty and not value):
            raise ValueError(f"There is no {word} {value!r}.{hint}")
        return value

    return AfterValidator(check)


def _among(values: list[Any]) -> AfterValidator:
    names = [str(value) for value in values]

    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(names)}.")
        return value

    return AfterValidator(check)


def _is_storable(value: str) -> str:
    if storable(value) != value:
        raise ValueError("The text holds a NUL character or half of a surrogate pair.")
    return value


def _is_json(value: Any) -> Any:
    return parse(canonical(value))


def _is_condition(value: str) -> str:
    try:
        policy.validate_condition(value)
    except ValidationError as error:
        raise ValueError(error.messages[0]) from error
    return value


def _are_decisions(value: list[str]) -> list[str]:
    try:
        policy.validate_allowed_decisions(value)
    except ValidationError as error:
        raise ValueError(error.messages[0]) from error
    return value


def _are_questions(value: list[str]) -> list[str]:
    try:
        validate_questions(value)
    except ValidationError as error:
        raise ValueError(error.messages[0]) from error
    return value


def _are_thresholds(value: list[Any]) -> list[Any]:
    try:
        thresholds.validate(value)
    except ValidationError as error:
        raise ValueError(error.messages[0]) from error
    return value


def _are_steps(value: list[dict[str, Any]], info: ValidationInfo) -> list[dict[str, Any]]:
    try:
        escalation.validate_steps(value)
    except ValidationError as error:
        raise ValueError(error.messages[0]) from error
    assert info.context is not None
    for group in escalation.groups_named(value):
        if group and group not in info.context.groups:
            raise ValueError(f"There is no group {group!r}.")
    return value


def _nothing_is_empty(value: Any) -> Any:
    return {} if value is None else value


Text = Annotated[str, AfterValidator(_is_storable)]
Json = Annotated[dict[str, Any], AfterValidator(_is_json)]
# YAML has floats; a float of 15 digits names its decimal exactly.
Amount = Annotated[Decimal, Field(strict=False)]
SYNC_FIRST = " If its module is new, run sync_tools first."
ToolName = Annotated[str, _known("tools", "tool", SYNC_FIRST)]
GroupName = Annotated[str, _known("groups", "group")]

_STRICT = ConfigDict(extra="forbid", strict=True)


class GroupEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    permissions: list[Annotated[str, _known("permissions", "permission")]]


class ToolEntry(TypedDict, total=False):
    """Safety settings only: the contract comes from code."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    enabled: bool
    effect_class: Annotated[str, _among(EffectClass.values)]
    approval_mode: Annotated[str, _among(Tool.ApprovalMode.values)]
    timeout_seconds: int
    max_attempts: int
    idempotency: Annotated[str, _among(Tool.Idempotency.values)]
    repeatable: bool
    additional_arguments: Annotated[str, _among(Tool.AdditionalArguments.values)]
    max_calls_per_run: int | None
    cost_per_call: Amount
    result_max_kb: int
    stop_on_failure: bool
    trust: Annotated[str, _among(Tool.Trust.values)]
    locked_fields: list[Text]
    secret_fields: list[Text]
    pii_fields: list[Text]
    questions: Annotated[list[Text], AfterValidator(_are_questions)]
    owner: Text
    starters: list[GroupName]
    overlaps: list[ToolName]


class RouteEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    description: Text
    tools: list[ToolName]


class GuidelineEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    condition: Text
    action: Text
    description: Text
    criticality: Annotated[str, _among(Guideline.Criticality.values)]
    priority: int
    matcher: Annotated[str, _among(Guideline.Matcher.values)]
    python: Text
    tools: list[ToolName]
    enabled: bool
    entails: list[Text]
    goes_before: list[Text]
    looked_at_again_after: list[ToolName]


class VariableEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    tool: ToolName
    arguments: Json
    freshness_seconds: int | None


class AgentEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    description: Text
    instructions: Text
    driver: Annotated[str, _known("drivers", "driver")]
    model: Text
    model_settings: Json
    driver_settings: Json
    tools: list[ToolName]
    parallel_tool_calls: bool
    tool_choice: Text
    reset_tool_choice: bool
    message_compiler: Annotated[str, _among(Agent.Compiler.values)]
    compiler_settings: Json
    on_new_message: Annotated[str, _among(Agent.OnNewMessage.values)]
    subagents: list[Text]
    denied_subagents: list[Text]
    max_depth: int
    hooks: list[Text]
    hook_contract: Annotated[str, _among(Agent.HookContract.values)]
    max_iterations: int
    on_limit: Annotated[str, _among(Agent.OnLimit.values)]
    max_steps: int
    max_tokens: int | None
    max_seconds: int | None
    max_calls: int | None
    on_call_limit: Annotated[str, _among(Agent.OnCallLimit.values)]
    finish_reasons: list[Text]
    max_cost: Amount | None
    max_daily_cost: Amount | None
    on_budget: Annotated[str, _among(Agent.OnBudget.values)]
    on_reject: Annotated[str, _among(Agent.OnReject.values)]
    raise_on_tool_failure: bool
    fail_run_on_tool_error: bool
    stop_on_tool_block: bool
    streams: bool
    input_schema: Json
    enabled: bool
    routes: dict[str, Annotated[RouteEntry, BeforeValidator(_nothing_is_empty)]]
    guidelines: dict[str, Annotated[GuidelineEntry, BeforeValidator(_nothing_is_empty)]]
    variables: dict[str, Annotated[VariableEntry, BeforeValidator(_nothing_is_empty)]]


class RuleEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    description: Text
    order: int
    active: bool
    agent: Annotated[str, _known("agents", "agent", empty=True)]
    route: Annotated[str, _known("routes", "route", empty=True)]
    tool: Annotated[str, _known("tools", "tool", SYNC_FIRST, empty=True)]
    effect_class: Annotated[str, _among(["", *EffectClass.values])]
    environment: Text
    condition: Annotated[Text, AfterValidator(_is_condition)]
    verdict: Annotated[str, _among(Verdict.values)]
    answered_by: Annotated[str, _among(AnsweredBy.values)]
    groups: list[GroupName]
    approvals_needed: int
    thresholds: Annotated[list[Json], AfterValidator(_are_thresholds)]
    starter_excluded: bool
    expires_seconds: int | None
    on_expiry: Annotated[str, _among(Rule.OnExpiry.values)]
    escalation: Annotated[list[dict[str, Any]], AfterValidator(_are_steps)]
    target_seconds: int | None
    business_hours: bool
    allowed_decisions: Annotated[list[str], AfterValidator(_are_decisions)]
    risk: Annotated[str, _among(Risk.values)]
    hold_seconds: int | None
    assurance: Annotated[str, _among(["", *Assurance.values])]
    grants_allowed: bool


class ChannelEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    kind: Annotated[str, _known("channel_kinds", "channel kind")]
    config: Json
    groups: list[GroupName]
    personal: bool
    follows_up: bool
    active: bool


class WebhookEntry(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    url: Text
    events: list[Annotated[str, _among(list(WEBHOOK_EVENTS))]]
    credential: Text
    previous_credential: Text
    active: bool


# In the order in which they are written: a later section may name rows of an earlier one.
SECTIONS: dict[str, Any] = {
    "groups": GroupEntry,
    "tools": ToolEntry,
    "agents": AgentEntry,
    "rules": RuleEntry,
    "channels": ChannelEntry,
    "webhooks": WebhookEntry,
}
# The keys that name other rows or hold rows; every other key is a column.
LINKS = frozenset(
    {
        "groups", "permissions", "routes", "tools", "guidelines", "entails", "goes_before", "looked_at_again_after",
        "overlaps", "starters", "variables",
    }
)  # fmt: skip


def columns(entry: Any) -> dict[str, Any]:
    """The keys of an entry that are columns of its row."""
    return {name: value for name, value in entry.items() if name not in LINKS}
