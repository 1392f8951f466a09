"""Whether a proposed call repeats an earlier one: in its run, in what the run takes as done, or in any run."""

from collections.abc import Sequence
from typing import Any

from agentapp import agent_tools, business_keys
from agentapp.call_checks import CallRefused
from agentapp.earlier import Earlier
from agentapp.executions import Proposal
from agentapp.models import Run, Tool, ToolExecution
from agentapp.reasons import Reason
from agentapp.transcript import StepRows
from approvals.digest import canonical, sha256

DOUBTFUL = "The same call failed in this run, and its tool does not rule out that it took effect."
NO_BUSINESS_KEY = "Two calls of this tool are the same act if they agree on: {}. Give these arguments."


def is_new(
    steps: Sequence[StepRows], earlier: Earlier | None, tool: Tool, digest: str, beside: Sequence[Proposal]
) -> None:
    """Refuse to repeat a write, or a call that a person has rejected in this run or in what it takes as done."""
    before = earlier or Earlier()
    made = [
        execution
        for rows in (*before.kept, *steps)
        for execution in rows.executions
        if execution.name == tool.name and execution.arguments_digest == digest and not execution.taken_back
    ]
    made += [done for done in before.done if done.name == tool.name and digest in _digests(done)]
    if any(execution.reason == Reason.APPROVAL_REJECTED for execution in made):
        raise CallRefused(
            Reason.PREVIOUSLY_REJECTED, "A person has rejected exactly this call in this run. Do not propose it again."
        )
    asks = agent_tools.asks_agent(tool)
    if not (tool.consequential or asks) or tool.repeatable:
        return
    done = next((e for e in made if _counts_as_done(e) and e.idempotency_key), None)
    if done is not None:
        raise CallRefused(
            Reason.IDEMPOTENCY_KEY_CONSUMED,
            business_keys.told(done),
            replay_of=done,
        )
    twice = any(
        p.tool is not None and p.tool.name == tool.name and not p.refusal and sha256(p.canonical_text) == digest
        for p in beside
    )
    if twice:
        raise CallRefused(Reason.DUPLICATE_CALL, "The same call is already in this reply; it runs once.")


def is_doubtful(steps: Sequence[StepRows], earlier: Earlier | None, tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether exactly this act failed before and its tool does not rule out that it had an effect."""
    if not tool.consequential or tool.repeatable:
        return False
    before = earlier or Earlier()
    made = [execution for rows in (*before.kept, *steps) for execution in rows.executions]
    failed = [each for each in (*made, *before.done) if each.name == tool.name and each.may_have_acted]
    return bool(failed) and any(sha256(canonical(arguments)) in _digests(each) for each in failed)


def _counts_as_done(execution: ToolExecution) -> bool:
    return execution.took_effect or execution.is_in_doubt


def _digests(execution: ToolExecution) -> set[str]:
    """The digests of a call's arguments as proposed, and as they ran: people may have changed them."""
    return {execution.arguments_digest, sha256(execution.executed_text)}


def is_one_act(run: Run, tool: Tool, arguments: dict[str, Any], beside: Sequence[Proposal]) -> None:
    """Refuse an act that any run has already done, by its business key, or a call that lacks the key's arguments."""
    if not tool.consequential or not tool.business_key_template:
        return
    act = business_keys.act_of(tool, arguments)
    if not act:
        raise CallRefused(Reason.MISSING_IDEMPOTENCY_KEY, NO_BUSINESS_KEY.format(tool.business_key_template))
    taken_by = business_keys.key_of(run, act).taken_by
    if taken_by is not None:
        raise CallRefused(Reason.IDEMPOTENCY_KEY_CONSUMED, business_keys.told(taken_by), replay_of=taken_by)
    others = [p for p in beside if p.tool is not None and p.tool.name == tool.name and not p.refusal]
    if any(business_keys.act_of(tool, p.arguments) == act for p in others):
        raise CallRefused(Reason.DUPLICATE_CALL, "A call earlier in this reply is the same act; it runs once.")
