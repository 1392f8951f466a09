"""Chat and push services, over Apprise: Slack, Teams, Mattermost, Telegram, ntfy and many more.

The address of such a service holds a token, so that it is a secret: it stands in the environment, and the row names it.
"""

import os
from typing import Annotated, ClassVar

from apprise import Apprise, NotifyType
from django.conf import settings
from django.template.loader import render_to_string
from pydantic import Field

from approvals import mail
from approvals.channels.base import ChannelConfig, ChannelError
from approvals.models import Notification

# As the credentials of tools.
PREFIX = "CREDENTIAL_"


class AppriseConfig(ChannelConfig):
    """The credential that holds the service's address, or several with spaces between them."""

    credential: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,79}$")]


class AppriseChannel:
    config_model: ClassVar[type[ChannelConfig]] = AppriseConfig

    def __init__(self, config: AppriseConfig) -> None:
        self.config = config

    def send(self, notification: Notification) -> None:
        """What Apprise says of a failure can quote the address, so that none of it is kept."""
        context = {
            "approval": notification.approval,
            "link": mail.link_to(notification.approval),
            "workspace": settings.WORKSPACE_NAME,
        }
        services = self._services()
        title = " ".join(render_to_string("notifications/chat_subject.txt", context).split())
        body = render_to_string("notifications/chat.txt", context).strip()
        try:
            # As it is: a name that looks like markup, or like an escape, is none.
            taken = services.notify(body=body, title=title, notify_type=NotifyType.INFO, interpret_escapes=False)
        except Exception as error:
            raise ChannelError(f"The service could not be asked ({type(error).__name__}).") from None
        if not taken:
            raise ChannelError("The service did not take it.")

    def _services(self) -> Apprise:
        name = f"{PREFIX}{self.config.credential}"
        addresses = os.environ.get(name, "").split()
        if not addresses:
            raise ChannelError(f"{name} is not set here, so nothing was sent. A person must set it.")
        services = Apprise()
        if not all(services.add(address) for address in addresses):
            raise ChannelError(f"{name} holds no address of a service that Apprise knows. Nothing was sent.")
        return services
