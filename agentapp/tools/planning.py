"""A tool with which an agent proposes several calls as one plan, for people to decide together.

Name this module in TOOL_MODULES to offer it, and give the tool to the agents that may plan. It makes none of the calls:
whether an approved plan allows a call is checked when the call is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentapp.messages import ToolResult
from agentapp.tools.base import tool

NAME = "propose_plan"
FEWEST, MOST = 2, 20
MAX_PURPOSE_CHARS = 500

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "purpose": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_PURPOSE_CHARS,
            "title": "Purpose",
            "description": "What the calls are for, in one sentence.",
        },
        "calls": {
            "type": "array",
            "title": "Calls",
            "minItems": FEWEST,
            "maxItems": MOST,
            "description": "The calls, in the order in which you will make them.",
            "items": {
                "type": "object",
                "properties": {
                    "tool": {"type": "string", "minLength": 1, "maxLength": 120, "description": "The tool's name."},
                    "arguments": {"type": "object", "description": "Its arguments, exactly as you will send them."},
                },
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["purpose", "calls"],
    "additionalProperties": False,
}


class Source(Protocol):
    kind: str
    location: str


class Row(Protocol):
    """The parts of a tool's row that say whether it is the one that proposes plans."""

    name: str

    @property
    def source(self) -> Source: ...


@dataclass(frozen=True)
class Planned:
    """One call of a plan, as the model wrote it down."""

    tool: str
    arguments: dict[str, Any]


def proposes_plan(row: Row | None) -> bool:
    """Whether a tool is the one that proposes plans, rather than another with its name."""
    return row is not None and row.name == NAME and (row.source.kind, row.source.location) == ("python", __name__)


def calls_of(arguments: Mapping[str, Any]) -> list[Planned]:
    """The calls of a plan whose arguments fit the schema."""
    return [Planned(each["tool"], each["arguments"]) for each in arguments["calls"]]


@tool(
    NAME,
    effect="reversible",
    input_schema=_SCHEMA,
    trust="trusted_system",
    idempotency="key",
    title="A plan of several calls",
    sentence="The agent proposes several calls as one plan.",
    button="Approve the plan",
)
def propose_plan(purpose: str, calls: list[dict[str, Any]]) -> ToolResult:
    """Propose 2 to 20 calls as one plan, which people approve or reject as a whole.

    Use it where several calls that need approval belong together. Leave out what only reads, what cannot be taken back,
    and calls whose arguments you do not know yet. Nothing runs by this: once the plan is approved, make each call
    yourself, exactly as planned and in the order of the plan. A call that differs, or whose circumstances have changed,
    is asked about by itself.
    """
    return approved(calls)


def approved(calls: list[dict[str, Any]]) -> ToolResult:
    """What an agent is told about a plan that people have approved."""
    return ToolResult(
        data={"approved": [{"position": number, **each} for number, each in enumerate(calls, start=1)]},
        message="People have approved this plan. Nothing has run yet: make these calls now, exactly as they stand here "
        "and in this order. Any other call is asked about by itself.",
        trust="trusted_system",
    )
