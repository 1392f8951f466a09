"""Mail through Django's mailer. It names the tool and the request, but never what the call would do or to whom."""

from typing import ClassVar, Self

from django.core.validators import validate_email
from pydantic import Field, field_validator, model_validator

from approvals import entitlement, mail, outcomes
from approvals.channels.base import ChannelConfig, ChannelError, Message
from approvals.models import Approval
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
    edits: ClassVar[bool] = False

    def __init__(self, config: EmailConfig) -> None:
        self.config = config

    def send(self, message: Message) -> str:
        approval = message.notification.approval
        deciders = _deciders(approval, bool(message.became)) if self.config.deciders else []
        if not self.config.to and not deciders:
            who = "Not sent: nobody else" if message.became else "Nobody"
            raise ChannelError(f"{who} who may decide this has an email address.", permanent=True)
        context = {"approval": approval, "link": message.link, "became": message.became}
        thread = mail.Thread(mail.own_id(message.notification.pk), message.answers, "approval")
        template = "became" if message.became else "approval"
        return mail.send(template, context, self.config.to, deciders, thread)


def _deciders(approval: Approval, without_those_who_did: bool) -> list[str]:
    """The addresses of people who may decide this request now. People are not told of their own decisions."""
    users = entitlement.deciders_of(approval).exclude(email="").order_by("pk")
    if without_those_who_did:
        users = users.exclude(pk__in=outcomes.deciders(approval))
    return [user.email for user in users if may_decide(user, approval) is None]
