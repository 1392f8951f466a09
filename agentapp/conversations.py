"""The only writer of Conversation and Message."""

from django.db.models import Max

from agentapp.models import Agent, Conversation, Message, Run
from approvals.digest import storable


def find_or_open(agent: Agent, key: str, customer: str) -> Conversation:
    """The conversation of this agent under the name the outside gives it."""
    conversation, _ = Conversation.objects.get_or_create(agent=agent, key=key, defaults={"customer": customer})
    return conversation


def add(conversation: Conversation, run: Run, role: str, content: str) -> Message:
    """Append a message. The conversation's row is locked, so that places follow each other."""
    Conversation.objects.select_for_update().get(pk=conversation.pk)
    last = Message.objects.filter(conversation=conversation).aggregate(last=Max("seq"))["last"] or 0
    return Message.objects.create(
        conversation=conversation, run=run, seq=last + 1, role=role, content=storable(content)
    )
