"""How people are told, one file per kind. Rows choose a kind by name; this module maps the name to its code."""

from typing import Any, cast

from django.utils.module_loading import import_string

from approvals import models
from approvals.channels.base import Channel, EditingChannel

CHANNELS: dict[str, str] = {
    "apprise": "approvals.channels.apprise.AppriseChannel",
    "email": "approvals.channels.email.EmailChannel",
    "memory": "approvals.channels.memory.MemoryChannel",
    "slack": "approvals.channels.slack.SlackChannel",
}


def kind_of(name: str) -> type[Channel]:
    """The class of a kind. Raises LookupError, naming the known kinds."""
    if name not in CHANNELS:
        raise LookupError(f"There is no channel kind {name!r}. Known kinds: {', '.join(sorted(CHANNELS))}.")
    kind: type[Channel] = import_string(CHANNELS[name])
    return kind


def open_channel(row: models.Channel) -> Channel:
    """The channel that a row describes, ready to send. Raises LookupError or pydantic.ValidationError."""
    return make(row.kind, row.config, row.personal)


def make(kind: str, config: Any, personal: bool = False) -> Channel:
    """A channel of this kind, for individual people if `personal`.

    Raises LookupError for an unknown kind, pydantic.ValidationError for a bad config.
    """
    channel = kind_of(kind)
    return channel(channel.config_model.model_validate(config, context={"personal": personal}))


def open_editing(row: models.Channel) -> EditingChannel:
    """The same, for a kind that can change what it has sent: see `edits`."""
    channel = open_channel(row)
    assert channel.edits
    return cast(EditingChannel, channel)


def edits(kind: str | None) -> bool:
    """Whether channels of this kind can change what they have sent."""
    return kind in CHANNELS and kind_of(str(kind)).edits


def editing() -> list[str]:
    """The kinds that can change what they have sent."""
    return [kind for kind in CHANNELS if edits(kind)]
