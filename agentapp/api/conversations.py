"""Conversations: read what was said, fork at a message, summarise the first messages."""

import uuid
from datetime import datetime
from typing import Annotated

from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agentapp import actions, auth
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import not_found, problems
from agentapp.api.paging import MAX_LIMIT, Parameters
from agentapp.api.runs import person_out
from agentapp.api.tool_executions import Person
from agentapp.models import Conversation, Message

router = Router(tags=["Conversations"])

# The largest `seq` that either database can store.
MAX_SEQ = 2**31 - 1


class MessageOut(BaseModel):
    """What a customer or the agent said. `seq` is its position."""

    seq: int
    role: str = Field(description="`user` or `assistant`.")
    content: str
    run: uuid.UUID | None = Field(description="The run that it started, is about, or is the answer of.")
    author: Person | None = Field(description="The person who wrote it in the agent's place.")
    created_at: datetime


class ConversationOut(BaseModel):
    """A dialogue, with the messages of the runs that the token's person may see, oldest first."""

    id: uuid.UUID
    key: str
    agent: str
    customer: str | None
    mode: str = Field(description="`auto`, or `manual` while a person has taken over.")
    version: int = Field(description="Grows with every message. Send it with `POST /runs` to say what you have read.")
    summary: str | None = Field(description="Of the messages up to `summary_until`. Null unless you may see them all.")
    summary_until: int
    forked_from: uuid.UUID | None
    created_at: datetime
    messages: list[MessageOut]
    next: int | None = Field(description="`after` for the next page. Null if this is the last.")


class MessageListing(Parameters):
    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = Field(default=0, description="Only messages after this `seq`.")
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many messages a page holds.")] = MAX_LIMIT


class ConversationForkIn(BaseModel):
    """Where to fork a conversation."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"key": "ticket-5521-b", "upto": 4}]})

    key: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)] = Field(
        description="Your name for the new dialogue."
    )
    upto: Annotated[int, Field(strict=True, ge=1, le=MAX_SEQ)] | None = Field(
        default=None, description="`seq` of the last message to copy. Default: all of them."
    )


class SummaryIn(BaseModel):
    """What was said up to a message, in fewer words."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"summary": "The kettle arrived broken; Ana wants her money back.", "until": 4}]
        },
    )

    summary: Annotated[str, StringConstraints(strict=True, max_length=actions.MAX_INPUT_CHARS)] = Field(
        description="For models to read. They are told that it is data."
    )
    until: Annotated[int, Field(strict=True, ge=1, le=MAX_SEQ)] = Field(
        description="`seq` of the last message it covers; not lower than that of the current summary."
    )
    conversation_version: Annotated[int, Field(strict=True, ge=0, le=MAX_SEQ)] | None = Field(
        default=None, description="The `version` you have read. If anything was said since, the summary is refused."
    )


@router.get(
    "/conversations/{conversation_id}",
    auth=Bearer("runs:read"),
    response={200: ConversationOut, **problems(404, 422)},
    operation_id="get_conversation",
    summary="Read a conversation",
)
def get_conversation(
    request: ApiRequest, conversation_id: uuid.UUID, listing: Query[MessageListing]
) -> ConversationOut:
    """Reading changes nothing, not even `version`."""
    conversation = auth.visible_conversations(person(request)).filter(pk=conversation_id).first()
    if conversation is None:
        raise not_found()
    return _shown(request, conversation, listing)


@router.post(
    "/conversations/{conversation_id}/fork",
    auth=Bearer("runs:create"),
    response={201: ConversationOut, **problems(400, 404, 409, 413, 415, 422)},
    operation_id="fork_conversation",
    summary="Fork a conversation",
)
def fork_conversation(
    request: ApiRequest, conversation_id: uuid.UUID, body: ConversationForkIn
) -> Status[ConversationOut]:
    """Makes a new conversation with the same agent that begins with the messages up to `upto`. The old one stays as it
    is; start runs in the new one by its `key`.
    """
    forked = actions.fork_conversation(conversation_id, body.upto, body.key, person(request))
    return Status(201, _shown(request, forked, MessageListing.model_construct()))


@router.post(
    "/conversations/{conversation_id}/summary",
    auth=Bearer("runs:create"),
    response={200: ConversationOut, **problems(400, 404, 409, 413, 415, 422)},
    operation_id="summarise_conversation",
    summary="Summarise a conversation",
)
def summarise_conversation(request: ApiRequest, conversation_id: uuid.UUID, body: SummaryIn) -> ConversationOut:
    """Keeps a summary of the messages up to `until`. Agents with the compiler `sections` are sent it instead of them.
    The messages and `version` stay the same. Sending the same summary again changes nothing.
    """
    summarised = actions.summarise_conversation(
        conversation_id, body.summary, body.until, person(request), body.conversation_version, request.auth
    )
    return _shown(request, summarised, MessageListing.model_construct())


def _shown(request: ApiRequest, conversation: Conversation, listing: MessageListing) -> ConversationOut:
    user = person(request)
    rows = auth.visible_messages(user).filter(conversation=conversation, seq__gt=listing.after).order_by("seq")
    rows = rows.select_related("author")
    found = list(rows[: listing.limit + 1])
    more = len(found) > listing.limit
    found = found[: listing.limit]
    sees_all = auth.may_join(user, conversation)
    return ConversationOut(
        id=conversation.pk,
        key=conversation.key,
        agent=conversation.agent.name,
        customer=conversation.customer or None,
        mode=conversation.mode,
        version=conversation.version,
        summary=(conversation.summary if sees_all else "") or None,
        summary_until=conversation.summary_until if sees_all else 0,
        forked_from=conversation.forked_from_id,
        created_at=conversation.created_at,
        messages=[message_out(message) for message in found],
        next=found[-1].seq if more else None,
    )


def message_out(message: Message) -> MessageOut:
    return MessageOut(
        seq=message.seq,
        role=message.role,
        content=message.content,
        run=message.run_id,
        author=person_out(message.author),
        created_at=message.created_at,
    )
