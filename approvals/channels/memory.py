"""A channel that tells nobody and keeps the messages: for tests, and for trying a setup without sending."""

from collections import deque
from typing import ClassVar, Literal

from approvals.channels.base import ChannelConfig, ChannelError, Message
from approvals.models import Notification

# The last messages this process sent, oldest first.
outbox: deque[Notification] = deque(maxlen=1000)


class MemoryConfig(ChannelConfig):
    """`fails` makes every send fail, for now or for good."""

    fails: Literal["", "for_now", "for_good"] = ""


class MemoryChannel:
    config_model: ClassVar[type[ChannelConfig]] = MemoryConfig
    edits: ClassVar[bool] = False

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config

    def send(self, message: Message) -> str:
        if self.config.fails:
            raise ChannelError("This channel is set to fail.", permanent=self.config.fails == "for_good")
        outbox.append(message.notification)
        return str(message.notification.pk)
