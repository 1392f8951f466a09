"""What people are asked about: the model's own arguments for a call, or those a person has already changed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Q

from agentapp import locked
from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools.arguments import effective
from agentapp.tools.planning import proposes_plan
from approvals import entitlement, questions, standing
from approvals.cards import digest_of
from approvals.digest import canonical, parse
from approvals.models import Approval, ApprovalKind, Question
from approvals.policy import Ruling


@dataclass(frozen=True)
class AskedFor:
    """The exact arguments people are asked about: the model's, or those a person has already changed."""

    text: str
    replaces: Approval | None = None
    editor_id: int | None = None
    editor_lender_id: int | None = None
    """Whose right they used, if it was lent to them."""
    hands: Collection[int] = ()
    """Who else had a hand in them: they asked the question that led to these, or changed an earlier proposal."""
    asked: Sequence[Question] = ()
    """The questions after which the agent proposed other arguments."""


def asked_for(execution: ToolExecution, tool: Tool) -> AskedFor:
    """What a card is about. A card that replaces another asks about the latest arguments of that one."""
    replaced = _replaced(execution)
    if replaced is None or replaced.tool_version != tool.version:
        return AskedFor(proposed_text(execution, tool), replaced)
    asked = list(questions.about(replaced).exclude(proposed_text="").select_related("approval"))
    edits = entitlement.changes_of(replaced)
    text, editors = replaced.arguments_text, (replaced.editor_id, replaced.editor_lender_id)
    if asked and asked[-1].approval_id == replaced.pk:
        text, editors = asked[-1].proposed_text, (None, None)
    elif edits:
        text, editors = edits[0].arguments_text, (edits[0].user_id, edits[0].on_behalf_of_id)
    others = {*editors}
    # A call that has begun is still the same act when people want it tried again: its key belongs to these arguments.
    if editors[0] is not None and not execution.attempts and locked.changed(replaced, tool, text):
        others |= {replaced.editor_id, replaced.editor_lender_id}  # nothing of their edit is left
        text, editors, edits = locked.as_proposed(replaced), (None, None), []
    hands = entitlement.had_a_hand(replaced, edits, asked) - others
    return AskedFor(text, replaced, *editors, hands=hands, asked=asked)


def kind_of(run: Run, execution: ToolExecution, tool: Tool, ruling: Ruling, asked: AskedFor) -> ApprovalKind:
    """Who is asked now. If the customer must confirm and people must allow, the customer comes first."""
    if proposes_plan(tool):
        return ApprovalKind.PLAN
    if not ruling.customer:
        return ApprovalKind.AUTHORIZATION
    digest = digest_of(tool.name, tool.version, asked.text, run.pk, execution.pk, salt=execution.salt)
    done = ruling.people and standing.is_confirmed(execution.pk, digest)
    return ApprovalKind.AUTHORIZATION if done else ApprovalKind.CONFIRMATION


def proposed_text(execution: ToolExecution, tool: Tool) -> str:
    """The proposed arguments in canonical form, as they will run."""
    return canonical(effective(tool, parse(execution.arguments_text or "{}")))


def _replaced(execution: ToolExecution) -> Approval | None:
    """The request this one replaces, if the call has asked before: its latest arguments are asked about again."""
    if execution.times_asked == 0:
        return None
    State = Approval.State
    # It expired before it was used, or while a person had taken over.
    outlasted = Q(state=State.EXPIRED)
    # It was used but the act was lost, so people want it tried again. A customer's is used up when people decide next.
    lost = Q(state=State.USED, kind=ApprovalKind.AUTHORIZATION)
    earlier = Approval.objects.filter(Q(state=State.SUPERSEDED) | outlasted | lost, execution_id=execution.pk)
    return earlier.order_by("-created_at").first()
