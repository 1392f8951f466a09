"""Answers the calls of a mocked run in place of its tools, as the run's row says. Calls nothing and writes nothing.

`Run.mocks` is {"tools": {name: {"answers": […], "snapshot": …}}, "agents": {name: script}}. Each entry of a tool's
answers says which arguments it is for and holds one or more answers: the first matching call gets the first answer, and
so on; the last one repeats. Calls are counted from the run's rows, so every worker gives the same answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from agentapp.deadline import DeadlineExceeded
from agentapp.messages import StopRun, ToolResult
from agentapp.models import Run, ToolExecution
from agentapp.reasons import Reason
from agentapp.script import GUIDED_SCHEMA, REPLY_SCHEMA
from agentapp.tools.base import OutcomeUnknown
from agentapp.tools.context import ToolContext
from agentapp.tools.planning import approved, proposes_plan
from agentapp.tools.schema import Words, check_arguments, problems_of
from agentapp.transcript import StepRows
from approvals.digest import MalformedJSON, canonical, load

MAX_ANSWERS = 200
MALFORMED = "The result does not fit the tool's output schema."
_TEXT = {"type": "string", "minLength": 1, "maxLength": 4000}
# An answer has exactly one of these kinds; the other keys that a kind allows are listed with it.
_KINDS: dict[str, dict[str, Any]] = {
    "result": {"result": True, "trust": {"enum": ["trusted_system", "untrusted_content"]}},
    "error": {"error": _TEXT, "retryable": {"type": "boolean"}},
    "timeout": {"timeout": {"const": True}},
    "malformed": {"malformed": True},
    "unknown": {"unknown": _TEXT},
    "stop": {"stop": _TEXT},
}
ANSWER_KINDS = frozenset(_KINDS)
_OF_KIND: dict[str, dict[str, Any]] = {
    kind: {"type": "object", "properties": properties, "required": [kind], "additionalProperties": False}
    for kind, properties in _KINDS.items()
}
ANSWER_SCHEMA: dict[str, Any] = {"oneOf": list(_OF_KIND.values())}
_ANSWERS = {
    "type": "object",
    "properties": {
        "when": {"type": "object"},
        "sequence": {"type": "array", "items": ANSWER_SCHEMA, "minItems": 1, "maxItems": MAX_ANSWERS},
    },
    "required": ["sequence"],
    "additionalProperties": False,
}
_STATE = {"type": "object"}
_TOOL = {
    "type": "object",
    "properties": {
        "answers": {"type": "array", "items": _ANSWERS, "maxItems": MAX_ANSWERS},
        # The state that a decision rests on. A list: one state for each time that people are asked again.
        "snapshot": {"anyOf": [_STATE, {"type": "array", "items": _STATE, "minItems": 1, "maxItems": MAX_ANSWERS}]},
    },
    "additionalProperties": False,
}
MOCKS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tools": {"type": "object", "additionalProperties": _TOOL},
        "agents": {
            "type": "object",
            "additionalProperties": {
                "type": "array", "items": {"anyOf": [REPLY_SCHEMA, GUIDED_SCHEMA]}, "minItems": 1, "maxItems": 1000,
            },
        },
    },
    "additionalProperties": False,
}  # fmt: skip


class MocksError(ValueError):
    """These mocks are not valid. The message names the first problem."""


def check_mocks(mocks: object) -> None:
    """Raises MocksError unless a run can be mocked with these."""
    problems = check_arguments(MOCKS_SCHEMA, mocks)
    if problems:
        raise MocksError(f"mocks/{problems[0].field}: {problems[0].sentence}")
    try:
        canonical(mocks)
    except MalformedJSON as error:
        raise MocksError(f"mocks: {error}") from error


def answer_problem(said: object) -> str:
    """What is wrong with one answer, in the words its author used. Empty: nothing."""
    if not isinstance(said, Mapping):
        return 'an answer is an object, such as {"result": 1}'
    kinds = [kind for kind in _KINDS if kind in said]
    if len(kinds) != 1:
        named = ", ".join(map(str, said)) or "nothing"
        return f"an answer has exactly one of {', '.join(sorted(ANSWER_KINDS))}, but this one has {named}"
    problems = problems_of(_OF_KIND[kinds[0]], said, Words("", f"does not go with {kinds[0]}"))
    return problems[0].sentence.rstrip(".") if problems else ""


@dataclass(frozen=True)
class StandIn:
    """Called in place of a tool: it already knows its answer."""

    answer: Mapping[str, Any] | None
    limits: Mapping[str, int] = MappingProxyType({})

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """The answer, as the tool would have given it. A tool without a mock fails permanently."""
        answer = self.answer
        if answer is None:
            message = "This call is not mocked, so nothing was called."
            return ToolResult("fatal_error", message=message, reason=Reason.NOT_MOCKED, trust="trusted_system")
        if "timeout" in answer:
            raise DeadlineExceeded("mocked")
        if "unknown" in answer:
            raise OutcomeUnknown(answer["unknown"])
        if "stop" in answer:
            raise StopRun(answer["stop"])
        if "error" in answer:
            retryable = answer.get("retryable", False)
            status: Any = "retryable_error" if retryable else "fatal_error"
            return ToolResult(status, message=answer["error"], reason=Reason.TOOL_FAILURE, retry_after=None)
        if "malformed" in answer:
            return ToolResult("fatal_error", answer["malformed"], MALFORMED, Reason.TOOL_RESULT_INVALID)
        return ToolResult(data=answer["result"], trust=answer.get("trust"))


@dataclass(frozen=True)
class PlanStandIn(StandIn):
    """Proposing a plan concerns only the run and people, and changes nothing outside: it needs no mock."""

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return approved(arguments["calls"])


def stand_in(run: Run, steps: Sequence[StepRows], execution: ToolExecution, text: str, attempt: int) -> StandIn:
    """What is called in place of a call's tool, for one attempt."""
    arguments = load(text)
    known = _of_tool(run, execution.name).get("answers", [])
    for at, answers in enumerate(known):
        if _is_for(answers, arguments):
            sequence = answers["sequence"]
            place = 0 if len(sequence) == 1 else _place(known[: at + 1], steps, execution, attempt)
            return StandIn(sequence[min(place, len(sequence) - 1)])
    return PlanStandIn(None) if proposes_plan(execution.tool) else StandIn(None)


