"""What one request shows a person: the frozen card, what they may do about it, and what became of it."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils import timezone

from agentapp import actions, auth, confirming, lineage, locked
from agentapp.console import dry_run, edits, evidence, in_the_way, origins, plan_lines, schema_form, times, undoing
from agentapp.console.facts import facts_of
from agentapp.console.shown import Shown, arguments_in, confirm_label, execution_of, show, tool_of, tool_unchanged
from agentapp.models import Run, Tool, ToolExecution
from agentapp.secrecy import result_shown
from approvals import entitlement, lens, say
from approvals import questions as questions_asked
from approvals.models import HIGH_RISKS, Approval, Claim, Decision, DecisionType, Question, Risk
from approvals.standing import Refusal, Right, approving, progress

MAX_OFFERED = 6
OTHER = "Other"


@dataclass(frozen=True)
class Draft:
    """What a person has typed about a request but not yet decided, and what they were shown."""

    decision_id: uuid.UUID
    version: int
    action_digest: str
    posted: QueryDict | None = None
    # Used instead of what was posted: the resulting arguments, applied to what waits now.
    arguments: dict[str, Any] | None = None
    # Why it is rejected, as chosen among the reasons offered; `message` is what was typed besides.
    reason: str = ""
    message: str = ""
    stop_run: bool = False
    word: str = ""

    @property
    def words(self) -> str:
        return in_words(self.reason, self.message)


def _may_take_over(run: Run | None, user: User, decides: bool) -> bool:
    return run is not None and not run.is_final and auth.offers_take_over(user, run, decides)


def context(approval: Approval, user: User, draft: Draft | None = None, in_run: bool = False) -> dict[str, Any]:
    """Everything a card's templates need. `in_run`: on a page of the run, which says who holds it."""
    right, standing = say.right(approval, user), standing_of(approval)
    given = [d for d in approval.decisions.all() if d.undone_at is None]
    mine = next((d for d in given if d.user_id == user.pk), None)
    _open_lens(user, right, mine)
    forbidden, lender = say.of(approval, user, right, given) if standing == "pending" else (None, None)
    draft = draft or Draft(uuid.uuid4(), approval.version, current_digest(approval))
    may_edit = DecisionType.EDIT in approval.allowed_decisions and tool_unchanged(approval)
    shown = show(approval, draft.posted, draft.arguments) if may_edit else show(approval, None)
    executed, path, questions = execution_of(approval), path_of(approval), questions_of(approval)
    run, claim = executed.run if executed is not None else None, claim_of(approval)
    far = _how_far(approval, user, given, lender)
    return {
        "approval": approval,
        "standing": standing,
        "standing_state": _state_shown(approval, standing),
        "forbidden": forbidden,
        "may_decide": standing == "pending" and forbidden is None,
        "lender": lender,
        "may_edit": may_edit,
        **_open_to(approval, shown, user),
        "draft": draft,
        "stale": standing == "pending" and draft.version != approval.version,
        "shown": shown,
        "given": given,
        "mine": mine,
        "last": given[-1] if given else None,
        **far,
        **_to_press(approval, shown, far["approvals_given"], far["approvals_needed"]),
        "edit": _edit(approval, shown, given) if standing == "pending" else None,
        "hands": edits.hands(approval, questions, user) if standing == "pending" else [],
        "left": edits.remaining_of(approval, shown.own_changes, user, lender) if standing == "pending" else None,
        "successor": approval.superseded_by.first() if standing in ("superseded", "used") else None,
        "stopped": in_the_way.of(approval, executed, standing, named=not in_run),
        "can_undo": mine is not None and standing == "held",
        "executed": executed,
        "taken_over_by": run.taken_over_by if run is not None else None,
        "may_take_over": _may_take_over(run, user, forbidden is None and lender is None),
        "path": path,
        "path_visible": bool(path) and auth.visible_runs(user).filter(pk=path[0].run).exists(),
        "outcome_text": (outcome := outcome_text(approval)),
        "outcome_facts": facts_of(outcome),
        **_asked(approval, standing, questions, user),
        **times.of(approval),
        "may_ask_again": actions.can_be_asked_again(approval, executed, user),
        "offered": tool_questions(shown.tool),
        "plan": plan_lines.plan_of(approval, user),
        "claim": claim,
        "claimed_by_other": claim is not None and not _is_mine(claim, user),
        "dry_run": dry_run.of(approval, executed),
        "undoing": undoing.of(executed, user) if standing == "succeeded" else None,
        "takes_back": undoing.undone_by(run) if run is not None else None,
        "evidence": evidence.of(approval, questions),
        "rule_values": evidence.rule_values(approval),
        "weighed": origins.risk_of(approval),
        "rejections": rejections(),
        "tool_changed": standing == "pending" and not tool_unchanged(approval),
        "unfounded": bool(approval.explanation)
        and len([i for i in approval.evidence if i.get("kind") != "guideline"]) < 2,
    }


