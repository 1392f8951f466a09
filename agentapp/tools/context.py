"""What a tool is told besides its arguments, and what it raises when it stops or does not know the outcome."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from agentapp.messages import ToolSpec
from agentapp.tools.counting import Counter


class Cancelled(BaseException):
    """A tool stopped because it was told to, before it had its effect. Raised by `ToolContext.check`.

    Not an Exception, so that a tool that catches all exceptions does not catch this one.
    """


class OutcomeUnknown(Exception):
    """The tool asked for its effect but does not know whether it happened. A person must find out."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool is told besides its arguments. The model never sees it and cannot set it."""

    run_id: str
    step: int
    call_id: str
    agent: str
    conversation_id: str
    customer: str
    actor: str
    route: str
    idempotency_key: str
    deadline: datetime
    attempt: int = 1
    state: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    tools: tuple[ToolSpec, ...] = ()
    """What the model may use in this step."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when the run is cancelled or the deadline has passed: nobody is waiting for the call any more."""
    counter: Counter = field(default_factory=Counter, compare=False)
    make_receipt: Callable[[], str] = field(default=str, compare=False)

    def check(self) -> None:
        """Stop here if told to. For long-running tools, to call before they have had their effect."""
        if self.cancelled.is_set():
            raise Cancelled

    def approval_receipt(self) -> str:
        """The signed record of what people decided about this call, as carried by the header X-Approval-Receipt.

        Empty if no person was asked, or if this installation has no signing key.
        """
        return self.make_receipt()

    def count(self, kind: str, number: int = 1) -> None:
        """Count each thing about to be done, as in count("recipients"). Raises LimitReached beyond a limit."""
        self.counter.count(kind, number)
