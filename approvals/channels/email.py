"""Mail through Django's mailer. It names the tool and the request, never what the call would do or to whom."""

from typing import ClassVar, Self

from django.core.validators import validate_email
from pydantic import Field, field_validator, model_validator

from approvals import claims, mail
from approvals.channels.base import ChannelConfig, ChannelError
from approvals.models import Approval, Notification
from approvals.standing import may_decide


class EmailConfig(ChannelConfig):
    """Fixed addresses, everybody who may decide the request, or both."""

    to: list[str] = Field(default_factory=list, max_length=50)
    deciders: bool = False

    @field_validator("to")
    @classmethod
    def _are_addresses(cls, to: list[str]) -> list[str]:
        for address in to:
            try:
                validate_email(address)
            except Exception as error:
                raise ValueError(f"{address!r} is not an address") from error
        return to

    @model_validator(mode="after")
    def _tells_somebody(self) -> Self:
        if not self.to and not self.deciders:
            raise ValueError("name addresses in 'to', or set 'deciders' to true")
        return self


class EmailChannel:
    config_model: ClassVar[type[ChannelConfig]] = EmailConfig

    def __init__(self, config: EmailConfig) -> None:
        self.config = config

    def send(self, notification: Notification) -> None:
        approval = notification.approval
        deciders = _deciders(approval) if self.config.deciders else []
        if not self.config.to and not deciders:
            raise ChannelError("Nobody who may decide this has an address.", permanent=True)
        mail.send("approval", {"approval": approval, "link": mail.link_to(approval)}, self.config.to, deciders)


def _deciders(approval: Approval) -> list[str]:
    """The addresses of those who may decide this request now."""
    users = claims.deciders(approval).exclude(email="").order_by("pk")
    return [user.email for user in users if may_decide(user, approval) is None]
