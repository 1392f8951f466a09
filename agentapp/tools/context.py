"""What a tool is told beside its arguments, and what it raises when it stops or does not know."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from agentapp.messages import ToolSpec
from agentapp.tools.counting import Counter


class Cancelled(BaseException):
    """A tool has stopped because it was told to, and has not had its effect. Raised by `ToolContext.check`.

    Not an Exception, so that a tool that catches whatever goes wrong does not catch this.
    """


class OutcomeUnknown(Exception):
    """The tool asked for its effect and does not know whether it happened. A person finds out."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool is told beside its arguments. The model never sees it and cannot set it."""

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
    """Set when the run is cancelled or the deadline has passed: nobody waits for the call any more."""
    counter: Counter = field(default_factory=Counter, compare=False)
    make_receipt: Callable[[], str] = field(default=str, compare=False)

    def check(self) -> None:
        """Stop here if told to. For a tool at work on something long, before it has had its effect."""
        if self.cancelled.is_set():
            raise Cancelled

    def approval_receipt(self) -> str:
        """What people have decided about this call, signed, as the header X-Approval-Receipt carries it.

        Empty where no person was asked, and where this installation has no key to sign with.
        """
        return self.make_receipt()

    def count(self, kind: str, number: int = 1) -> None:
        """Say what is about to be done, as in count("recipients"), before each. Raises LimitReached beyond a limit."""
        self.counter.count(kind, number)
