"""What a model says beside its calls, without their secret arguments: its words are shown to people."""

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
    """A reply whose words name no secret argument of its own calls, nor of those the run has made before.

    What a reply says without calling anything is an answer, and stays what it is.
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
    """Whether a reply may name a secret argument: of a tool that the run has, or of a call it has made before."""
    made = (execution for rows in steps for execution in rows.executions)
    return any(tool.secret_fields for tool in tools.values()) or any(call.secret_fields for call in made)


def result_shown(execution: ToolExecution) -> Any:
    """What a call gave back, as people may read it: no value that a secret name has, and no secret argument."""
    value = json.loads(execution.result_text) if execution.result_text else None
    fields = execution.all_secret_fields
    return blotted_within(masked(value, fields), execution.secret_values) if fields else value


def _guidance(guidance: Guidance, secrets: Collection[str]) -> Guidance:
    return dataclasses.replace(
        guidance,
        matches=tuple(dataclasses.replace(each, why=blotted(each.why, secrets)) for each in guidance.matches),
        evaluations=tuple(dataclasses.replace(each, why=blotted(each.why, secrets)) for each in guidance.evaluations),
    )


def _of_call(call: ToolCall, tools: Mapping[str, Tool]) -> set[str]:
    return secrets_in(call.arguments_text, marking.of_call(tools.get(call.name), call).secret)
