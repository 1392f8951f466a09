"""Whether a proposed call can be parsed and fits its tool's schema; and the answer to a refused call."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentapp.messages import ToolCall, ToolResult
from agentapp.models import Tool, ToolExecution
from agentapp.reasons import Reason
from agentapp.tools.arguments import misfit
from agentapp.tools.schema import InvalidSchema, check_arguments
from approvals.digest import MAX_BYTES, MalformedJSON, canonical, parse


class CallRefused(Exception):
    """Ends the checks of one call with its answer."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        replay_of: ToolExecution | None = None,
        control: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.result = refusal(reason, message, control)
        self.replay_of = replay_of


def refusal(reason: Reason, message: str, control: Mapping[str, Any] = MappingProxyType({})) -> ToolResult:
    """The answer to a call that does not run."""
    return ToolResult(status="refused", reason=reason, message=message, trust="trusted_system", control=dict(control))


def well_formed(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = parse(call.arguments_text or "{}")
        canonical(arguments)
    except MalformedJSON as error:
        raise CallRefused(
            Reason.MALFORMED_ARGUMENTS, f"{error} Send the arguments again as one JSON object."
        ) from error
    if not isinstance(arguments, dict):
        raise CallRefused(Reason.MALFORMED_ARGUMENTS, "Send the arguments as one JSON object.")
    return arguments


def written_out(arguments: dict[str, Any]) -> str:
    """The canonical text of arguments with their defaults: what the call is bound to."""
    text = canonical(arguments)
    if len(text.encode()) > MAX_BYTES:
        raise CallRefused(Reason.MALFORMED_ARGUMENTS, "With their defaults, the arguments are too large. Send less.")
    return text


def fits(tool: Tool, arguments: dict[str, Any]) -> None:
    try:
        problems = check_arguments(tool.input_schema, arguments)
    except InvalidSchema as error:
        raise CallRefused(Reason.TOOL_DISABLED, f"{tool.name} cannot be used: {error}") from error
    if problems:
        missing = problems[0].kind == "missing"
        sentences = f"{tool.name}: " + " ".join(problem.sentence for problem in problems)
        # Names only: the model knows what it sent, and a value may be a secret.
        sentences += f" You sent {', '.join(sorted(arguments)) or 'nothing'}."
        raise CallRefused(Reason.MISSING_ARGUMENTS if missing else Reason.INVALID_ARGUMENTS, sentences)
    # Checked before people are asked: nobody should approve what cannot run.
    refused_by_types = misfit(tool.name, arguments)
    if refused_by_types:
        raise CallRefused(Reason.INVALID_ARGUMENTS, f"{tool.name}: {refused_by_types}")
