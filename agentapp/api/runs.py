"""Runs: start and follow them."""

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from django.contrib.auth.models import User
from django.http import HttpResponse, StreamingHttpResponse
from ninja import Header, Query, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agentapp import actions, auth, lineage, trace, turns
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import not_found, problems
from agentapp.api.guidance import GuidanceOut, guidance_out
from agentapp.api.paging import Listing, Page, page_of
from agentapp.api.repeats import REPLAY_HEADER, of_a_repeat
from agentapp.api.tool_executions import Person, ToolExecutionOut, execution_out
from agentapp.api.wire import money
from agentapp.considered import GUIDED
from agentapp.models import Run, Step
from agentapp.reasons import StopReason
from agentapp.telemetry import download

router = Router(tags=["Runs"])

# The largest version the table can hold.
MAX_VERSION = 2**31 - 1
_DETAIL = ("agent", "conversation", "starter", "taken_over_by")

Name = Annotated[str, StringConstraints(strict=True, max_length=80)]
Label = Annotated[str, StringConstraints(strict=True, max_length=200)]
# One line of printable ASCII, which every database, proxy and log keeps unchanged.
Key = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[\x20-\x7e]+$")]
RunState = Literal["queued", "running", "waiting", "paused", "succeeded", "failed", "stopped", "cancelled"]


