"""What people have allowed for a while. Programs can read and revoke grants; only a person in the console makes one."""

import uuid
from typing import Any, Literal

from ninja import Query, Router
from pydantic import BaseModel, ConfigDict, Field

from agentapp import actions, auth
from agentapp.api.bearer import ApiRequest, Bearer, person, require_any
from agentapp.api.errors import ApiProblem, problems
from agentapp.api.paging import Listing, Page, page_of
from agentapp.models import Tool
from approvals import lens
from approvals.granted import plain
from approvals.masking import MASK, masked
from approvals.models import Grant

router = Router(tags=["Grants"])


class ConstraintOut(BaseModel):
    """What one argument may be."""

    name: str
    rule: Literal["is", "at_most", "any"]
    value: Any = Field(None, description="The exact or largest value. Null if it may be anything.")


class LimitOut(BaseModel):
    """A limit on all calls under a grant together."""

    kind: str = Field(description="sum: of an argument's values. count: of what the tool counts.")
    name: str
    most: str
    used: str


class GrantOut(BaseModel):
    """A person's "allow calls like this for a while"."""

    id: str
    reference: str
    tool: str
    tool_version: str
    agent: str
    constraints: list[ConstraintOut]
    limits: list[LimitOut]
    reason: str
    approval: str = Field(description="The request from which it was made.")
    made_by: str
    made_at: str
    expires_at: str
    hits: int
    max_hits: int | None
    revoked_at: str | None
    revoked_by: str | None
    revoked_why: str


class GrantPage(Page[GrantOut]):
    """Grants in force and grants that have ended, newest first."""


class Revocation(BaseModel):
    """Why a grant is revoked."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(max_length=500, description="Kept on record.")


@router.get(
    "/grants",
    auth=Bearer("configuration:read"),
    response={200: GrantPage, **problems(422)},
    operation_id="list_grants",
    summary="List grants",
)
def list_grants(request: ApiRequest, listing: Query[Listing]) -> GrantPage:
    """What people have allowed for a while, as far as the token's person may see."""
    user = person(request)
    require_any(request, "approvals.view_grant", "approvals.add_grant")
    visible = auth.visible_grants(user).select_related("made_by", "revoked_by", "approval").prefetch_related("limits")
    found, following = page_of(visible, "-id", listing)
    tools = {tool.name: tool for tool in Tool.objects.filter(name__in={row.tool for row in found})}
    return GrantPage(items=[_grant(row, tools.get(row.tool)) for row in found], next=following)


@router.get(
    "/grants/{grant_id}",
    auth=Bearer("configuration:read"),
    response={200: GrantOut, **problems(404)},
    operation_id="get_grant",
    summary="Read a grant",
)
def get_grant(request: ApiRequest, grant_id: uuid.UUID) -> GrantOut:
    """One grant and how much of it has been used."""
    return _read(request, grant_id)


@router.post(
    "/grants/{grant_id}/revoke",
    auth=Bearer("controls:operate"),
    response={200: GrantOut, **problems(400, 404, 409, 413, 415, 422)},
    operation_id="revoke_grant",
    summary="Revoke a grant",
)
def revoke_grant(request: ApiRequest, grant_id: uuid.UUID, body: Revocation) -> GrantOut:
    """Calls like these ask again from now on. A call that has begun is not stopped."""
    _visible(request, grant_id)
    actions.revoke_grant(grant_id, body.reason, person(request))
    return _read(request, grant_id)


def _visible(request: ApiRequest, grant_id: uuid.UUID) -> Grant:
    visible = auth.visible_grants(person(request)).select_related("made_by", "revoked_by", "approval")
    found = visible.prefetch_related("limits").filter(pk=grant_id).first()
    if found is None:
        raise ApiProblem("not_found", "There is no such grant.")
    return found


def _read(request: ApiRequest, grant_id: uuid.UUID) -> GrantOut:
    found = _visible(request, grant_id)
    return _grant(found, Tool.objects.filter(name=found.tool).first())


def _grant(row: Grant, tool: Tool | None) -> GrantOut:
    secret, personal = (tool.secret_fields, tool.pii_fields) if tool is not None else ([], [])
    secrets = lens.hidden([*row.approval.secret_fields, *secret], [*row.approval.pii_fields, *personal])
    return GrantOut(
        id=str(row.pk),
        reference=row.reference,
        tool=row.tool,
        tool_version=row.tool_version,
        agent=row.agent,
        constraints=[
            ConstraintOut(
                name=each["name"],
                rule=each["rule"],
                value=MASK if each["name"] in secrets else masked(each.get("value"), secrets),
            )
            for each in row.constraints
        ],
        limits=[
            LimitOut(kind=limit.kind, name=limit.name, most=plain(limit.most), used=plain(limit.used))
            for limit in row.limits.all()
        ],
        reason=row.reason,
        approval=str(row.approval_id),
        made_by=row.made_by.get_username(),
        made_at=row.made_at.isoformat(),
        expires_at=row.expires_at.isoformat(),
        hits=row.hits,
        max_hits=row.max_hits,
        revoked_at=row.revoked_at.isoformat() if row.revoked_at else None,
        revoked_by=row.revoked_by.get_username() if row.revoked_by else None,
        revoked_why=row.revoked_why,
    )
