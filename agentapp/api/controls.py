"""What is stopped, by kill switches and breakers."""

import uuid
from typing import Literal

from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field

from agentapp import actions
from agentapp.api.bearer import ApiRequest, Bearer, person, require_any
from agentapp.api.errors import problems
from agentapp.api.paging import Listing, Page, page_of
from agentapp.models import Breaker, KillSwitch

router = Router(tags=["Controls"])


class BreakerOut(BaseModel):
    """It stops calls to something that keeps failing."""

    id: str
    scope: str = Field(description="tool, source, model or agent.")
    key: str
    state: str = Field(description="closed, open or half_open.")
    failures: int = Field(description="In a row.")
    threshold: int
    cooldown_seconds: int
    last_error: str
    opened_at: str | None


class BreakerPage(Page[BreakerOut]):
    """Breakers, oldest first."""


class SwitchOut(BaseModel):
    """An engaged kill switch. Released ones are found only in the ledger."""

    id: str
    scope: str
    key: str
    reason: str
    engaged_by: str | None
    engaged_at: str


class SwitchPage(Page[SwitchOut]):
    """Engaged switches, in the order they were engaged."""


class NewSwitch(BaseModel):
    """What to stop, and why."""

    model_config = ConfigDict(extra="forbid")

    scope: Literal["all", "agent", "tool"]
    key: str = Field(default="", max_length=200, description="The name of the agent or tool; empty for all.")
    reason: str = Field(max_length=500, description="Shown to the people whose runs wait.")


class Reset(BaseModel):
    """Why a breaker is reset. Optional."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=500, description="Kept on record.")


_NO_REASON = Reset()


class Released(BaseModel):
    """A switch was released."""

    runs_woken: int


@router.get(
    "/breakers",
    auth=Bearer("configuration:read"),
    response={200: BreakerPage, **problems(422)},
    operation_id="list_breakers",
    summary="List breakers",
)
def list_breakers(request: ApiRequest, listing: Query[Listing]) -> BreakerPage:
    """Everything that has ever failed, with its current state."""
    require_any(request, "agentapp.engage_killswitch", "agentapp.view_breaker")
    found, following = page_of(Breaker.objects.all(), "id", listing)
    return BreakerPage(items=[_breaker(row) for row in found], next=following)


@router.post(
    "/breakers/{breaker_id}/reset",
    auth=Bearer("controls:operate"),
    response={200: BreakerOut, **problems(400, 404, 413, 415, 422)},
    operation_id="reset_breaker",
    summary="Reset a breaker",
)
def reset_breaker(request: ApiRequest, breaker_id: uuid.UUID, body: Reset = _NO_REASON) -> BreakerOut:
    """Close a breaker without waiting for its probe. A closed one stays as it is. The body is optional."""
    return _breaker(actions.reset_breaker(breaker_id, person(request), body.reason))


@router.get(
    "/switches",
    auth=Bearer("configuration:read"),
    response={200: SwitchPage, **problems(422)},
    operation_id="list_switches",
    summary="List engaged kill switches",
)
def list_switches(request: ApiRequest, listing: Query[Listing]) -> SwitchPage:
    """What people have stopped."""
    require_any(request, "agentapp.engage_killswitch", "agentapp.view_killswitch")
    found, following = page_of(KillSwitch.objects.select_related("engaged_by"), "id", listing)
    return SwitchPage(items=[_switch(row) for row in found], next=following)


@router.post(
    "/switches",
    auth=Bearer("controls:operate"),
    response={201: SwitchOut, **problems(400, 409, 413, 415, 422)},
    operation_id="engage_switch",
    summary="Engage a kill switch",
)
def engage_switch(request: ApiRequest, body: NewSwitch) -> Status[SwitchOut]:
    """Nothing the switch covers begins another model or tool call. Calls already running finish."""
    return Status(201, _switch(actions.engage_switch(body.scope, body.key, body.reason, person(request))))


@router.delete(
    "/switches/{switch_id}",
    auth=Bearer("controls:operate"),
    response={200: Released, **problems(404)},
    operation_id="release_switch",
    summary="Release a kill switch",
)
def release_switch(request: ApiRequest, switch_id: uuid.UUID) -> Released:
    """Runs that waited for the switch continue."""
    return Released(runs_woken=actions.release_switch(switch_id, person(request)))


def _breaker(row: Breaker) -> BreakerOut:
    return BreakerOut(
        id=str(row.pk),
        scope=row.scope,
        key=row.key,
        state=row.state,
        failures=row.failures,
        threshold=row.threshold,
        cooldown_seconds=row.cooldown_seconds,
        last_error=row.last_error,
        opened_at=row.opened_at.isoformat() if row.opened_at else None,
    )


def _switch(row: KillSwitch) -> SwitchOut:
    return SwitchOut(
        id=str(row.pk),
        scope=row.scope,
        key=row.key,
        reason=row.reason,
        engaged_by=row.engaged_by.get_username() if row.engaged_by else None,
        engaged_at=row.engaged_at.isoformat(),
    )
