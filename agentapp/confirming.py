"""What an approval requires, checked at the decision: a person in the console, and at critical risk a typed word."""

from typing import Any

from agentapp.cards import state_shown
from agentapp.models import Tool
from agentapp.refused import Refused
from agentapp.tools import sentences
from approvals import step_up
from approvals.digest import parse
from approvals.masking import masked
from approvals.models import Approval, DecisionType, Risk

NO_PROGRAM = "Only people in the console can decide a critical request, not programs."


def confirmed(approval: Approval, type: str, via: str, typed: str, edited_text: str) -> None:
    """Raise Refused unless a decision that needs a person comes from one, who has typed the word if one is needed."""
    approves = type in (DecisionType.APPROVE, DecisionType.EDIT)
    if approves and approval.assurance_needed and via != "console":
        words = step_up.NEEDS[approval.assurance_needed]
        raise Refused("needs_person", f"A person must approve this in the console, on its own, with {words}.")
    if approval.risk != Risk.CRITICAL:
        return
    if via != "console":
        raise Refused("needs_person", NO_PROGRAM)
    if not approves:
        return
    tool = Tool.objects.filter(name=approval.tool).first()
    text = edited_text or approval.final_arguments_text or approval.arguments_text
    arguments, button = parse(text), approval.button
    if text != approval.arguments_text and tool is not None:
        button = sentences.button(tool, masked(arguments, approval.secret_fields), _state(approval))
    word = word_of(approval, tool, arguments, button)
    if _plain(typed) != _plain(word):
        raise Refused("confirmation", f"Type {word} to approve this. Nothing was decided.", "confirm")


def word_of(approval: Approval, tool: Tool | None, arguments: dict[str, Any], button: str) -> str:
    """What to type to approve: the target the tool names, or else the size of the effect, or else the tool's name."""
    named = ""
    if tool is not None and tool.confirm_template and tool.version == approval.tool_version:
        named = sentences.target(tool, masked(arguments, approval.secret_fields), _state(approval))
    return named or button or approval.tool


def _state(approval: Approval) -> dict[str, Any]:
    return state_shown(approval.snapshot_text, approval.secret_fields)


def _plain(word: str) -> str:
    """The form that is compared: blanks and letter case do not count."""
    return "".join(word.split()).casefold()
