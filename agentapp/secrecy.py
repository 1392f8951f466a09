"""Removes secret arguments from what a model says along with its calls: people are shown its words."""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentapp import marking
from agentapp.considered import Guidance
from agentapp.messages import Reply, ToolCall
from agentapp.models import Tool, ToolExecution
from agentapp.tools.planning import NAME as PLAN
from agentapp.transcript import StepRows
from approvals.masking import blotted, blotted_within, masked, secrets_in


def naming_no_secret_argument(reply: Reply, steps: Sequence[StepRows], tools: Mapping[str, Tool]) -> Reply:
    """The reply, with any secret argument of its own calls, or of the run's earlier ones, removed from its words.

    The text of a reply that calls nothing is an answer, and stays as it is.
    """
    made = [execution for rows in steps for execution in rows.executions]
    is_plain = all(call.name in tools and call.name != PLAN for call in reply.tool_calls)
    if is_plain and not may_be_named(steps, tools):
        return reply
    secrets = set().union(*(_of_call(call, tools) for call in reply.tool_calls), *(each.secret_values for each in made))
    if not secrets:
        return reply
    return dataclasses.replace(
        reply,
        text=blotted(reply.text, secrets) if reply.tool_calls else reply.text,
        reasoning=blotted(reply.reasoning, secrets),
        guidance=reply.guidance and _guidance(reply.guidance, secrets),
    )


def may_be_named(steps: Sequence[StepRows], tools: Mapping[str, Tool]) -> bool:
    """Whether a reply could name a secret argument: of one of the run's tools, or of a call it has made before."""
    made = (execution for rows in steps for execution in rows.executions)
    return any(tool.secret_fields for tool in tools.values()) or any(call.secret_fields for call in made)


def result_shown(execution: ToolExecution) -> Any:
    """A call's result as people may read it, except for personal data."""
    value = json.loads(execution.result_text) if execution.result_text else None
    return shown(execution, value, execution.all_secret_fields)


def shown(execution: ToolExecution, value: Any, hidden: Collection[str]) -> Any:
    """Anything of a call as people may read it: without the values of `hidden` fields, and without its secret arguments
    wherever they are repeated.
    """
    return blotted_within(masked(value, hidden), execution.secret_values)


def _guidance(guidance: Guidance, secrets: Collection[str]) -> Guidance:
    return dataclasses.replace(
        guidance,
        matches=tuple(dataclasses.replace(each, why=blotted(each.why, secrets)) for each in guidance.matches),
        evaluations=tuple(dataclasses.replace(each, why=blotted(each.why, secrets)) for each in guidance.evaluations),
    )


def _of_call(call: ToolCall, tools: Mapping[str, Tool]) -> set[str]:
    return secrets_in(call.arguments_text, marking.of_call(tools.get(call.name), call).secret)
