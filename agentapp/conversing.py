"""What people do with a conversation besides speaking in it: fork it, and summarise it."""

import uuid

from django.contrib.auth.models import User
from django.db import IntegrityError

from agentapp import auth, conversations
from agentapp.models import ApiToken, Conversation
from agentapp.refused import Refused
from agentapp.takeover import changed_meanwhile
from approvals import ledger

MAX_SUMMARY_CHARS = 100_000


def fork_conversation(conversation_id: uuid.UUID, upto: int | None, key: str, user: User) -> Conversation:
    """Begin a new conversation, under another key, from one of the messages of this one. None: from the last."""
    source = _conversation(conversation_id, user, "Forking")
    if not key.strip():
        raise Refused("invalid", "The new conversation needs a name.", "key")
    try:
        return conversations.fork(source, upto, key, ledger.actor_of(user))
    except conversations.NoSuchPlace as error:
        raise Refused("invalid", str(error), "upto") from error
    except IntegrityError as error:
        raise Refused("conversation_exists", f"The agent already has a conversation named {key!r}.", "key") from error


def summarise_conversation(
    conversation_id: uuid.UUID, summary: str, until: int, user: User, expected_version: int | None = None,
    token: ApiToken | None = None,
) -> Conversation:  # fmt: skip
    """Keep a summary of a conversation's messages up to a place. Agents that are sent summaries read it instead.

    `expected_version` is the one the summary's writer has read. None: any version will do.
    """
    conversation = _conversation(conversation_id, user, "Summarising")
    if not summary.strip():
        raise Refused("message_required", "Write the summary.", "summary")
    if len(summary) > MAX_SUMMARY_CHARS:
        raise Refused("invalid", f"The summary is longer than {MAX_SUMMARY_CHARS} characters.", "summary")
    try:
        conversations.summarise(conversation, summary, until, user, expected_version, token)
    except conversations.Changed as changed:
        raise changed_meanwhile(changed) from changed
    except conversations.AlreadySummarised as error:
        raise Refused("already_summarised", f"{error} Read the conversation again.", "until") from error
    except conversations.NoSuchPlace as error:
        raise Refused("invalid", str(error), "until") from error
    conversation.refresh_from_db()
    return conversation


def _conversation(conversation_id: uuid.UUID, user: User, what: str) -> Conversation:
    """A conversation in which this person may start runs, and so may see all that was said."""
    found = auth.visible_conversations(user).filter(pk=conversation_id).first()
    if found is None:
        raise Refused("not_found", "There is no such conversation.")
    if not auth.may_start(user) or not auth.may_join(user, found):
        raise Refused("forbidden", f"{what} needs the right to start runs in this conversation.")
    return found
