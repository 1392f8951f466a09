"""What a channel is, what it is given to send, and how it reports a failure."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator

from approvals.models import Notification


class ChannelError(Exception):
    """A notification was not sent. `permanent`: trying again would not help."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class ChannelConfig(BaseModel):
    """What one kind needs to know, from the row's config. Whether the row is for individual people is known when it is
    read.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    for_people: ClassVar[bool] = False
    """Whether a channel of this kind can tell individual people."""

    @model_validator(mode="after")
    def _is_for_whom_it_can_be(self, info: ValidationInfo) -> Self:
        if is_personal(info) and not self.for_people:
            raise ValueError("a channel of this kind cannot be for individual people")
        return self


def is_personal(info: ValidationInfo) -> bool:
    """Whether the row being read is for individual people."""
    return bool((info.context or {}).get("personal"))


@dataclass(frozen=True)
class Message:
    """What is said about one request: plain text, and a link to the signed-in page. Nothing in it can decide."""

    notification: Notification
    title: str
    body: str
    link: str
    became: str = ""
    """What became of the request since. Empty: it still waits as it did."""
    over: bool = False
    """Whether the request no longer waits, so that the rest of the message is out of date."""
    to: str = ""
    """The name of the single person it is for, where the channel leads."""
    answers: str = ""
    """The receipt of the message that this one follows. Empty: it is the first, or changes the first."""


class Channel(Protocol):
    """A way to tell people. It leads them to the signed-in page; it shows no arguments and decides nothing."""

    config_model: ClassVar[type[ChannelConfig]]
    edits: ClassVar[bool]
    """Whether it can change what it has sent."""

    def __init__(self, config: Any) -> None: ...

    def send(self, message: Message) -> str:
        """Tell people, or raise ChannelError. Returns the service's name for the message, if it has one.

        May be called again after a successful send.
        """
        ...


class EditingChannel(Channel, Protocol):
    """A channel that can change what it has sent, as its `edits` says."""

    def edit(self, message: Message, receipt: str) -> None:
        """Replace the message with this receipt, or raise ChannelError."""
        ...
