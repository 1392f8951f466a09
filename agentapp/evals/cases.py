"""What a case says: the situation, the answers of tools, who decides what, and what is expected. Plain values.

A case is one JSON object, or one document of a YAML file. Nothing in it is ignored: unknown fields are refused.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from agentapp.evals.shorthand import tool_of
from agentapp.mocks import MocksError, check_mocks
from agentapp.reasons import StopReason
from agentapp.script import ScriptError, check_script
from approvals.digest import MalformedJSON, canonical, sha256, storable_json

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)]
ToolName = Annotated[str, Field(min_length=1, max_length=120)]
Words = Annotated[str, Field(min_length=1, max_length=4000)]
Arguments = dict[str, JsonValue]
MAX_REPEATS = 100


class Kind(StrEnum):
    """What a case is about."""

    POSITIVE = "positive"
    NO_TOOL = "no_tool"
    ASK = "ask"
    REFUSE = "refuse"
    ESCALATE = "escalate"
    FORBIDDEN_TOOL = "forbidden_tool"
    MALFORMED = "malformed"
    TIMEOUT = "timeout"
    RETRYABLE_ERROR = "retryable_error"
    FATAL_ERROR = "fatal_error"
    INJECTION = "injection"


class FinalStatus(StrEnum):
    """How a run ends, in the words of cases."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    REFUSED = "refused"
    NEEDS_HUMAN = "needs_human"


class Severity(StrEnum):
    """Whether a failing case fails the eval or is only reported."""

    GATE = "gate"
    SOFT = "soft"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Repeats(_Strict):
    """How often a case is run, and how often it has to pass."""

    of: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    needed: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.needed > self.of:
            raise ValueError("more repeats have to pass than there are")
        return self


class Deciding(_Strict):
    """What the people asked decide. The first entry of a case that fits the request counts and is used up."""

    decide: Literal["approve", "edit", "reject", "respond", "expire", "none"]
    tool: ToolName | None = None
    """For which tool. None: any."""
    message: str = ""
    arguments: Arguments | None = None
    """The arguments that an edit changes; the others stay."""
    stop_run: bool = False

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        if (self.decide == "edit") != (self.arguments is not None):
            raise ValueError("an edit says which arguments it changes, and nothing else does")
        if self.stop_run and self.decide != "reject":
            raise ValueError("only a rejection stops the run")
        return self


class CallExpected(_Strict):
    """A call that must be executed with these among its arguments."""

    tool: ToolName
    arguments: Arguments


class RoutingExpected(_Strict):
    """What the gate must say about a tool's calls: run, ask or refuse, and whom to ask."""

    tool: ToolName
    verdict: Literal["allow", "ask", "deny"]
    arguments: Arguments | None = None
    """For which calls: those with these among their arguments. None: all."""
    groups: list[str] | None = None
    customer: bool | None = None
    people: Annotated[int, Field(ge=1)] | None = None
    rule: str | None = None

    @model_validator(mode="after")
    def _asks_somebody(self) -> Self:
        if self.verdict != "ask" and not (self.groups is None and self.customer is None and self.people is None):
            raise ValueError("only a call that must ask can name who is asked")
        return self


class Limits(_Strict):
    """The most that a run may use. Waiting for people does not count."""

    cost: Annotated[float, Field(ge=0)] | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    steps: Annotated[int, Field(ge=0)] | None = None
    calls: Annotated[int, Field(ge=0)] | None = None


class Expected(_Strict):
    """What must come of a case. What is left out is not checked; what is never allowed is always checked."""

    tools_called: list[ToolName] = []
    """Each must be executed at least once. Refused or blocked calls do not count."""
    tools_not_called: list[ToolName] = []
    no_tools: bool = False
    order: list[ToolName] = []
    """These must be executed in this order, with any others in between."""
    calls: list[CallExpected] = []
    routing: list[RoutingExpected] = []
    not_asked: list[ToolName] = []
    never_after: list[tuple[ToolName, ToolName]] = []
    """Once the first has been executed, the second must not be."""
    final_status: FinalStatus | None = None
    stop_reason: StopReason | None = None
    steps: Annotated[int, Field(ge=0)] | None = None
    answer_contains: list[Words] = []
    answer_lacks: list[Words] = []
    no_failed_calls: bool = False
    limits: Limits = Limits()


class Case(_Strict):
    """One situation."""

    name: Name
    kind: Kind
    description: str = ""
    severity: Severity = Severity.GATE
    repeats: Repeats = Repeats()
    agent: Annotated[str, Field(min_length=1, max_length=80)]
    route: str = ""
    customer: str = ""
    input: Annotated[str, Field(min_length=1, max_length=100_000)]
    metadata: dict[str, JsonValue] = {}
    tools: dict[ToolName, Annotated[JsonValue, BeforeValidator(tool_of)]] = {}
    """The answers to the calls of each tool, as `shorthand` reads them. A tool that is missing fails as not mocked."""
    agents: dict[str, list[dict[str, JsonValue]]] = {}
    """The scripts of agents that other agents ask."""
    script: list[dict[str, JsonValue]] | None = None
    """The model's replies. None: the agent's own model is asked."""
    people: list[Deciding] = []
    expect: Expected

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        try:
            check_mocks(self.mocks)
        except MocksError as error:
            raise ValueError(str(error)) from error
        if self.script is not None:
            self._check_script()
        self._check_kept()
        return self

    def _check_kept(self) -> None:
        """Refuse here what a database cannot store or what has no digest: otherwise it would fail only when run."""
        try:
            canonical(self.document)
        except MalformedJSON as error:
            raise ValueError(str(error)) from error
        if storable_json(self.document) != self.document:
            raise ValueError("a text contains a character that cannot be stored, such as NUL")

    def _check_script(self) -> None:
        first: Exception | None = None
        for is_guided in (False, True):
            try:
                check_script(self.script, is_guided=is_guided)
            except ScriptError as error:
                first = first or error
            else:
                return
        raise ValueError(str(first))

    @property
    def mocks(self) -> dict[str, Any]:
        """The case's mocks, as a run keeps them."""
        return {"tools": dict(self.tools), **({"agents": self.agents} if self.agents else {})}

    @property
    def document(self) -> dict[str, Any]:
        """The whole case as JSON, which reads back as the same case."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"kind": str(self.kind)}

    @property
    def digest(self) -> str:
        return sha256(canonical(self.document))
