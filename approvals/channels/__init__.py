"""How people are told, a file per kind. Rows choose a kind by name; the code behind the name is chosen here."""

from typing import Any

from django.utils.module_loading import import_string

from approvals import models
from approvals.channels.base import Channel

CHANNELS: dict[str, str] = {
    "apprise": "approvals.channels.apprise.AppriseChannel",
    "email": "approvals.channels.email.EmailChannel",
    "memory": "approvals.channels.memory.MemoryChannel",
}


def kind_of(name: str) -> type[Channel]:
    """The class behind a kind. Raises LookupError, naming those there are."""
    if name not in CHANNELS:
        raise LookupError(f"There is no channel kind {name!r}. Known kinds: {', '.join(sorted(CHANNELS))}.")
    kind: type[Channel] = import_string(CHANNELS[name])
    return kind


def open_channel(row: models.Channel) -> Channel:
    """The channel a row describes, ready to send. Raises LookupError, or pydantic.ValidationError."""
    return make(row.kind, row.config)


def make(kind: str, config: Any) -> Channel:
    """A channel of this kind. Raises LookupError for an unknown kind, pydantic.ValidationError for a bad config."""
    channel = kind_of(kind)
    return channel(channel.config_model.model_validate(config))
