"""Control of a run: stop, pause, resume or retry it, ask people again, take a call back."""

import uuid
from typing import Annotated

from ninja import Header, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from agentapp import actions
from agentapp.api.approval_schemas import ApprovalDetail
from agentapp.api.approvals import approval_detail, visible_approval
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import problems
from agentapp.api.runs import MAX_VERSION, Key, RunDetail, run_detail, visible_run, whole_run
from agentapp.undoing import MAX_WHY_CHARS

router = Router(tags=["Runs"])


@router.post(
    "/runs/{run_id}/cancel",
    auth=Bearer("runs:create"),
    response={200: RunDetail, **problems(404)},
    operation_id="cancel_run",
    summary="Stop a run",
)
def cancel_run(request: ApiRequest, run_id: uuid.UUID) -> RunDetail:
    """A waiting run ends at once, a running one before its next model or tool call. A run that has ended
    stays as it is.
    """
    visible_run(request, run_id)
    actions.cancel_run(run_id, person(request))
    return run_detail(whole_run(run_id))


class RetryIn(BaseModel):
    """The step from which to try a run again."""

    model_config = ConfigDict(extra="forbid")

    first: Annotated[int, Field(strict=True, ge=1, le=MAX_VERSION)] = Field(
        default=1, description="The first step to repeat. What the run did before it counts as done."
    )


@router.post(
    "/runs/{run_id}/retry",
    auth=Bearer("runs:create"),
    response={201: RunDetail, **problems(400, 403, 404, 409, 413, 415, 422)},
    operation_id="retry_run",
    summary="Try a run again",
)
def retry_run(
    request: ApiRequest,
    run_id: uuid.UUID,
    body: RetryIn,
    key: Annotated[
        Key | None,
        Header(alias="Idempotency-Key", description="The same key starts one run, however often it is sent."),
    ] = None,
) -> Status[RunDetail]:
    """Starts a new run with the input of one that has ended, for the token's person and with the current configuration.
    The model is told what the old run did before the step `first`; none of that runs again.
    """
    visible_run(request, run_id)
    started = actions.retry_run(run_id, person(request), body.first, key or "", request.auth)
    return Status(201, run_detail(whole_run(started.pk)))


@router.post(
    "/runs/{run_id}/pause",
    auth=Bearer("runs:create"),
    response={200: RunDetail, **problems(403, 404, 409)},
    operation_id="pause_run",
    summary="Pause a run",
)
def pause_run(request: ApiRequest, run_id: uuid.UUID) -> RunDetail:
    """It pauses at once if no worker holds it, otherwise before its next model or tool call. Its requests stay open."""
    visible_run(request, run_id)
    actions.pause_run(run_id, person(request))
    return run_detail(whole_run(run_id))


@router.post(
    "/runs/{run_id}/resume",
    auth=Bearer("runs:create"),
    response={200: RunDetail, **problems(403, 404, 409)},
    operation_id="resume_run",
    summary="Resume a paused run",
)
def resume_run(request: ApiRequest, run_id: uuid.UUID) -> RunDetail:
    """If somebody other than the token's person and the run's starter paused it, this needs the right to pause runs."""
    visible_run(request, run_id)
    actions.resume_run(run_id, person(request))
    return run_detail(whole_run(run_id))


@router.post(
    "/approvals/{approval_id}/ask_again",
    auth=Bearer("runs:create"),
    response={200: ApprovalDetail, **problems(403, 404, 409)},
    operation_id="ask_again",
    summary="Ask people again",
)
def ask_again(request: ApiRequest, approval_id: uuid.UUID) -> ApprovalDetail:
    """Makes a new request out of one that nobody decided in time, unless its agent has already been told. For people
    who may decide about it, and the person who started its run. Answers with the old request, which the new one will
    name in `supersedes`.
    """
    actions.ask_again(approval_id, person(request))
    return approval_detail(visible_approval(request, approval_id), person(request))


class UndoIn(BaseModel):
    """Why to take a call back."""

    model_config = ConfigDict(extra="forbid")

    why: StrictStr = Field(min_length=1, max_length=MAX_WHY_CHARS, description="Shown to the people who decide.")


@router.post(
    "/tool-executions/{execution_id}/undo",
    auth=Bearer("runs:create"),
    response={201: RunDetail, **problems(400, 403, 404, 409, 413, 415, 422)},
    operation_id="undo_call",
    summary="Ask for a call to be taken back",
)
def undo_call(request: ApiRequest, execution_id: uuid.UUID, body: UndoIn) -> Status[RunDetail]:
    """Starts a run that proposes the call that takes this one back. It waits for people: neither the token's person
    nor the starter of the first run may decide about it. Only once at a time, and again only if nothing came of it.
    """
    run = actions.undo_call(execution_id, body.why, person(request), request.auth)
    return Status(201, run_detail(whole_run(run.pk)))
