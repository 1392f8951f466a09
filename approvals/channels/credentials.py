"""Secrets of channels: they stand in the environment of the workers or in files it names, and a row names them."""

from typing import Annotated

from pydantic import Field

from approvals.channels.base import ChannelError
from approvals.referenced import Unreadable, secret

# As the credentials of tools.
PREFIX = "CREDENTIAL_"
type CredentialName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,79}$")]


def read(credential: str) -> str:
    """What the environment holds under this name. Raises ChannelError: a person must set it, and then it is sent."""
    name = f"{PREFIX}{credential}"
    try:
        found = secret(name)
    except Unreadable as error:
        raise ChannelError(f"{error} Nothing was sent; a person must set it.") from error
    if not found:
        raise ChannelError(f"{name} is not set here, so nothing was sent. A person must set it.")
    return found
