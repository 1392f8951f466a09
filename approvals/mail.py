"""Mail through Django's mailer, with the two ways it can fail: for now, and for good."""

import smtplib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string

from approvals import lens
from approvals.channels.base import ChannelError
from approvals.models import Approval
from approvals.visible import visible


@dataclass(frozen=True)
class Thread:
    """A mail's Message-ID, the one it answers, and the template whose subject it then repeats."""

    id: str = ""
    answers: str = ""
    subject: str = ""


def link_to(approval: Approval) -> str:
    """The page where a signed-in person decides the request."""
    return f"{settings.BASE_URL}/approvals/{approval.pk}/"


def inbox() -> str:
    """The page where a signed-in person finds waiting requests."""
    return f"{settings.BASE_URL}/inbox/"


def own_id(key: uuid.UUID | str) -> str:
    """The Message-ID of what is sent under this key: the same in each attempt, so that one mail stays one."""
    return f"<{key}@{urlsplit(settings.BASE_URL).hostname or 'countersign'}>"


def send(
    template: str, context: dict[str, Any], to: Sequence[str], bcc: Sequence[str] = (), thread: Thread | None = None
) -> str:
    """Send the two templates of this name as subject and body. Returns the Message-ID. Raises ChannelError."""
    context = {"workspace": settings.WORKSPACE_NAME, **context}
    thread = thread or Thread()
    answers = thread.answers if thread.subject else ""
    subject = line(f"{thread.subject if answers else template}_subject", context)
    headers = {"Auto-Submitted": "auto-generated"}
    if thread.id:
        headers["Message-ID"] = thread.id
    if answers:
        headers |= {"In-Reply-To": answers, "References": answers}
    message = EmailMessage(
        subject=f"Re: {subject}" if answers else subject,
        body=_outside(render_to_string(f"notifications/{template}.txt", context), context),
        to=to,
        bcc=bcc,
        headers=headers,
    )
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as error:
        raise ChannelError(f"Every address was refused: {error}", permanent=_all_permanent(error)) from error
    except (smtplib.SMTPException, OSError) as error:
        raise ChannelError(f"The mail server did not accept the message: {error}") from error
    return thread.id


def line(template: str, context: dict[str, Any]) -> str:
    """A template as one line. A line break in a name would start another header."""
    return " ".join(_outside(render_to_string(f"notifications/{template}.txt", context), context).split())


def _outside(text: str, context: dict[str, Any]) -> str:
    """What is said about requests outside the console. People who may see personal data see it there, signed in.

    Hidden and reordering characters are made visible, as they are there.
    """
    about = [*context.values(), *(value for item in context.get("items", ()) for value in item.values())]
    rows = [each for each in about if isinstance(each, Approval)]
    return visible(lens.told(text, rows) if rows else text)


def _all_permanent(error: smtplib.SMTPRecipientsRefused) -> bool:
    return all(code >= 500 for code, _ in error.recipients.values())
