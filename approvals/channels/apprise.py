"""Chat and push services, through Apprise: Slack, Teams, Mattermost, Telegram, ntfy and many more.

A service's address contains a token, so it is a secret: it is kept in the environment, and the row names it. Nothing in
a message is read as markup: whatever the service would interpret is escaped first.
"""

import re
from typing import Any, ClassVar
from urllib.parse import quote

from apprise import Apprise, NotifyFormat, NotifyType

from approvals.channels import credentials
from approvals.channels.base import ChannelConfig, ChannelError, Message

# Where the address names the person, in a channel for individual people.
PERSON = "{to}"
# Services that read Markdown in what Apprise hands over as plain text.
_MARKDOWN_ALWAYS = frozenset({"Discord", "Fluxer", "Guilded", "Mattermost", "Ryver", "Zulip"})
_MARKS = re.compile(r"([\\`*_\[\]<>~|])")


class AppriseConfig(ChannelConfig):
    """The credential that holds the service's address, or several addresses separated by spaces."""

    for_people: ClassVar[bool] = True
    credential: credentials.CredentialName


class AppriseChannel:
    config_model: ClassVar[type[ChannelConfig]] = AppriseConfig
    edits: ClassVar[bool] = False

    def __init__(self, config: AppriseConfig) -> None:
        self.config = config

    def send(self, message: Message) -> str:
        """Apprise's error messages can quote the address, so none of them is kept."""
        services = list(self._services(message.to))
        marked = [service for service in services if _reads_markdown(service)]
        plain = [service for service in services if service not in marked]
        words = "\n".join(filter(None, (message.became, message.body)))
        try:
            taken = [
                _tell(plain, message.title, words, message.link, NotifyFormat.TEXT),
                # The link stays as it is: Apprise would escape it too.
                _tell(marked, _literal(message.title), _literal(words), message.link, NotifyFormat.MARKDOWN),
            ]
        except Exception as error:
            raise ChannelError(f"The service could not be reached ({type(error).__name__}).") from None
        if not all(taken):
            raise ChannelError("The service did not accept the message.")
        return ""

    def _services(self, to: str) -> Apprise:
        name = f"{credentials.PREFIX}{self.config.credential}"
        address = credentials.read(self.config.credential)
        if to and PERSON not in address:
            raise ChannelError(f"{name} has no {PERSON} in its address, so it names nobody. Nothing was sent.")
        if not to and PERSON in address:
            raise ChannelError(f"{name} holds an address for individual people. Nothing was sent.", permanent=True)
        services = Apprise()
        if not all(services.add(each.replace(PERSON, quote(to, safe=""))) for each in address.split()):
            raise ChannelError(f"{name} holds no address that Apprise knows. Nothing was sent.")
        return services


def _tell(services: list[Any], title: str, words: str, link: str, format: NotifyFormat) -> bool:
    if not services:
        return True
    told = Apprise()
    told.add(services)
    # A name that looks like an escape is not one.
    return bool(
        told.notify(
            body=f"{words}\n{link}",
            title=title,
            notify_type=NotifyType.INFO,
            body_format=format,
            interpret_escapes=False,
        )
    )


def _reads_markdown(service: Any) -> bool:
    format = service.resolve_format(NotifyFormat.TEXT)
    return format == NotifyFormat.MARKDOWN or str(service.service_name) in _MARKDOWN_ALWAYS


def _literal(text: str) -> str:
    """The text as Markdown that looks the same: no links, styles or HTML, and no name in it mentions anybody."""
    return _MARKS.sub(r"\\\1", text).replace("@", "@\u200b")
