"""What a channel is, and how it says that it could not send."""

from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from approvals.models import Notification


class ChannelError(Exception):
    """A notification was not sent. `permanent`: trying again would not help."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class ChannelConfig(BaseModel):
    """What one kind needs to know, as it stands in the row's config."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Channel(Protocol):
    """A way to tell people. It leads them to the signed-in page; it shows no arguments and decides nothing."""

    config_model: ClassVar[type[ChannelConfig]]

    def __init__(self, config: Any) -> None: ...

    def send(self, notification: Notification) -> None:
        """Tell people of one request, or raise ChannelError. May be called again after it did send."""
        ...
