"""Mail through Django's mailer, with the two ways it can fail: for now, and for good."""

import smtplib
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string

from approvals.channels.base import ChannelError
from approvals.models import Approval


def link_to(approval: Approval) -> str:
    """Where the request is decided, by somebody who is signed in."""
    return f"{settings.BASE_URL}/approvals/{approval.pk}/"


def send(template: str, context: dict[str, Any], to: Sequence[str], bcc: Sequence[str] = ()) -> None:
    """Send the two templates of this name as subject and body. Raises ChannelError."""
    context = {"workspace": settings.WORKSPACE_NAME, **context}
    message = EmailMessage(
        # A line break in a name would start another header.
        subject=" ".join(render_to_string(f"notifications/{template}_subject.txt", context).split()),
        body=render_to_string(f"notifications/{template}.txt", context),
        to=to,
        bcc=bcc,
        headers={"Auto-Submitted": "auto-generated"},
    )
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as error:
        raise ChannelError(f"Every address was refused: {error}", permanent=_all_permanent(error)) from error
    except (smtplib.SMTPException, OSError) as error:
        raise ChannelError(f"The mail server did not take it: {error}") from error


def _all_permanent(error: smtplib.SMTPRecipientsRefused) -> bool:
    return all(code >= 500 for code, _ in error.recipients.values())