def _open_lens(user: User, right: Right | Refusal, mine: Decision | None) -> None:
    """Show personal data to those who may decide on a request, or have decided on it."""
    if isinstance(right, Right) or (mine is not None and user.has_perm("approvals.decide_approval")):
        lens.show()


def _open_to(approval: Approval, shown: Shown, user: User) -> dict[str, Any]:
    """The kinds of decision a person may take, and why others must approve the call if they may not.

    They may still change the call and leave the change for others to approve.
    """
    theirs = approval.risk in HIGH_RISKS and not shown.own_changes and user.pk in entitlement.editors(approval)
    others = f"{entitlement.why_editor(approval, user.pk)}, so somebody else must approve them." if theirs else ""
    allowed = [kind for kind in approval.allowed_decisions if kind != DecisionType.APPROVE or not theirs]
    return {"allowed": allowed, "others_approve": others}


def _edit(approval: Approval, shown: Shown, given: list[Decision]) -> edits.Edit | None:
    return edits.of(approval, (show(approval, None) if shown.own_changes else shown).form, given)


def _asked(approval: Approval, standing: str, questions: list[Question], user: User) -> dict[str, Any]:
    """The questions people asked first, which of them is open, and how long the clock is stopped for it."""
    question = next((q for q in questions if q.closed_at is None), None)
    return {
        "questions": questions,
        "question": question if standing == "pending" else None,
        # The clock stops for the first question only.
        "clock_left": approval.expires_at - question.answer_by if question and question == questions[0] else None,
        "may_answer": to_answer(approval, questions, user),
    }


def _how_far(approval: Approval, user: User, given: list[Decision], lender: User | None) -> dict[str, Any]:
    """How many of how many people have approved, as it stands for this person, and the thresholds if there are any."""
    if not approval.terms:
        return {"approvals_given": len(approving(approval, given)), "approvals_needed": approval.approvals_needed}
    count = progress(approval, [(user.pk, lender.pk if lender is not None else None)])
    approved, needed = count.next_for(count.people.get(user.pk))
    return {
        "approvals_given": approved,
        "approvals_needed": needed,
        "rejections_given": len(count.rejecting),
        "rejections_needed": count.rejections_needed(),
        "terms_words": count.terms.words,
    }


def _to_press(approval: Approval, shown: Shown, given: int, needed: int) -> dict[str, Any]:
    """This person's number among the approvers, and what high or critical risk asks of them."""
    number, wanted = _as_which(approval, shown, given, needed)
    return {
        "number": number,
        "wanted": wanted,
        "arms": confirm_label(shown, number, wanted) if approval.risk == Risk.HIGH else "",
        "word": _word(approval, shown) if approval.risk == Risk.CRITICAL else "",
    }


def _as_which(approval: Approval, shown: Shown, given: int, needed: int) -> tuple[int, int]:
    """This person's number among the approvers of what is shown, and how many are needed.

    Nobody has approved their own changes yet. At high and critical risk an editor does not count as an approver: 0.
    """
    if not shown.own_changes:
        return given + 1, needed
    return (0 if approval.risk in HIGH_RISKS and not approval.mocked else 1), needed


def _word(approval: Approval, shown: Shown) -> str:
    """What must be typed to approve what is shown."""
    return confirming.word_of(approval, shown.tool, shown.form.arguments, shown.button)


def standing_of(approval: Approval) -> str:
    """Where a request stands, in people's words: the row's state, and after approval the call's state."""
    state = approval.state
    if state in Approval.UNDECIDED:
        return "pending" if approval.expires_at > timezone.now() else "expired"
    if state in Approval.DECIDED and approval.used_at is None:
        return "held" if approval.runs_at and approval.runs_at > timezone.now() else "taken"
    execution = execution_of(approval)
    if state != Approval.State.USED or execution is None:
        return state
    if execution.state == ToolExecution.State.FINISHED:
        return "succeeded" if execution.result_status == ToolExecution.ResultStatus.OK else "failed"
    return "running" if execution.state == ToolExecution.State.EXECUTING else execution.state


