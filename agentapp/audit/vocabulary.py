"""What the ledger's events are called: what is typed after `did:`, what a row says, and its glyph. Pure.

Every type that is recorded belongs to a deed. One that a later release records and this one does not know is
still shown, under words made of its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Rules are found by their own tables; all other configuration goes together.
_RULES = ('"table":"approvals.Rule"', '"table":"approvals.RuleVersion"')
_APPROVED, _EDITED, _REJECTED = '"type":"approve"', '"type":"edit"', '"type":"reject"'
_OK, _REFUSED = '"status":"ok"', '"status":"refused"'
_CONFIGURED = ("configuration.created", "configuration.changed", "configuration.deleted")


@dataclass(frozen=True)
class Deed:
    """One kind of act. `says`: the event's text has one of these parts; `silent_on`: it has none of those.

    A part is a member of canonical JSON, whose quotes cannot occur inside a text. The most common kind of a type is
    defined by what it is not: a database assumes that any part of a text is rare, and would read all rows for fifty.
    """

    word: str
    said: str
    glyph: str
    types: tuple[str, ...]
    says: tuple[str, ...] = ()
    silent_on: tuple[str, ...] = ()

    def covers(self, type: str, body: str) -> bool:
        if type not in self.types or any(part in body for part in self.silent_on):
            return False
        return not self.says or any(part in body for part in self.says)


DEEDS: tuple[Deed, ...] = (
    # What people decide, and what leads there.
    Deed("stopped", "Stopped", "pending", ("approval.requested",)),
    Deed("approved", "Approved", "approved", ("approval.approved", "approval.changed"), (), (_EDITED, _REJECTED)),
    Deed("changed", "Approved with changes", "edited", ("approval.approved", "approval.changed"), (_EDITED,)),
    Deed("rejected", "Rejected", "rejected", ("approval.rejected", "approval.changed"), (), (_APPROVED, _EDITED)),
    Deed("responded", "Answered in the tool’s place", "responded", ("approval.responded",)),
    Deed("undid", "Undid a decision", "withdrawn", ("approval.undone",)),
    Deed("asked", "Asked the agent", "asked", ("approval.asked",)),
    Deed("answered", "Answered", "responded", ("approval.answered",)),
    Deed("unanswered", "No answer came", "expired", ("approval.unanswered",)),
    Deed("claimed", "Claimed", "queued", ("approval.claimed",)),
    Deed("released", "Released", "queued", ("approval.released",)),
    Deed("handed-over", "Handed over", "queued", ("approval.handed_over",)),
    Deed("commented", "Commented", "responded", ("approval.commented",)),
    Deed("judged", "Judged a decision", "edited", ("approval.judged",)),
    Deed("revealed", "Looked at a masked value", "asked", ("approval.revealed",)),
    Deed("saw-personal", "Had personal data shown", "asked", ("privacy.revealed",)),
    Deed("reminded", "Reminded", "queued", ("approval.reminded",)),
    Deed("escalated", "Escalated", "pending", ("approval.escalated",)),
    Deed("late", "Missed the target", "pending", ("approval.breached",)),
    Deed("used", "Took the approval", "queued", ("approval.used",)),
    Deed("expired", "Expired", "expired", ("approval.expired",)),
    Deed("withdrawn", "Withdrawn", "withdrawn", ("approval.withdrawn",)),
    Deed("replaced", "Replaced", "superseded", ("approval.superseded",)),
    # What becomes of calls.
    Deed("ran", "Ran tool", "ok", ("tool_call.completed",), (_OK,)),
    Deed("refused", "Refused", "refused", ("tool_call.completed",), (_REFUSED,)),
    Deed("failed", "Failed", "failed", ("tool_call.completed",), (), (_OK, _REFUSED)),
    Deed("proposed", "Proposed a call", "proposed", ("tool_call.proposed",)),
    Deed("began", "Began the call", "begun", ("tool_call.started",)),
    Deed("repeated", "Tried again", "begun", ("tool_call.repeated",)),
    Deed("attempt-failed", "Attempt failed", "failed", ("tool_call.attempt_failed",)),
    Deed("blocked", "Blocked by a hook", "refused", ("tool_call.blocked",)),
    Deed("hook-changed", "Changed by a hook", "edited", ("tool_call.changed_by_hook",)),
    Deed("unknown", "Outcome unknown", "outcome_unknown", ("tool_call.outcome_unknown",)),
    Deed("resolved", "Found out the outcome", "ok", ("tool_call.outcome_resolved",)),
    Deed("reopened", "Asked for the call again", "queued", ("tool_call.reopened",)),
    Deed("set-aside", "Set aside, asks again", "superseded", ("tool_call.set_aside",)),
    Deed("compared", "Compared with its dry run", "ok", ("tool_call.compared",)),
    Deed("undo-asked", "Asked for an undo", "withdrawn", ("tool_call.undo_asked",)),
    Deed("late-answer", "Tool answered late", "asked", ("tool_call.late_answer",)),
    Deed("counted", "Counted by a limit", "queued", ("tool_call.counted",)),
    Deed("call-cancelled", "Call cancelled", "cancelled", ("tool_call.cancelled",)),
    Deed("kept-in", "Request not let out", "refused", ("outbound.refused",)),
    Deed("asked-agent", "Asked an agent", "queued", ("subagent.spawned",)),
    Deed("agent-answered", "Agent answered", "responded", ("subagent.completed",)),
    Deed("hook-violated", "A hook changed what it may not", "failed", ("hook.contract_violated",)),
    Deed("hooks-ran", "Ran the hooks after a step", "queued", ("step.hooks_ran",)),
    # What the model does.
    Deed("thought", "Took a step", "queued", ("step.recorded",)),
    Deed("read-decision", "Decision read from the text", "queued", ("step.decided",)),
    Deed("dropped-text", "Text that repeats a call dropped", "queued", ("step.content_dropped",)),
    Deed("dropped-calls", "Calls beyond any limit dropped", "refused", ("step.calls_dropped",)),
    Deed("used-up", "Used up its rounds", "stopped", ("step.iterations_used_up",)),
    Deed("checked-reply", "Reply checked against what is known", "queued", ("step.reply_checked",)),
    Deed(
        "undecidable", "Decision could not be followed", "failed",
        ("decision.extraction_failed", "decision.validation_failed"),
    ),
    # Runs and conversations.
    Deed("started", "Started run", "begun", ("run.queued",)),
    Deed("picked-up", "Picked up by a worker", "begun", ("run.claimed",)),
    Deed("let-go", "Back in the queue", "queued", ("run.released",)),
    Deed("waited", "Run waits", "waiting", ("run.waiting",)),
    Deed("finished", "Run finished", "succeeded", ("run.succeeded",)),
    Deed("run-failed", "Run failed", "failed", ("run.failed",)),
    Deed("run-stopped", "Run stopped", "stopped", ("run.stopped",)),
    Deed("cancelled", "Run cancelled", "cancelled", ("run.cancelled",)),
    Deed("asked-cancel", "Asked to cancel", "cancelled", ("run.cancel_requested",)),
    Deed("paused", "Run paused", "paused", ("run.paused",)),
    Deed("asked-pause", "Asked to pause", "paused", ("run.pause_requested",)),
    Deed("resumed", "Run resumed", "begun", ("run.resumed",)),
    Deed("raised-budget", "Raised the budget", "approved", ("run.budget_raised",)),
    Deed("took-over", "Took the run over", "paused", ("run.taken_over", "conversation.taken_over")),
    Deed("handed-back", "Handed the run back", "begun", ("run.handed_back", "conversation.handed_back")),
    Deed("began-conversation", "Began a conversation", "queued", ("conversation.begun",)),
    Deed("wrote", "Wrote", "responded", ("conversation.person_wrote", "conversation.customer_wrote")),
    Deed("asked-conversation", "Asked in a conversation", "queued", ("conversation.asked",)),
    Deed("changed-mode", "Changed who speaks", "edited", ("conversation.mode_changed",)),
    Deed("opened-channel", "Opened to the customer", "queued", ("conversation.channel_opened",)),
    Deed("forked", "Forked a conversation", "queued", ("conversation.forked",)),
    Deed("summarised", "Summarised", "queued", ("conversation.summarised",)),
    Deed("made-link", "Made a customer link", "approved", ("conversation.link_made",)),
    Deed("revoked-link", "Revoked a customer link", "withdrawn", ("conversation.link_revoked",)),
    # What allows calls for a while: grants and plans.
    Deed("granted", "Made a grant", "approved", ("grant.made",)),
    Deed("revoked-grant", "Revoked a grant", "withdrawn", ("grant.revoked",)),
    Deed("used-grant", "Allowed by a grant", "approved", ("grant.used",)),
    Deed("took-up-plan", "Plan taken up", "approved", ("plan.taken_up",)),
    Deed("used-plan", "Allowed by a plan", "approved", ("plan.used",)),
    Deed("ended-plan", "Ended a plan", "withdrawn", ("plan.ended",)),
    # Configuration, controls, people.
    Deed("changed-rule", "Changed policy", "edited", _CONFIGURED, _RULES),
    Deed("configured", "Changed configuration", "edited", _CONFIGURED, (), _RULES),
    Deed("engaged", "Engaged a kill switch", "failed", ("switch.engaged",)),
    Deed("lifted", "Released a kill switch", "ok", ("switch.released",)),
    Deed("opened-breaker", "Opened", "failed", ("breaker.opened",)),
    Deed("probed-breaker", "Half open", "waiting", ("breaker.half_open",)),
    Deed("closed-breaker", "Closed", "ok", ("breaker.closed", "breaker.reset")),
    Deed("limited", "Set a breaker’s limits", "edited", ("breaker.limits_set",)),
    Deed("exported", "Exported the trail", "queued", ("trail.exported",)),
    Deed("issued-token", "Issued a token", "approved", ("token.issued",)),
    Deed("rotated-token", "Replaced a token", "approved", ("token.rotated",)),
    Deed("revoked-token", "Revoked a token", "withdrawn", ("token.revoked",)),
    Deed("tested-webhook", "Tested a webhook", "queued", ("webhook.tested",)),
    Deed("redelivered", "Sent a webhook again", "queued", ("webhook.redelivered",)),
    Deed("switched-off", "Switched a webhook off", "failed", ("webhook.switched_off",)),
    Deed("went-away", "Went away", "paused", ("absence.begun",)),
    Deed("came-back", "Came back", "begun", ("absence.ended",)),
    Deed("lent", "Lent the right to decide", "approved", ("delegation.begun",)),
    Deed("took-back", "Ended what was lent", "withdrawn", ("delegation.ended",)),
    Deed("set-up", "Set up the installation", "approved", ("setup.first_admin",)),
    # What is kept: proofs of the record, and that words were erased.
    Deed("introduced-key", "Introduced a signing key", "approved", ("ledger.key_introduced",)),
    Deed("began-file", "Started a new file of checkpoints", "edited", ("ledger.anchor_begun_anew",)),
    Deed("erased", "Erased what was said", "withdrawn", ("erasure.done", "run.erased", "conversation.erased")),
    Deed("asked-erasure", "Asked for an erasure", "asked", ("erasure.asked",)),
    Deed("retained", "Deleted what was old", "withdrawn", ("retention.applied",)),
    # Evals.
    Deed("loaded-suite", "Loaded a suite of evals", "edited", ("eval.suite_made", "eval.suite_loaded")),
    Deed(
        "wrote-case", "Wrote a case of an eval", "edited",
        ("eval.case_saved", "eval.case_renamed", "eval.case_removed"),
    ),
    Deed("asked-eval", "Asked for an eval", "queued", ("eval.queued",)),
    Deed("ran-eval", "Eval finished", "ok", ("eval.finished",)),
    Deed("ended-eval", "Eval cancelled", "cancelled", ("eval.cancelled",)),
    # Signing in.
    Deed("signed-in", "Signed in", "ok", ("signin.succeeded",)),
    Deed("failed-signin", "Sign-in failed", "rejected", ("signin.failed",)),
    Deed("renewed", "Showed who they are", "ok", ("signin.renewed",)),
    Deed("added-factor", "Added a way to sign in", "edited", ("signin.factor_added", "signin.provider_connected")),
    Deed("removed-factor", "Removed a way to sign in", "edited", ("signin.factor_removed", "signin.factors_forgotten")),
    Deed("ended-sessions", "Ended sessions", "withdrawn", ("signin.sessions_ended",)),
    Deed("asked-reset", "Asked for a new password", "asked", ("signin.reset_asked",)),
    Deed("changed-password", "Changed a password", "edited", ("user.password_changed",)),
    Deed("signed-out", "Signed out", "cancelled", ("signout",)),
)  # fmt: skip
BY_WORD: Mapping[str, Deed] = {deed.word: deed for deed in DEEDS}

# Several deeds under one word. Moves of money are found by the tool as well.
MONEY = "moved-money"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "decided": ("approved", "changed", "rejected", "responded", "undid"),
    "config": (
        "changed-rule", "configured", "engaged", "lifted", "limited", "issued-token", "revoked-token", "granted",
        "revoked-grant", "switched-off", "set-up",
    ),
    "sign-ins": (
        "signed-in", "failed-signin", "renewed", "added-factor", "removed-factor", "ended-sessions", "asked-reset",
        "changed-password", "signed-out",
    ),
    MONEY: ("ran",),
}  # fmt: skip
WORDS: tuple[str, ...] = (*GROUPS, *BY_WORD)

_BY_TYPE: Mapping[str, tuple[Deed, ...]] = {
    type: tuple(deed for deed in DEEDS if type in deed.types) for deed in DEEDS for type in deed.types
}
_MADE = {"configuration.created": "Added", "configuration.deleted": "Deleted"}


def deeds(word: str) -> tuple[Deed, ...]:
    """What a word after `did:` stands for."""
    return tuple(BY_WORD[name] for name in GROUPS.get(word, (word,)))


def deed_of(type: str, body: str) -> Deed:
    """What an event reports. An unknown type gets words made from its name."""
    found = next((deed for deed in _BY_TYPE.get(type, ()) if deed.covers(type, body)), None)
    return found or Deed("", _words_of(type), "queued", (type,))


def is_known(type: str) -> bool:
    return type in _BY_TYPE


def said(deed: Deed, type: str, data: Mapping[str, Any], changes: int = 0) -> str:
    """What a row says was done. `changes`: how many arguments the approver changed, if that is known."""
    if deed.word == "changed" and changes:
        return f"Approved with {changes} change{'s' if changes > 1 else ''}"
    if deed.word == "judged":
        return f"Judged a decision {data.get('mark', '')}".strip()
    if type in _MADE:
        what = "policy" if deed.word == "changed-rule" else _row(str(data.get("table", "")))
        return f"{_MADE[type]} {what}"
    if deed.word == "configured":
        return f"Changed {_row(str(data.get('table', '')))}"
    return deed.said


def _row(table: str) -> str:
    """What people call a table's rows: "agentapp.ContextVariable" is a context variable."""
    name = table.rpartition(".")[2]
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    return spaced or "configuration"


def _words_of(type: str) -> str:
    subject, _, what = type.partition(".")
    return f"{subject.replace('_', ' ').capitalize()} {what.replace('_', ' ')}".strip()
