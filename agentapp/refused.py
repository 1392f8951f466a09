"""How an action says that it was not done."""

from approvals.models import Approval


class Refused(Exception):
    """An action that was not done. Nothing has changed. `field` names the input at fault, if one is."""

    def __init__(self, code: str, message: str, field: str = "", approval: Approval | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.field, self.approval = code, message, field, approval