def _state_shown(approval: Approval, standing: str) -> str:
    """The glyph and word for a standing. A held or taken request shows what was decided."""
    return approval.state if standing in ("held", "taken") else standing


def carried_over(approval: Approval, draft: Draft) -> dict[str, Any] | None:
    """A person's changes to a call that has changed since, applied to the call that waits now.

    Only what they changed is carried over; otherwise they would silently undo somebody else's edit. None if that
    cannot be determined, or what they typed cannot be read.
    """
    seen = _seen(approval, draft.action_digest)
    tool = tool_of(approval)
    if seen is None or tool is None or draft.posted is None:
        return None
    terms = (locked.names(approval, tool), approval.secret_fields)
    typed = schema_form.build(tool.input_schema, seen, seen, *terms, draft.posted)
    if typed.errors:
        return None
    now = arguments_in(approval.final_arguments_text or approval.arguments_text)
    for name in {*seen, *typed.arguments}:
        if typed.arguments.get(name) == seen.get(name) and (name in typed.arguments) == (name in seen):
            continue
        if name in typed.arguments:
            now[name] = typed.arguments[name]
        else:
            now.pop(name, None)
    return now


def _seen(approval: Approval, digest: str) -> dict[str, Any] | None:
    """The arguments that a page with this digest showed."""
    if digest == approval.action_digest:
        return arguments_in(approval.arguments_text)
    decision = approval.decisions.filter(action_digest=digest).first()
    return arguments_in(decision.arguments_text) if decision is not None else None


def tool_questions(tool: Tool | None) -> list[str]:
    """The questions that the tool's owner offers. What was stored before they were checked is passed over."""
    offered = tool.questions if tool is not None and isinstance(tool.questions, list) else []
    return [text for text in offered if isinstance(text, str) and text.strip()][:MAX_OFFERED]


def claim_of(approval: Approval) -> Claim | None:
    """Who looks after a waiting request, if that claim still counts."""
    claim: Claim | None = getattr(approval, "claim", None)
    counts = claim is not None and approval.state in Approval.UNDECIDED
    return claim if counts and (claim.until is None or claim.until > timezone.now()) else None  # type: ignore[union-attr]


def _is_mine(claim: Claim, user: User) -> bool:
    return claim.user_id == user.pk if claim.user_id else user.groups.filter(pk=claim.group_id).exists()


def questions_of(approval: Approval) -> list[Question]:
    """What was asked, oldest first. Needs no query if nobody has asked anything about the request."""
    if not getattr(approval, "was_asked", True):
        return []
    asked = questions_asked.about(approval).select_related("approval", "asker", "answerer")
    return list(asked.order_by("asked_at"))


def to_answer(approval: Approval, questions: list[Question], user: User) -> Question | None:
    """The first question that this person may answer for the agent."""
    execution = execution_of(approval)
    if execution is None:
        return None
    return next((q for q in questions if actions.may_answer(user, q, execution.run)), None)


def current_digest(approval: Approval) -> str:
    return approval.final_digest or approval.action_digest


def path_of(approval: Approval) -> tuple[lineage.Asker, ...]:
    """The agents from the one a person started to the one that asks. Empty if they are the same."""
    execution = execution_of(approval)
    run = execution.run if execution is not None else Run.objects.filter(pk=approval.run_id).first()
    return lineage.path_of(run) if run is not None and run.parent_id is not None else ()


def rejections() -> tuple[str, ...]:
    """The reasons a rejection offers. With the last one, what was typed is the reason."""
    return (*settings.REJECTION_REASONS, OTHER)


def in_words(reason: str, message: str) -> str:
    """A chosen reason and what was typed, as the agent reads them. Only a reason that is offered is read."""
    offered = reason if reason in settings.REJECTION_REASONS else ""
    return f"{offered}. {message}" if offered and message else offered or message


def outcome_text(approval: Approval) -> str:
    """What came of the call, as shortened text for people."""
    execution = execution_of(approval)
    if execution is None or execution.state != ToolExecution.State.FINISHED:
        return ""
    if execution.message:
        return execution.message
    value = result_shown(execution)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return "" if value is None else text[:2000]
