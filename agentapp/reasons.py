"""The closed lists of why: why a call was not executed, and why a run ended."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a call was refused or failed. Programs match on these; people read the message beside it."""

    TOOL_NOT_DISCLOSED = "tool_not_disclosed"
    TOOL_DISABLED = "tool_disabled"
    MALFORMED_ARGUMENTS = "malformed_arguments"
    INVALID_ARGUMENTS = "invalid_arguments"
    MISSING_ARGUMENTS = "missing_arguments"
    PERMISSION_DENIED = "permission_denied"
    POLICY_DENIED = "policy_denied"
    POLICY_CHANGED = "policy_changed"
    MISSING_IDEMPOTENCY_KEY = "missing_idempotency_key"
    BLOCKED_BY_HOOK = "blocked_by_hook"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CIRCUIT_OPEN = "circuit_open"
    CALL_LIMIT_EXCEEDED = "call_limit_exceeded"
    DUPLICATE_CALL = "duplicate_call"
    PREVIOUSLY_REJECTED = "previously_rejected"
    PLAN_REFUSED = "plan_refused"
    APPROVAL_REJECTED = "approval_rejected"
    APPROVAL_EXPIRED = "approval_expired"
    ACTION_CHANGED = "action_changed"
    IDEMPOTENCY_KEY_CONSUMED = "idempotency_key_consumed"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_FAILURE = "tool_failure"
    TOOL_RESULT_INVALID = "tool_result_invalid"
    RESULT_TOO_LARGE = "result_too_large"
    LIMIT_REACHED = "limit_reached"
    OUTCOME_UNKNOWN = "outcome_unknown"
    CANCELLED = "cancelled"
    DECISION_EXTRACTION = "decision_extraction"
    DECISION_VALIDATION = "decision_validation"


class StopReason(StrEnum):
    """Why a run ended."""

    COMPLETED = "completed"
    ERROR = "error"
    STOP_REQUESTED = "stop_requested"
    USER_REQUESTED = "user_requested"
    STEPS_LIMIT = "steps_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105
    TIME_LIMIT = "time_limit"
    RETRY_LIMIT = "retry_limit"
    FINISH_REASON = "finish_reason"
    COST_LIMIT = "cost_limit"
    NO_PROGRESS = "no_progress"
    CIRCUIT_OPEN = "circuit_open"
    TOOL_FAILURE = "tool_failure"
    BLOCKED_BY_HOOK = "blocked_by_hook"
    SUPERSEDED = "superseded"
    APPROVAL_DENIED = "approval_denied"
    APPROVAL_EXPIRED = "approval_expired"
