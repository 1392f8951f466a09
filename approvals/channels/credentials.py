"""Secrets of channels: they stand in the environment of the workers, and a row names them."""

import os
from typing import Annotated

from pydantic import Field

from approvals.channels.base import ChannelError

# As the credentials of tools.
PREFIX = "CREDENTIAL_"
type CredentialName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,79}$")]


def read(credential: str) -> str:
    """What the environment holds under this name. Raises ChannelError: a person must set it, and then it is sent."""
    name = f"{PREFIX}{credential}"
    found = os.environ.get(name, "").strip()
    if not found:
        raise ChannelError(f"{name} is not set here, so nothing was sent. A person must set it.")
    return found
