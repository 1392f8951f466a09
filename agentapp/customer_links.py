"""The only writer of CustomerLink: how a customer without an account gets into their conversation.

A link is its row's key, signed: whoever has it speaks as the customer until it expires or is revoked.
"""

import uuid
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet

from agentapp.models import ApiToken, Conversation, CustomerLink, Run
from approvals import ledger, signed_texts
from approvals.clock import Now

_SALT = "agentapp.customer_links"


def make(
    conversation: Conversation, user: User, expires_at: datetime, actor: str, token: ApiToken | None = None
) -> CustomerLink:
    """A link into a conversation. What is said through it starts runs in the name of the person who made it.

    `token`: the token it was requested with.
    """
    with ledger.transaction():
        # The chain of the conversation is written under its lock.
        Conversation.objects.select_for_update().get(pk=conversation.pk)
        link = CustomerLink.objects.create(
            conversation=conversation, made_by=user, token=token, created_at=Now(), expires_at=expires_at
        )
        data = {"link": str(link.pk), "expires_at": expires_at.isoformat()}
        ledger.record(_chain(conversation.pk), "conversation.link_made", data, actor)
    return link


def revoke(link: CustomerLink, actor: str) -> bool:
    """End a link at once. False: it had already ended."""
    with ledger.transaction():
        Conversation.objects.select_for_update().get(pk=link.conversation_id)
        changed = CustomerLink.objects.filter(pk=link.pk, revoked_at__isnull=True).update(revoked_at=Now())
        if changed:
            data = {"link": str(link.pk)}
            ledger.record(_chain(link.conversation_id), "conversation.link_revoked", data, actor)
    return bool(changed)


def signed(link: CustomerLink) -> str:
    """The text in the address. It is stored nowhere."""
    return signed_texts.sign(link.pk.hex, _SALT)


def find(text: str) -> CustomerLink | None:
    """The link behind a signed text, whether or not it still opens anything. None: we did not sign this."""
    try:
        key = uuid.UUID(signed_texts.read(text, _SALT))
    except (signed_texts.BadSignature, ValueError, TypeError):
        return None
    rows = CustomerLink.objects.annotate(is_live=Exists(live().filter(pk=OuterRef("pk"))))
    return rows.select_related("conversation__agent", "made_by", "token").filter(pk=key).first()


def live() -> QuerySet[CustomerLink]:
    """The links that open their conversations now. Revoking a token ends the links made with it."""
    made_with = Q(token__isnull=True) | Q(token__revoked_at__isnull=True)
    links = CustomerLink.objects.filter(made_with, revoked_at__isnull=True, expires_at__gt=Now())
    return links.filter(made_by__is_active=True)


def is_live(link: CustomerLink) -> bool:
    """Whether a link opened anything when `find` read it."""
    return bool(link.is_live)  # type: ignore[attr-defined]


def reaches_customer(run: Run) -> bool:
    """Whether the customer of a run can be asked: a program speaks with them for us, or they have a link.

    A mocked run's customer always can: its eval answers.
    """
    if run.is_mocked:
        return bool(run.customer)
    if run.conversation_id is None:
        return False
    links = live().filter(conversation=OuterRef("pk"))
    return Conversation.objects.filter(Q(has_channel=True) | Exists(links), pk=run.conversation_id).exists()


def _chain(conversation_id: uuid.UUID) -> str:
    return f"conversation:{conversation_id}"
