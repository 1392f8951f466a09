"""Chat and push services, over Apprise: Slack, Teams, Mattermost, Telegram, ntfy and many more.

The address of such a service holds a token, so that it is a secret: it stands in the environment, and the row names it.
Nothing that is said is read as markup: what a service would read is escaped before it gets it.
"""

import re
from typing import Any, ClassVar
from urllib.parse import quote

from apprise import Apprise, NotifyFormat, NotifyType

from approvals.channels import credentials
from approvals.channels.base import ChannelConfig, ChannelError, Message

# Where the address names the person, in a channel for single people.
PERSON = "{to}"
# Read Markdown in what Apprise hands over as plain text.
_MARKDOWN_ALWAYS = frozenset({"Discord", "Fluxer", "Guilded", "Mattermost", "Ryver", "Zulip"})
_MARKS = re.compile(r"([\\`*_\[\]<>~|])")


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
        services = list(self._services(message.to))
        marked = [service for service in services if _reads_markdown(service)]
        plain = [service for service in services if service not in marked]
        words = "\n".join(filter(None, (message.became, message.body)))
        try:
            taken = [
                _tell(plain, message.title, words, message.link, NotifyFormat.TEXT),
                # The link stays as it is: Apprise would escape that, too.
                _tell(marked, _literal(message.title), _literal(words), message.link, NotifyFormat.MARKDOWN),
            ]
        except Exception as error:
            raise ChannelError(f"The service could not be asked ({type(error).__name__}).") from None
        if not all(taken):
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


def _tell(services: list[Any], title: str, words: str, link: str, format: NotifyFormat) -> bool:
    if not services:
        return True
    told = Apprise()
    told.add(services)
    # A name that looks like an escape is none.
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
    """As Markdown that reads as the text does: without links, styles or HTML, and nobody is called by a name in it."""
    return _MARKS.sub(r"\\\1", text).replace("@", "@\u200b")
