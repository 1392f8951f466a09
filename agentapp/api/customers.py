"""Speaking with a customer: all that a program which carries their words can do in their conversation.

Answers show a conversation as its customer may see it.
"""

import uuid
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpResponse
from django.urls import reverse
from ninja import Header, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from agentapp import actions, customer_links, customer_view, customers
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import not_found, problems
from agentapp.api.repeats import REPLAY_HEADER
from agentapp.api.runs import MAX_VERSION, Key
from agentapp.customers import Access
from approvals import ledger, lens

router = Router(tags=["Customers"])

SCOPE = "conversations:write"
_Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]


class OpenIn(BaseModel):
    """Which customer speaks with which agent."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"agent": "support", "key": "chat-5521", "customer": "40117"}]}
    )

    agent: _Name
    key: _Name = Field(description="Your name for the dialogue.")
    customer: _Name = Field(description="Your name for the customer. The record names them as the one who confirmed.")


class CustomerMessageIn(BaseModel):
    """What the customer writes."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "Where is my kettle?"}]})

    text: Annotated[str, StringConstraints(strict=True, max_length=actions.MAX_INPUT_CHARS)]
    conversation_version: Annotated[int, Field(strict=True, ge=0, le=MAX_VERSION)] | None = Field(
        default=None, description="The `version` the customer has read. If anything was said since, nothing is sent."
    )


class ConfirmationIn(BaseModel):
    """The customer's answer to exactly what they were shown."""

    model_config = ConfigDict(extra="forbid")

    answer_id: uuid.UUID = Field(description="A UUID of yours. Sending the same answer again changes nothing.")
    yes: StrictBool
    version: Annotated[int, Field(strict=True, ge=1, le=MAX_VERSION)]
    action_digest: Annotated[str, StringConstraints(strict=True, max_length=64)]


class LinkIn(BaseModel):
    """How long the link opens the conversation."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"hours": 24}]})

    hours: Annotated[int, Field(strict=True, ge=1, le=customers.MAX_LINK_HOURS)] = 24


class LinkOut(BaseModel):
    id: uuid.UUID
    url: str = Field(description="Anyone who has it speaks as the customer. It is shown only once.")
    expires_at: datetime


class SaidOut(BaseModel):
    seq: int
    who: str = Field(description="`customer`, `agent`, or `person` for a member of the team.")
    text: str
    at: datetime


class ConfirmationOut(BaseModel):
    """What the customer is asked, in the tool's words. Show all of it: a yes runs exactly this."""

    id: uuid.UUID
    title: str
    sentence: str
    effects: list[dict[str, Any]]
    button: str | None
    version: int
    action_digest: str
    expires_at: datetime


class NeededOut(BaseModel):
    """Something the agent asked for in its last answer, as its tools name it to customers."""

    name: str
    description: str
    examples: list[str]
    choices: list[str] = Field(description="The possible values. Empty if it can be anything.")


class CustomerConversation(BaseModel):
    """A conversation as its customer may see it."""

    id: uuid.UUID
    mode: str = Field(description="`auto`, or `manual` while a person has taken over or is wanted.")
    version: int
    status: str = Field(description=f"One of {', '.join(f'`{name}`' for name in customer_view.WORDS)}.")
    status_words: str = Field(description="The status for the customer to read. Empty when nothing is going on.")
    messages: list[SaidOut] = Field(description=f"The last {customer_view.PAGE}, oldest first.")
    earlier: bool = Field(description="Whether there are earlier messages.")
    draft: str = Field(description="What the agent has written so far, once it can only be an answer. It may change.")
    confirmations: list[ConfirmationOut]
    needed: list[NeededOut] = Field(description="What the agent needs to be told to go on. Empty once answered.")


@router.post(
    "/conversations",
    auth=Bearer(SCOPE),
    response={200: CustomerConversation, 201: CustomerConversation, **problems(400, 403, 409, 413, 415, 422)},
    operation_id="open_conversation",
    summary="Open a conversation for its customer",
)
def open_conversation(request: ApiRequest, body: OpenIn) -> Status[CustomerConversation]:
    """Opens the conversation with this agent and `key`, or makes it if there is none. From then on its customer can
    be asked to confirm calls, and the program that opened it carries what they say.
    """
    via = f"token {request.auth.name}"
    conversation, is_new = customers.open_conversation(body.agent, body.key, body.customer, person(request), via)
    return Status(201 if is_new else 200, shown(customer_view.of(conversation)))


@router.get(
    "/conversations/{conversation_id}/customer",
    auth=Bearer(SCOPE),
    response={200: CustomerConversation, **problems(403, 404)},
    operation_id="get_customer_conversation",
    summary="Read a conversation as its customer",
)
def get_customer_conversation(request: ApiRequest, conversation_id: uuid.UUID) -> CustomerConversation:
    """What the customer may see: no calls, no reasons, no names of people."""
    return shown(customer_view.of(_access(request, conversation_id).conversation))