def answers_tool(run: Run, name: str) -> bool:
    """Whether the run's mocks have any answer for a tool, such as one that asks an agent."""
    return bool(_of_tool(run, name).get("answers"))


def script_of(run: Run, agent: str) -> list[dict[str, Any]] | None:
    """What an agent that the run asks would answer, if the mocks say so."""
    script: list[dict[str, Any]] | None = (run.mocks or {}).get("agents", {}).get(agent)
    return script


def snapshot(run: Run, name: str, turn: int) -> dict[str, Any] | None:
    """The state that a decision about a call rests on, when it is looked up for the `turn`-th time, from 0."""
    found = _of_tool(run, name).get("snapshot")
    if isinstance(found, list):
        found = found[min(turn, len(found) - 1)]
    return found if isinstance(found, dict) else None


def _of_tool(run: Run, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (run.mocks or {}).get("tools", {}).get(name, {})
    return found


def _is_for(answers: Mapping[str, Any], arguments: Any) -> bool:
    """Whether answers are for a call: every argument that they name has exactly the value they give."""
    wanted: Mapping[str, Any] = answers.get("when", {})
    if not wanted:
        return True
    if not isinstance(arguments, dict):
        return False
    return all(name in arguments and canonical(arguments[name]) == canonical(value) for name, value in wanted.items())


def _place(
    answers: Sequence[Mapping[str, Any]], steps: Sequence[StepRows], execution: ToolExecution, attempt: int
) -> int:
    """How many attempts the last of these answers served before this one, in the model's order: those for which it was
    the first that matched.
    """
    *earlier, own = answers
    before = [other for other in _earlier(steps, execution) if _is_for(own, other.args)]
    answered = [other for other in before if not any(_is_for(one, other.args) for one in earlier)]
    return sum(other.attempts for other in answered) + attempt - 1


def _earlier(steps: Sequence[StepRows], execution: ToolExecution) -> Iterator[ToolExecution]:
    for other in (other for rows in steps for other in rows.executions):
        if other.pk == execution.pk:
            return
        if other.name == execution.name and other.started_at is not None:
            yield other
