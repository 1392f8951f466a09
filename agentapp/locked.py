"""Arguments that people may not change: those that were locked when they were asked, and those that are by now."""

from agentapp.models import Tool
from agentapp.tools.arguments import differing
from approvals.digest import parse
from approvals.models import Approval


def names(approval: Approval, tool: Tool | None) -> list[str]:
    return list(dict.fromkeys([*approval.locked_fields, *(tool.locked_fields if tool is not None else ())]))


def changed(approval: Approval, tool: Tool, text: str) -> list[str]:
    """Which of them are others in these arguments than the agent had proposed them."""
    proposed = as_proposed(approval)
    return differing(names(approval, tool), parse(text), parse(proposed)) if text != proposed else []


def changed_anew(approval: Approval, tool: Tool, text: str) -> list[str]:
    """Those of them that are others than they wait to be decided, too: what was changed before a lock may be left."""
    waits = parse(approval.final_arguments_text or approval.arguments_text)
    return differing(changed(approval, tool, text), parse(text), waits)


def as_proposed(approval: Approval) -> str:
    """The agent's own arguments, where people have changed them on this request or on those it replaces."""
    while approval.editor_id is not None and approval.supersedes is not None:
        approval = approval.supersedes
    return approval.arguments_text