class NewRunIn(BaseModel):
    """What to start."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "agent": "support",
                    "input": "The kettle of order 1042 arrived damaged. Please refund it.",
                    "route": "refund_investigation",
                    "customer": "cus_81",
                    "conversation": "ticket-5521",
                    "metadata": {"ticket": 5521},
                }
            ]
        },
    )

    agent: Name = Field(description="Name of an enabled agent; see `GET /agents`.")
    input: Annotated[str, StringConstraints(strict=True, max_length=actions.MAX_INPUT_CHARS)] = Field(
        description="What the agent is asked to do."
    )
    route: Name = Field(default="", description="Name of one of the agent's routes. It narrows the tools.")
    customer: Label = Field(default="", description="Your name for the customer that the run is about.")
    conversation: Label = Field(default="", description="Your name for a dialogue. Runs that share it remember it.")
    conversation_version: Annotated[int, Field(strict=True, ge=0, le=MAX_VERSION)] | None = Field(
        default=None,
        description="The version of the conversation you have read. If anything was said since, nothing is started.",
    )
    metadata: dict[str, Any] | None = Field(default=None, description="Kept with the run and never shown to the model.")
    script: list[Any] | None = Field(
        default=None,
        description="Model replies to replay instead of asking a model: "
        '`[{"text": …, "tool_calls": [{"id", "name", "arguments"}]}]`. Only if ALLOW_SCRIPTED_RUNS is on.',
    )


class Usage(BaseModel):
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: str | None = Field(description="In US dollars. Null if the price is unknown.")


class RunOut(BaseModel):
    """A run, as lists show it."""

    id: uuid.UUID
    reference: str
    agent: str
    route: str | None
    title: str
    state: str
    waiting_for: str | None = Field(
        description="What a waiting run waits for: `approval`, `outcome`, `budget`, `subagent` or `switch`."
    )
    parent: uuid.UUID | None = Field(description="The run whose agent asked for this one.")
    depth: int = Field(description="0 for a run started from outside.")
    stop_reason: str | None = Field(description="A code: why it ended.")
    customer: str | None
    conversation: str | None
    conversation_id: uuid.UUID | None
    starter: Person | None
    mocked: bool = Field(description="Mocks answered its calls: nothing it did really happened.")
    step_count: int
    had_tool_errors: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class RunDetail(RunOut):
    """A run with its input and what came of it."""

    input: str
    metadata: dict[str, Any]
    answer: str | None
    answer_is_partial: bool = Field(description="A limit was reached before the work was done.")
    stop_message: str | None
    stop_source: str | None = Field(description="What ended it: a limit's name, a hook, a person, the model.")
    retry_of: uuid.UUID | None = Field(description="The run that this one tries again, forks or replays.")
    steps_kept: int = Field(description="How many steps of that run count as done.")
    branch: str | None = Field(description="`fork` or `replay` of that run. Null if this one tries it again.")
    calls_kept: int = Field(description="How many of the first calls of the step after those count as done.")
    changed: list[str] = Field(description="The names of what was changed in a fork.")
    trace_id: str = Field(description="W3C trace id of the run and of the runs it asks for.")
    after: uuid.UUID | None = Field(description="While queued: the run of the same conversation that it waits for.")
    scripted: bool
    cancel_requested_at: datetime | None
    pause_requested_at: datetime | None
    taken_over_by: Person | None = Field(description="The person who speaks in the agent's place until they hand back.")
    budget_extra: str = Field(description="What people have allowed on top of its limits, in US dollars.")
    usage: Usage
    cost_is_partial: bool = Field(description="The price of at least one model reply is unknown.")


class RunPage(Page[RunOut]):
    """Runs, newest first."""


class StepOut(BaseModel):
    """One decision of the model and the calls it asked for."""

    number: int
    text: str
    reasoning: str | None = Field(description="What the model thought, if its driver asks for that separately.")
    error: str | None = Field(description="A code: why the reply led to no decision.")
    model: str | None
    disclosed_tools: list[str]
    finish_reason: str | None
    usage: Usage
    first_token_seconds: float | None = Field(description="Time until the reply began. Null if it came all at once.")
    started_at: datetime
    finished_at: datetime
    calls: list[ToolExecutionOut]
    guidance: GuidanceOut | None = Field(description="What the step looked at, if the agent follows guidelines.")


class TraceOut(BaseModel):
    """Everything a run did, in order."""

    run: RunDetail
    steps: list[StepOut]
    family_cost: str = Field(description="Cost of the run and of all runs its agents asked for, in US dollars.")


class RunListing(Listing):
    state: RunState | None = Field(default=None, description="Only runs in this state.")
    stop_reason: StopReason | None = Field(default=None, description="Only runs that ended for this reason.")
    conversation: uuid.UUID | None = Field(default=None, description="Only runs of this conversation.")
    mocked: bool = Field(default=False, description="Only mocked runs. They are left out otherwise.")


@router.post(
    "/runs",
    auth=Bearer("runs:create"),
    response={201: RunDetail, 200: RunDetail, 202: RunDetail, **problems(400, 409, 413, 415, 422)},
    operation_id="start_run",
    summary="Start a run",
    openapi_extra={
        "responses": {
            200: of_a_repeat("The run started earlier with this key"),
            202: {
                "description": "A person has taken over this run. The message waits for them, and no run was started"
            },
        }
    },
)
def start_run(
    request: ApiRequest,
    response: HttpResponse,
    body: NewRunIn,
    key: Annotated[
        Key | None,
        Header(
            alias="Idempotency-Key",
            description="Any text of yours, at most 255 characters. The same key with the same body starts one run, "
            "however often it is sent. With another body it is refused.",
        ),
    ] = None,
    traceparent: Annotated[
        str,
        Header(description="Your position in a trace, as in W3C Trace Context. The trace of the run links to it."),
    ] = "",
) -> Status[RunDetail]:
    """The run is queued and returned at once; follow it with `GET /runs/{id}`. It belongs to the token's
    person, who cannot decide about its calls unless every rule that asks lets them. While a person has taken over the
    conversation, the input is kept for them and starts nothing: the answer is 202, with the run they took over.
    """
    new = actions.NewRun(
        agent=body.agent,
        input=body.input,
        route=body.route,
        customer=body.customer,
        conversation=body.conversation,
        conversation_version=body.conversation_version,
        metadata=body.metadata,
        script=body.script,
        request_key=key or "",
        traceparent=traceparent,
    )
    started = actions.start_run_once(new, person(request), request.auth)
    if started.repeated:
        response[REPLAY_HEADER] = "true"
    return Status(200 if started.repeated else 202 if started.kept else 201, run_detail(whole_run(started.run.pk)))


@router.get(
    "/runs",
    auth=Bearer("runs:read"),
    response={200: RunPage, **problems(422)},
    operation_id="list_runs",
    summary="List runs",
)
def list_runs(request: ApiRequest, listing: Query[RunListing]) -> RunPage:
    """The runs the token's person may see, newest first."""
    rows = auth.visible_runs(person(request)).select_related("agent", "conversation", "starter")
    rows = rows.filter(mocks__isnull=not listing.mocked)
    if listing.state:
        rows = rows.filter(state=listing.state)
    if listing.stop_reason:
        rows = rows.filter(stop_reason=listing.stop_reason)
    if listing.conversation:
        rows = rows.filter(conversation=listing.conversation)
    found, following = page_of(rows.defer("input", "agent_snapshot", "script"), "-id", listing)
    return RunPage(items=[run_out(run) for run in found], next=following)


@router.get(
    "/runs/{run_id}",
    auth=Bearer("runs:read"),
    response={200: RunDetail, **problems(404)},
    operation_id="get_run",
    summary="Read a run",
)
def get_run(request: ApiRequest, run_id: uuid.UUID) -> RunDetail:
    return run_detail(visible_run(request, run_id))


