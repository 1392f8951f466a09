"""Speaking in the agent's place: take a run over, write to its customer, hand it back."""

import uuid
from typing import Annotated

from django.http import HttpResponse
from ninja import Header, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agentapp import actions
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.conversations import MessageOut, message_out
from agentapp.api.errors import problems
from agentapp.api.repeats import REPLAY_HEADER, of_a_repeat
from agentapp.api.runs import MAX_VERSION, Key, RunDetail, get_run

router = Router(tags=["Runs"])


class NewMessageIn(BaseModel):
    """A person's message to the customer."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "I will look into it myself."}]})

    text: Annotated[str, StringConstraints(strict=True, max_length=actions.MAX_INPUT_CHARS)]
    conversation_version: Annotated[int, Field(strict=True, ge=0, le=MAX_VERSION)] | None = Field(
        default=None,
        description="The version of the conversation you have read. If anything was said since, nothing is sent.",
    )


@router.post(
    "/runs/{run_id}/take_over",
    auth=Bearer("runs:create"),
    response={200: RunDetail, **problems(403, 404, 409)},
    operation_id="take_over_run",
    summary="Speak in the agent's place",
)
def take_over_run(request: ApiRequest, run_id: uuid.UUID) -> RunDetail:
    """The run pauses when its current call is done, and what the customer says starts nothing until you hand the run
    back. Its requests stay open for others: the person who took over never decides about the run's calls. The
    first one counts; a second is told who was first. A run without a conversation gets one.
    """
    actions.take_over_run(run_id, person(request), request.auth)
    return get_run(request, run_id)


@router.post(
    "/runs/{run_id}/hand_back",
    auth=Bearer("runs:create"),
    response={200: RunDetail, **problems(403, 404, 409)},
    operation_id="hand_back_run",
    summary="Let the agent speak again",
)
def hand_back_run(request: ApiRequest, run_id: uuid.UUID) -> RunDetail:
    """A paused run continues, and its model reads what was said in the meantime."""
    actions.hand_back_run(run_id, person(request))
    return get_run(request, run_id)


@router.post(
    "/runs/{run_id}/messages",
    auth=Bearer("runs:create"),
    response={200: MessageOut, 201: MessageOut, **problems(400, 403, 404, 409, 413, 415, 422)},
    openapi_extra={"responses": {200: of_a_repeat("The message written earlier with this key")}},
    operation_id="write_message",
    summary="Write to the customer",
)
def write_message(
    request: ApiRequest,
    response: HttpResponse,
    run_id: uuid.UUID,
    body: NewMessageIn,
    key: Annotated[
        Key | None, Header(alias="Idempotency-Key", description="Any text of yours. Sent again, it adds nothing.")
    ] = None,
) -> Status[MessageOut]:
    """The token's person, who has taken over the run, writes in the agent's place."""
    written = actions.write_message(
        run_id, body.text, person(request), body.conversation_version, key or "", request.auth
    )
    if written.repeated:
        response[REPLAY_HEADER] = "true"
    return Status(200 if written.repeated else 201, message_out(written.message))
