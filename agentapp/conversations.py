"""The only writer of Conversation and Message."""

import uuid

from django.db.models import F, Max

from agentapp.models import Agent, Conversation, Message, Run
from approvals import ledger
from approvals.digest import storable


class Changed(Exception):
    """Something was said since the writer looked. `version` is the one that counts now."""

    def __init__(self, version: int) -> None:
        super().__init__(f"The conversation is at version {version}.")
        self.version = version


class NoSuchPlace(Exception):
    """A place that the conversation does not have, or that is behind one it has passed."""


def chain(conversation_id: uuid.UUID) -> str:
    """The chain of what happens to a conversation outside of its runs."""
    return f"conversation:{conversation_id}"


def find_or_open(agent: Agent, key: str, customer: str) -> Conversation:
    """The conversation of this agent under the name the outside gives it."""
    conversation, _ = Conversation.objects.get_or_create(agent=agent, key=key, defaults={"customer": customer})
    return conversation


def lock(conversation: Conversation, expected_version: int | None = None) -> Conversation:
    """The row, locked until the transaction ends. Who locks runs as well locks them first.

    Raises Changed unless the conversation is at the expected version; None expects nothing.
    """
    locked = Conversation.objects.select_for_update().get(pk=conversation.pk)
    if expected_version is not None and locked.version != expected_version:
        raise Changed(locked.version)
    return locked


def add(conversation: Conversation, run: Run, role: str, content: str, expected_version: int | None = None) -> Message:
    """Append a message. The conversation's row is locked, so that places follow each other. Raises Changed."""
    lock(conversation, expected_version)
    message = Message.objects.create(
        conversation=conversation, run=run, seq=_last(conversation) + 1, role=role, content=storable(content)
    )
    Conversation.objects.filter(pk=conversation.pk).update(version=F("version") + 1)
    return message


def summarise(conversation: Conversation, text: str, until: int, actor: str = ledger.SYSTEM) -> None:
    """Keep a summary of the messages up to a place, for the compiler that sends it in their stead.

    Nothing is said by it, so the version stays. Raises NoSuchPlace for a place behind the last message,
    or before the end of the summary there is.
    """
    with ledger.transaction():
        locked = lock(conversation)
        if not max(1, locked.summary_until) <= until <= _last(locked):
            raise NoSuchPlace(f"There is no message {until} to summarise up to.")
        Conversation.objects.filter(pk=locked.pk).update(summary=storable(text), summary_until=until)
        ledger.record(chain(locked.pk), "conversation.summarised", {"until": until}, actor)


def fork(conversation: Conversation, upto_seq: int | None, key: str, actor: str = ledger.SYSTEM) -> Conversation:
    """A new conversation that begins with the messages up to a place; None: with all of them.

    The copies name the runs they come from, so who may see one may see the other. Raises NoSuchPlace,
    and IntegrityError when the agent has a conversation of that key.
    """
    with ledger.transaction():
        source = lock(conversation)
        place = _last(source) if upto_seq is None else upto_seq
        said = list(source.messages.filter(seq__lte=place).order_by("seq"))
        if not said or said[-1].seq != place:
            raise NoSuchPlace(f"There is no message {place} to fork at.")
        summed_up = 0 < source.summary_until <= place
        forked = Conversation.objects.create(
            agent=source.agent, key=storable(key), customer=source.customer, forked_from=source, version=len(said),
            summary=source.summary if summed_up else "", summary_until=source.summary_until if summed_up else 0,
        )  # fmt: skip
        Message.objects.bulk_create(
            Message(conversation=forked, run_id=m.run_id, seq=m.seq, role=m.role, content=m.content) for m in said
        )
        facts = {"from": str(source.pk), "upto": place, "key": forked.key}
        ledger.record(chain(forked.pk), "conversation.forked", facts, actor)
    return forked


def _last(conversation: Conversation) -> int:
    """The place of the last message; 0 when nothing was said."""
    return Message.objects.filter(conversation=conversation).aggregate(last=Max("seq"))["last"] or 0
