"""Secrets of channels: kept in the workers' environment or in files it names. A row gives their names."""

from typing import Annotated

from pydantic import Field

from approvals.channels.base import ChannelError
from approvals.referenced import Unreadable, secret

# The same as for the credentials of tools.
PREFIX = "CREDENTIAL_"
type CredentialName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,79}$")]


def read(credential: str) -> str:
    """The secret with this name. Raises ChannelError if a person must set it first; the message is then sent later."""
    name = f"{PREFIX}{credential}"
    try:
        found = secret(name)
    except Unreadable as error:
        raise ChannelError(f"{error} Nothing was sent; a person must set it.") from error
    if not found:
        raise ChannelError(f"{name} is not set here, so nothing was sent. A person must set it.")
    return found
