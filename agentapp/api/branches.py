"""Fork or replay a run that has ended, and compare two runs."""

import uuid
from typing import Annotated, Any, Literal

from ninja import Header, Query, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agentapp import actions, auth, comparing
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import problems
from agentapp.api.paging import Listing, Page, page_of
from agentapp.api.runs import MAX_VERSION, Key, Name, RunDetail, RunOut, run_detail, run_out, visible_run, whole_run
from agentapp.comparing import CallPair, StepPair
from agentapp.models import Run

router = Router(tags=["Runs"])

Number = Annotated[int, Field(strict=True, ge=1, le=MAX_VERSION)]
Text = Annotated[str, StringConstraints(strict=True, max_length=actions.MAX_INPUT_CHARS)]
Once = Annotated[
    Key | None, Header(alias="Idempotency-Key", description="The same key starts one run, however often it is sent.")
]


class RunForkIn(BaseModel):
    """Where to fork a run, and what to change. What you leave out stays as it was."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"step": 3, "instructions": "Be brief.", "sandbox": True}]}
    )

    step: Number = Field(default=1, description="The first step to repeat. What the run did before it counts as done.")
    call: Annotated[int, Field(strict=True, ge=0, le=MAX_VERSION)] | None = Field(
        default=None,
        description="The index of a call of that step, from 0. It is proposed again, with `args`, instead of the "
        "step; calls before it count as done, calls after it are left out.",
    )
    args: dict[str, Any] | None = Field(
        default=None, description="For that call. Secret ones are not copied from the record: send them again."
    )
    input: Text | None = Field(default=None, description="What the agent is asked to do.")
    instructions: Text | None = Field(default=None, description="What the model is told first.")
    model: Annotated[str, StringConstraints(strict=True, max_length=120)] | None = Field(
        default=None, description="For example `anthropic:claude-sonnet-5`."
    )
    settings: dict[str, Any] | None = Field(default=None, description="Model settings.")
    sandbox: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="Nothing really happens: calls are answered from the record, and nobody is asked."
    )
    without_rules: list[Name] = Field(
        default_factory=list, max_length=100, description="In a sandbox: rules to treat as not in force."
    )
    with_drafts: list[Name] = Field(
        default_factory=list, max_length=100, description="In a sandbox: rules whose drafts to treat as in force."
    )


class BranchOut(RunOut):
    """A fork or replay of another run."""

    branch: Literal["fork", "replay"]
    steps_kept: int
    calls_kept: int
    changed: list[str]


class BranchPage(Page[BranchOut]):
    """Runs, newest first."""


class CallComparison(BaseModel):
    kind: Literal["kept", "same", "different", "missing", "new"]
    name: str
    was: uuid.UUID | None = Field(description="The tool execution of the first run.")
    now: uuid.UUID | None = Field(description="The tool execution of the second run.")
    differs: list[str]


class StepComparison(BaseModel):
    kind: Literal["kept", "same", "different", "missing", "new"]
    was: int | None = Field(description="The number of the step in its run.")
    now: int | None
    differs: list[str]
    tools_gone: list[str] = Field(description="Offered only in the first run.")
    tools_added: list[str]
    calls: list[CallComparison]


class ComparisonOut(BaseModel):
    """Two runs of one agent, step by step."""

    was: uuid.UUID
    now: uuid.UUID
    same: bool
    differs: list[str] = Field(description="What differs in how they ended: `state`, `stop_reason`, `answer`.")
    calls: dict[str, int] = Field(description="The number of calls of each kind.")
    steps: list[StepComparison]
    cut: bool = Field(description="The runs are too long: only part of them is compared.")


@router.post(
    "/runs/{run_id}/fork",
    auth=Bearer("runs:create"),
    response={201: RunDetail, **problems(400, 403, 404, 409, 413, 415, 422)},
    operation_id="fork_run",
    summary="Fork a run",
)
def fork_run(request: ApiRequest, run_id: uuid.UUID, body: RunForkIn, key: Once = None) -> Status[RunDetail]:
    """Starts a new run that continues from a step of one that has ended, with something changed. What that run did is
    never done again; what the new run does goes through the gate like anything else.
    """
    visible_run(request, run_id)
    given = body.model_dump(exclude={"settings", "args"}) | {"model_settings": body.settings, "arguments": body.args}
    started = actions.fork_run(run_id, actions.Fork(**given), person(request), key or "", request.auth)
    return Status(201, run_detail(whole_run(started.pk)))


@router.post(
    "/runs/{run_id}/replay",
    auth=Bearer("runs:create"),
    response={201: RunDetail, **problems(403, 404, 409, 422)},
    operation_id="replay_run",
    summary="Replay a run",
)
def replay_run(request: ApiRequest, run_id: uuid.UUID, key: Once = None) -> Status[RunDetail]:
    """Starts a mocked run that plays back the recorded replies, decisions and results of an ended run, under today's
    rules, tools and limits. Nothing happens, and nobody is asked. `GET /runs/{id}/comparison/{other}` compares the two.
    """
    visible_run(request, run_id)
    started = actions.replay_run(run_id, person(request), key or "", request.auth)
    return Status(201, run_detail(whole_run(started.pk)))


@router.get(
    "/runs/{run_id}/branches",
    auth=Bearer("runs:read"),
    response={200: BranchPage, **problems(404, 422)},
    operation_id="list_branches",
    summary="List the forks and replays of a run",
)
def list_branches(request: ApiRequest, run_id: uuid.UUID, listing: Query[Listing]) -> BranchPage:
    """The forks and replays that the token's person may see, newest first."""
    visible_run(request, run_id)
    rows = auth.visible_runs(person(request)).filter(retry_of=run_id).exclude(branch="")
    rows = rows.select_related("agent", "conversation", "starter").defer("input", "agent_snapshot", "script")
    found, following = page_of(rows, "-id", listing)
    return BranchPage(items=[_branch_out(run) for run in found], next=following)


@router.get(
    "/runs/{run_id}/comparison/{other_id}",
    auth=Bearer("runs:read"),
    response={200: ComparisonOut, **problems(404)},
    operation_id="compare_runs",
    summary="Compare two runs",
)
def compare_runs(request: ApiRequest, run_id: uuid.UUID, other_id: uuid.UUID) -> ComparisonOut:
    """Step by step, including steps kept from other runs: `was` is the first run, `now` the second."""
    found = comparing.compare(visible_run(request, run_id), visible_run(request, other_id))
    return ComparisonOut(
        was=run_id, now=other_id, same=found.is_same, differs=list(found.differs), calls=found.counts,
        steps=[_step_out(step) for step in found.steps], cut=found.cut,
    )  # fmt: skip


def _branch_out(run: Run) -> BranchOut:
    more = {name: getattr(run, name) for name in ("branch", "steps_kept", "calls_kept", "changed")}
    return BranchOut(**run_out(run).model_dump(), **more)


def _step_out(step: StepPair) -> StepComparison:
    return StepComparison(
        kind=step.kind,
        was=step.was.number if step.was else None,
        now=step.now.number if step.now else None,
        differs=list(step.differs),
        tools_gone=list(step.gone),
        tools_added=list(step.added),
        calls=[_call_out(call) for call in step.calls],
    )


def _call_out(call: CallPair) -> CallComparison:
    was, now = (side.pk if side is not None else None for side in call.sides)
    return CallComparison(kind=call.kind, name=call.name, was=was, now=now, differs=list(call.differs))