@router.post(
    "/conversations/{conversation_id}/messages",
    auth=Bearer(SCOPE),
    response={
        200: CustomerConversation, 201: CustomerConversation, 202: CustomerConversation,
        **problems(400, 403, 404, 409, 413, 415, 422, 429),
    },
    operation_id="write_as_customer",
    summary="Write as the customer",
)  # fmt: skip
def write_as_customer(
    request: ApiRequest,
    response: HttpResponse,
    conversation_id: uuid.UUID,
    body: CustomerMessageIn,
    key: Annotated[
        Key | None, Header(alias="Idempotency-Key", description="Any text of yours. Sent again, it adds nothing.")
    ] = None,
) -> Status[CustomerConversation]:
    """`201`: the agent will answer. `202`: the message is kept for a person, who has taken over or is wanted."""
    access = _access(request, conversation_id)
    started = customers.write(access, body.text, body.conversation_version, key or "")
    if started.repeated:
        response[REPLAY_HEADER] = "true"
    status = 200 if started.repeated else 202 if started.kept else 201
    return Status(status, _now(access))


@router.post(
    "/conversations/{conversation_id}/confirmations/{confirmation_id}",
    auth=Bearer(SCOPE),
    response={200: CustomerConversation, **problems(400, 403, 404, 409, 413, 415, 422)},
    operation_id="answer_confirmation",
    summary="Pass on the customer's yes or no",
)
def answer_confirmation(
    request: ApiRequest,
    response: HttpResponse,
    conversation_id: uuid.UUID,
    confirmation_id: uuid.UUID,
    body: ConfirmationIn,
) -> CustomerConversation:
    """Send only what the customer has answered themselves. The record names them, and this program as the channel."""
    access = _access(request, conversation_id)
    answer = customers.Answer(body.answer_id, body.yes, body.version, body.action_digest)
    taken = customers.confirm(access, confirmation_id, answer)
    if taken.repeated:
        response[REPLAY_HEADER] = "true"
    return _now(access)


@router.post(
    "/conversations/{conversation_id}/hand_over",
    auth=Bearer(SCOPE),
    response={200: CustomerConversation, **problems(403, 404, 422)},
    operation_id="hand_over_conversation",
    summary="Ask for a person",
)
def hand_over_conversation(request: ApiRequest, conversation_id: uuid.UUID) -> CustomerConversation:
    """The agent finishes what it has begun. Then nothing starts until a person has taken over and handed back."""
    access = _access(request, conversation_id)
    customers.ask_for_person(access)
    return _now(access)


@router.post(
    "/conversations/{conversation_id}/links",
    auth=Bearer(SCOPE),
    response={201: LinkOut, **problems(400, 403, 404, 413, 415, 422)},
    operation_id="make_customer_link",
    summary="Make a link for the customer",
)
def make_customer_link(request: ApiRequest, conversation_id: uuid.UUID, body: LinkIn) -> Status[LinkOut]:
    """Makes a link to a Countersign page where the customer talks and confirms without an account. Give it to nobody
    else.
    """
    access = _access(request, conversation_id)
    link = customers.make_link(access, body.hours)
    path = reverse("customer_talk", args=[customer_links.signed(link)])
    return Status(201, LinkOut(id=link.pk, url=request.build_absolute_uri(path), expires_at=link.expires_at))


@router.delete(
    "/conversations/{conversation_id}/links/{link_id}",
    auth=Bearer(SCOPE),
    response={200: CustomerConversation, **problems(403, 404)},
    operation_id="revoke_customer_link",
    summary="Revoke a link",
)
def revoke_customer_link(request: ApiRequest, conversation_id: uuid.UUID, link_id: uuid.UUID) -> CustomerConversation:
    """The link stops working immediately. Revoking it twice has the same effect as once."""
    access = _access(request, conversation_id)
    link = access.conversation.links.filter(pk=link_id).first()
    if link is None:
        raise not_found()
    customer_links.revoke(link, ledger.actor_of(access.user, access.via))
    return _now(access)


def shown(view: customer_view.View) -> CustomerConversation:
    """The conversation as its customer sees it, over REST and in the stream. Its personal data is theirs, so shown."""
    lens.show()
    conversation = view.conversation
    return CustomerConversation(
        id=conversation.pk,
        mode=conversation.mode,
        version=conversation.version,
        status=view.status,
        status_words=view.words,
        messages=[SaidOut(seq=one.seq, who=one.who, text=one.text, at=one.at) for one in view.messages],
        earlier=view.earlier,
        draft=view.draft,
        confirmations=[_confirmation(asked) for asked in view.asked],
        needed=[
            NeededOut(
                name=one.name, description=one.description, examples=list(one.examples), choices=list(one.choices)
            )
            for one in view.needed
        ],
    )


def _confirmation(asked: customer_view.Asked) -> ConfirmationOut:
    return ConfirmationOut(
        id=uuid.UUID(asked.id),
        title=asked.title,
        sentence="".join(str(piece.get("text", "")) for piece in asked.sentence),
        effects=list(asked.effects),
        button=asked.button or None,
        version=asked.version,
        action_digest=asked.action_digest,
        expires_at=asked.expires_at,
    )


def _access(request: ApiRequest, conversation_id: uuid.UUID) -> Access:
    return customers.of_program(conversation_id, person(request), request.auth)


def _now(access: Access) -> CustomerConversation:
    access.conversation.refresh_from_db()
    return shown(customer_view.of(access.conversation))
