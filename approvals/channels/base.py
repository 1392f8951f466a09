"""What a channel is, what it is given to say, and how it says that it could not."""

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
    """What one kind needs to know, as it stands in the row's config. It is read knowing whom the row is for."""

    model_config = ConfigDict(extra="forbid", strict=True)
    for_people: ClassVar[bool] = False
    """Whether a channel of this kind can tell single people."""

    @model_validator(mode="after")
    def _is_for_whom_it_can_be(self, info: ValidationInfo) -> Self:
        if is_personal(info) and not self.for_people:
            raise ValueError("a channel of this kind cannot be for single people")
        return self


def is_personal(info: ValidationInfo) -> bool:
    """Whether the row that is read is for single people."""
    return bool((info.context or {}).get("personal"))


@dataclass(frozen=True)
class Message:
    """What is said of one request: plain text, and a link to the signed-in page. Nothing of it decides."""

    notification: Notification
    title: str
    body: str
    link: str
    became: str = ""
    """What became of the request since. Empty: it waits, as it did."""
    over: bool = False
    """Whether it waits no longer, so that the rest of the message is no longer so."""
    to: str = ""
    """The name of the one person it is for, where the channel leads to."""
    answers: str = ""
    """By what name the message is known that it comes after. Empty: it is the first, or changes the first."""


class Channel(Protocol):
    """A way to tell people. It leads them to the signed-in page; it shows no arguments and decides nothing."""

    config_model: ClassVar[type[ChannelConfig]]
    edits: ClassVar[bool]
    """Whether it can change what it has sent."""

    def __init__(self, config: Any) -> None: ...

    def send(self, message: Message) -> str:
        """Tell people, or raise ChannelError. Returns by what name the message is known there, if by any.

        May be called again after it did send.
        """
        ...


class EditingChannel(Channel, Protocol):
    """One that can change what it has sent, as its `edits` says."""

    def edit(self, message: Message, receipt: str) -> None:
        """Let the message of this receipt say this instead, or raise ChannelError."""
        ...