@router.get(
    "/runs/{run_id}/trace",
    auth=Bearer("runs:read"),
    response={200: TraceOut, **problems(404)},
    operation_id="get_trace",
    summary="Read what a run did",
)
def get_trace(request: ApiRequest, run_id: uuid.UUID) -> TraceOut:
    """The run's steps with every proposed call: how it was ruled on, who decided, what ran and what came of it."""
    run = visible_run(request, run_id)
    steps = trace.steps_of(run)
    asked = any(call.subrun_id for step in steps for call in step.executions.all())
    cost = lineage.cost_of_family(run).cost if asked else run.cost
    return TraceOut(run=run_detail(run), steps=[_step_out(run, step) for step in steps], family_cost=money(cost))


class OtlpOut(BaseModel):
    """A trace in OpenTelemetry's JSON format."""

    resourceSpans: list[dict[str, Any]] = Field(description="OTLP's `ExportTraceServiceRequest`, in JSON.")


@router.get(
    "/runs/{run_id}/otel",
    auth=Bearer("runs:read"),
    response={200: OtlpOut, **problems(404)},
    operation_id="get_otel",
    summary="Read a run as an OpenTelemetry trace",
)
def get_otel(request: ApiRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """Made from what is stored and streamed as it is made; a collector accepts it unchanged. It includes what was said
    only if the operator exports that (OTEL_CONTENT), with secrets masked. For a run under way, it covers what it did
    so far.
    """
    return download.response(request, visible_run(request, run_id))


def run_out(run: Run) -> RunOut:
    """Reads `agent`, `conversation` and `starter`, which the caller has fetched."""
    return RunOut(**_shown(run))


def run_detail(run: Run) -> RunDetail:
    """Reads what `_DETAIL` names, which the caller has fetched."""
    ahead = turns.ahead([run]).get(run.pk)
    return RunDetail(
        **_shown(run),
        input=run.input,
        metadata=run.metadata,
        answer=run.answer or None,
        answer_is_partial=run.answer_is_partial,
        stop_message=(run.stop_message if run.is_final else "") or None,
        stop_source=run.stop_source or None,
        retry_of=run.retry_of_id,
        steps_kept=run.steps_kept,
        branch=run.branch or None,
        calls_kept=run.calls_kept,
        changed=run.changed,
        trace_id=run.trace_id,
        after=ahead.pk if ahead else None,
        scripted=run.script is not None,
        cancel_requested_at=run.cancel_requested_at,
        pause_requested_at=run.pause_requested_at,
        taken_over_by=person_out(run.taken_over_by),
        budget_extra=money(run.budget_extra),
        usage=Usage(
            input_tokens=run.input_tokens,
            cached_tokens=run.cached_tokens,
            output_tokens=run.output_tokens,
            cost=money(run.cost),
        ),
        cost_is_partial=run.cost_is_partial,
    )


def _shown(run: Run) -> dict[str, Any]:
    return {
        "id": run.pk,
        "reference": run.reference,
        "agent": run.agent.name,
        "route": run.route or None,
        "title": run.title,
        "state": run.state,
        "waiting_for": run.waiting_for or None,
        "parent": run.parent_id,
        "depth": run.depth,
        # A run that was told to stop has its reason before it ends.
        "stop_reason": (run.stop_reason if run.is_final else "") or None,
        "customer": run.customer or None,
        "conversation": run.conversation.key if run.conversation else None,
        "conversation_id": run.conversation_id,
        "starter": person_out(run.starter),
        "mocked": run.is_mocked,
        "step_count": run.step_count,
        "had_tool_errors": run.had_tool_errors,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
    }


def _step_out(run: Run, step: Step) -> StepOut:
    return StepOut(
        number=step.number,
        text=step.text,
        reasoning=step.reasoning or None,
        error=step.error or None,
        model=step.model or None,
        disclosed_tools=step.disclosed_tools,
        finish_reason=step.finish_reason or None,
        usage=Usage(
            input_tokens=step.input_tokens,
            cached_tokens=step.cached_tokens,
            output_tokens=step.output_tokens,
            cost=None if step.cost is None else money(step.cost),
        ),
        first_token_seconds=step.first_token_seconds,
        started_at=step.started_at,
        finished_at=step.finished_at,
        calls=[execution_out(execution) for execution in step.executions.all()],
        guidance=guidance_out(step) if run.agent_snapshot.get("driver") == GUIDED else None,
    )


def person_out(user: User | None) -> Person | None:
    return Person(username=user.get_username(), name=auth.name_of(user)) if user else None


def visible_run(request: ApiRequest, run_id: uuid.UUID) -> Run:
    """The run with what its detail shows. If the person may not see it, raises as if it did not exist."""
    rows = auth.visible_runs(person(request)).select_related(*_DETAIL)
    run = rows.filter(pk=run_id).first()
    if run is None:
        raise not_found()
    return run


def whole_run(run_id: uuid.UUID) -> Run:
    return Run.objects.select_related(*_DETAIL).get(pk=run_id)
