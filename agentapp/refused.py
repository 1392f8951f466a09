"""How an action says that it was not done."""

from approvals.models import Approval


class Refused(Exception):
    """An action that was not done. Nothing has changed. `field` names the input at fault, if one is.

    With a conflict, `approval` or `version` says where things stand; the version is a conversation's.
    """

    def __init__(
        self, code: str, message: str, field: str = "", approval: Approval | None = None, version: int | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.field, self.approval = code, message, field, approval
        self.version = version
