"""The words of the run pages: why a run ended, and what let a call run or stopped it. No HTML."""

from agentapp.models import Run, ToolExecution
from agentapp.reasons import Reason, StopReason

_STOPPED: dict[str, str] = {
    StopReason.COMPLETED: "The agent finished.",
    StopReason.ERROR: "The run failed.",
    StopReason.STOP_REQUESTED: "The run was stopped.",
    StopReason.USER_REQUESTED: "A person cancelled the run.",
    StopReason.STEPS_LIMIT: "The agent used all the steps or calls it may take.",
    StopReason.TOKEN_LIMIT: "The run used all its tokens.",
    StopReason.COST_LIMIT: "The run reached its cost limit.",
    StopReason.TIME_LIMIT: "The run used all its time.",
    StopReason.RETRY_LIMIT: "The model failed on every allowed try.",
    StopReason.FINISH_REASON: "The model ended its reply in a way that stops this agent.",
    StopReason.NO_PROGRESS: "The agent made no progress.",
    StopReason.CIRCUIT_OPEN: "Something the run needs keeps failing, and is switched off for a while.",
    StopReason.TOOL_FAILURE: "A call failed, which stops this agent.",
    StopReason.BLOCKED_BY_HOOK: "A hook blocked a call, which stops this agent.",
    StopReason.SUPERSEDED: "A newer message replaced this run.",
    StopReason.APPROVAL_DENIED: "A person rejected a call and stopped the run.",
    StopReason.APPROVAL_EXPIRED: "A call was not decided in time, or could not run in time.",
}
_REASONS: dict[str, str] = {
    Reason.TOOL_NOT_DISCLOSED: "the model was not offered this tool",
    Reason.TOOL_DISABLED: "the tool is switched off",
    Reason.NOT_MOCKED: "the run is mocked, and no mock answers this call",
    Reason.MALFORMED_ARGUMENTS: "the arguments are not well-formed",
    Reason.INVALID_ARGUMENTS: "the arguments do not fit the tool",
    Reason.MISSING_ARGUMENTS: "an argument is missing",
    Reason.PERMISSION_DENIED: "the person who started the run may not do this",
    Reason.POLICY_DENIED: "a rule forbids it",
    Reason.POLICY_CHANGED: "the rules now forbid it",
    Reason.BLOCKED_BY_HOOK: "a hook blocked it",
    Reason.CALL_LIMIT_EXCEEDED: "too many calls",
    Reason.MISSING_IDEMPOTENCY_KEY: "nothing says which act it is",
    Reason.BUDGET_EXHAUSTED: "it would exceed the budget",
    Reason.CIRCUIT_OPEN: "the tool keeps failing, and is switched off for a while",
    Reason.DUPLICATE_CALL: "the same call came earlier in the step",
    Reason.PLAN_REFUSED: "not all of its calls can be planned",
    Reason.PREVIOUSLY_REJECTED: "a person rejected exactly this before",
    Reason.APPROVAL_REJECTED: "a person rejected it",
    Reason.APPROVAL_EXPIRED: "no one decided in time, or it could not run in time",
    Reason.ACTION_CHANGED: "the call changed after it was approved",
    Reason.IDEMPOTENCY_KEY_CONSUMED: "it has already been done",
    Reason.TOOL_TIMEOUT: "the tool did not answer in time",
    Reason.TOOL_FAILURE: "the tool failed",
    Reason.TOOL_RESULT_INVALID: "the tool's result could not be read",
    Reason.RESULT_TOO_LARGE: "the result is too large",
    Reason.LIMIT_REACHED: "it reached a limit midway",
    Reason.OUTCOME_UNKNOWN: "nobody knows whether it happened",
    Reason.CANCELLED: "it was cancelled before it ran",
    Reason.DECISION_EXTRACTION: "the reply contains no decision",
    Reason.DECISION_VALIDATION: "the decision cannot be followed",
}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def stopped(run: Run) -> str:
    """Why a run ended, as a sentence."""
    return _STOPPED.get(run.stop_reason, "The run ended.")


def stop_reason(code: str) -> str:
    """Why runs end, in a word or two, as for a filter."""
    return code.replace("_", " ").capitalize()


def reason(code: str) -> str:
    """Why a call did not do what it should, as the end of a sentence."""
    return _REASONS.get(code, code.replace("_", " "))


def allowed_by(execution: ToolExecution) -> str:
    """What let a call run without a person. Empty: nothing did."""
    kind, _, name = execution.allowed_by.partition(":")
    if kind == "rule":
        return f"The rule {name}"
    if kind == "grant":
        return f"The grant {name}"
    if kind == "plan":
        return f"The plan {name}"
    return "Reads run freely" if kind == "read" else execution.allowed_by


def scale(seconds: float) -> str:
    for size, unit in _UNITS[:-1]:
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def about(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds:.1f} s" if seconds >= 0.1 else "0 s"


def actor(name: str) -> str:
    """Who did it, from an event's actor: "user:7:dana (token CI)" is dana (token CI)."""
    if name.startswith("user:"):
        return name.split(":", 2)[-1]
    return {"system": "The system", "model": "The model"}.get(name, name)
