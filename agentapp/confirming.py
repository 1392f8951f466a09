"""What a critical approval costs, checked where it is decided: a person in the console, and a word they typed."""

from agentapp.models import Tool
from agentapp.refused import Refused
from agentapp.tools import sentences
from approvals.digest import parse
from approvals.masking import masked
from approvals.models import Approval, DecisionType, Risk


def confirmed(approval: Approval, type: str, via: str, typed: str, edited_text: str) -> None:
    """Raise Refused unless a decision about a critical request comes from a person who knows what it does."""
    if approval.risk != Risk.CRITICAL:
        return
    if via != "console":
        raise Refused("needs_person", "A critical request is decided by people in the console, and by no program.")
    if type not in (DecisionType.APPROVE, DecisionType.EDIT):
        return
    word = word_of(button_of(approval, edited_text), approval.tool)
    if _plain(typed) != _plain(word):
        raise Refused("confirmation", f"Type {word} to approve this. Nothing was decided.", "confirm")


def word_of(button: str, tool: str) -> str:
    """What is typed to approve: the size of the effect, or the name of the tool."""
    return button or tool


def button_of(approval: Approval, edited_text: str) -> str:
    """The size of the effect of what would run."""
    text = edited_text or approval.final_arguments_text or approval.arguments_text
    tool = Tool.objects.filter(name=approval.tool).first()
    if text == approval.arguments_text or tool is None:
        return approval.button
    snapshot = parse(approval.snapshot_text) if approval.snapshot_text else {}
    return sentences.button(tool, masked(parse(text), approval.secret_fields), snapshot)


def _plain(word: str) -> str:
    """As compared: blanks and letter case do not count."""
    return "".join(word.split()).casefold()
