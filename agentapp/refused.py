"""How an action says that it was not done."""

from collections.abc import Sequence
from typing import Self

from approvals.models import Approval
from approvals.standing import Refusal

_FORBIDDEN = (
    "customer_decides",
    "editor",
    "forbidden",
    "lender_barred",
    "needs_person",
    "not_the_customer",
    "not_yours",
    "reauthenticate",
    "signature",
    "starter",
    "took_over",
)
_CONFLICTS = (
    "action_changed",
    "already_answered",
    "already_asked",
    "already_decided",
    "already_engaged",
    "already_resolved",
    "already_revoked",
    "already_summarised",
    "cannot_try",
    "cannot_undo",
    "changed",
    "claimed",
    "conversation_changed",
    "conversation_exists",
    "decided_by_you",
    "decided_for_you",
    "erased",
    "expired",
    "mocked",
    "not_claimed",
    "not_covered",
    "not_ended",
    "not_paused",
    "not_signed",
    "not_taken_over",
    "not_under_way",
    "not_waiting",
    "part_of_a_run",
    "run_ended",
    "superseded",
    "taken_over",
    "too_late",
)
_STATUS = {
    **dict.fromkeys(_FORBIDDEN, 403),
    "not_found": 404,
    **dict.fromkeys(_CONFLICTS, 409),
    "too_many_comments": 429,
    "too_many_messages": 429,
    "too_many_runs": 429,
}


def status_of(code: str) -> int:
    """The HTTP status, on pages and in the API. 422: something in the input is wrong."""
    return _STATUS.get(code, 422)


class Refused(Exception):
    """An action that was not done. Nothing has changed. `field` names the input at fault, if there is one.

    With a conflict, `approval` or `version` gives the current state; the version is a conversation's. `wrong` lists
    every input at fault and what is wrong with it, if there may be several.
    """

    def __init__(
        self,
        code: str,
        message: str,
        field: str = "",
        approval: Approval | None = None,
        version: int | None = None,
        wrong: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.field, self.approval = code, message, field, approval
        self.version, self.wrong = version, wrong

    @classmethod
    def by(cls, refusal: Refusal, approval: Approval | None = None, *, field: str = "") -> Self:
        """From a refusal of `approvals`. `field`: the name of the input at fault here, if it differs."""
        return cls(refusal.code, refusal.message, field or refusal.field, approval)

    @classmethod
    def of_arguments(cls, wrong: Sequence[tuple[str, str]]) -> Self:
        field, sentence = wrong[0]
        return cls("invalid_arguments", sentence, field, wrong=wrong)

    @property
    def status(self) -> int:
        return status_of(self.code)
