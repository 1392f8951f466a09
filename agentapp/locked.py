"""Arguments that people may not change: those locked when people were asked, and those locked now."""

from agentapp.models import Tool
from agentapp.tools.arguments import differing
from approvals.digest import parse
from approvals.models import Approval


def names(approval: Approval, tool: Tool | None) -> list[str]:
    return list(dict.fromkeys([*approval.locked_fields, *(tool.locked_fields if tool is not None else ())]))


def changed(approval: Approval, tool: Tool, text: str) -> list[str]:
    """The locked arguments that differ from what the agent proposed."""
    proposed = as_proposed(approval)
    return differing(names(approval, tool), parse(text), parse(proposed)) if text != proposed else []


def changed_anew(approval: Approval, tool: Tool, text: str) -> list[str]:
    """Those that also differ from the arguments waiting for a decision: a change made before the lock may stay."""
    waits = parse(approval.final_arguments_text or approval.arguments_text)
    return differing(changed(approval, tool, text), parse(text), waits)


def as_proposed(approval: Approval) -> str:
    """The agent's own arguments, even if people have changed them on this request or on those it replaces."""
    while approval.editor_id is not None and approval.supersedes is not None:
        approval = approval.supersedes
    return approval.arguments_text
