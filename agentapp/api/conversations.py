"""Conversations: read what was said, begin anew from one of its messages, sum up the first of them."""

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

# The largest place a message can have in either database.
MAX_SEQ = 2**31 - 1


class MessageOut(BaseModel):
    """What a customer or the agent said. `seq` is its place."""

    seq: int
    role: str = Field(description="`user` or `assistant`.")
    content: str
    run: uuid.UUID | None = Field(description="The run it started or is about, or whose answer it is.")
    author: Person | None = Field(description="The person who wrote it in the agent's place.")
    created_at: datetime


class ConversationOut(BaseModel):
    """A dialogue, with the messages of the runs the token's person may see, oldest first."""

    id: uuid.UUID
    key: str
    agent: str
    customer: str | None
    mode: str = Field(description="`auto`; or `manual`, while a person has taken over.")
    version: int = Field(description="Grows with every message. Sent with `POST /runs`, it says what you have read.")
    summary: str | None = Field(description="Of the messages up to `summary_until`, for whoever may see all of them.")
    summary_until: int
    forked_from: uuid.UUID | None
    created_at: datetime
    messages: list[MessageOut]
    next: int | None = Field(description="`after` of the next page. Null when the conversation ends here.")


class MessageListing(Parameters):
    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = Field(default=0, description="Only messages past this `seq`.")
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many messages a page holds.")] = MAX_LIMIT


class ConversationForkIn(BaseModel):
    """Where a conversation begins anew."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"key": "ticket-5521-b", "upto": 4}]})

    key: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)] = Field(
        description="Your name for the new dialogue."
    )
    upto: Annotated[int, Field(strict=True, ge=1, le=MAX_SEQ)] | None = Field(
        default=None, description="`seq` of the last message to take over. Left out: all of them."
    )


class SummaryIn(BaseModel):
    """What was said up to a place, in fewer words."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"summary": "The kettle arrived broken; Ana wants her money back.", "until": 4}]
        },
    )

    summary: Annotated[str, StringConstraints(strict=True, max_length=actions.MAX_INPUT_CHARS)] = Field(
        description="For the eyes of models, which are told that it is data."
    )
    until: Annotated[int, Field(strict=True, ge=1, le=MAX_SEQ)] = Field(
        description="`seq` of the last message it sums up; no less than that of the summary there is."
    )
    conversation_version: Annotated[int, Field(strict=True, ge=0, le=MAX_SEQ)] | None = Field(
        default=None, description="The `version` you have read. If something was said since, nothing is kept."
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
    """Reading changes nothing, `version` included."""
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
    """A new conversation of the same agent that begins with the messages up to a place. The old one stays as it is;
    runs are started in the new one by its `key`.
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
    """Keep a summary of the messages up to a place. Agents with the compiler `sections` are sent it instead of them.
    The messages stay, and `version` too. Sending the same again changes nothing.
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
