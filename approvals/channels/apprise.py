"""Chat and push services, over Apprise: Slack, Teams, Mattermost, Telegram, ntfy and many more.

The address of such a service holds a token, so that it is a secret: it stands in the environment, and the row names it.
"""

from typing import ClassVar
from urllib.parse import quote

from apprise import Apprise, NotifyType

from approvals.channels import credentials
from approvals.channels.base import ChannelConfig, ChannelError, Message

# Where the address names the person, in a channel for single people.
PERSON = "{to}"


class AppriseConfig(ChannelConfig):
    """The credential that holds the service's address, or several with spaces between them."""

    for_people: ClassVar[bool] = True
    credential: credentials.CredentialName


class AppriseChannel:
    config_model: ClassVar[type[ChannelConfig]] = AppriseConfig
    edits: ClassVar[bool] = False

    def __init__(self, config: AppriseConfig) -> None:
        self.config = config

    def send(self, message: Message) -> str:
        """What Apprise says of a failure can quote the address, so that none of it is kept."""
        services = self._services(message.to)
        body = "\n".join(filter(None, (message.became, message.body, message.link)))
        try:
            # As it is: a name that looks like markup, or like an escape, is none.
            taken = services.notify(
                body=body, title=message.title, notify_type=NotifyType.INFO, interpret_escapes=False
            )
        except Exception as error:
            raise ChannelError(f"The service could not be asked ({type(error).__name__}).") from None
        if not taken:
            raise ChannelError("The service did not take it.")
        return ""

    def _services(self, to: str) -> Apprise:
        name = f"{credentials.PREFIX}{self.config.credential}"
        address = credentials.read(self.config.credential)
        if to and PERSON not in address:
            raise ChannelError(f"{name} has no {PERSON} in its address, so that nobody is named. Nothing was sent.")
        if not to and PERSON in address:
            raise ChannelError(f"{name} holds an address for single people. Nothing was sent.", permanent=True)
        services = Apprise()
        if not all(services.add(each.replace(PERSON, quote(to, safe=""))) for each in address.split()):
            raise ChannelError(f"{name} holds no address of a service that Apprise knows. Nothing was sent.")
        return services
