"""Tools: what agents can do, and how safely."""

from typing import Any

from ninja import Query, Router
from pydantic import BaseModel, Field

from agentapp.api.bearer import ApiRequest, Bearer, require_any
from agentapp.api.errors import problems
from agentapp.api.paging import Listing, Page, page_of
from agentapp.models import Tool

router = Router(tags=["Configuration"])


class ToolOut(BaseModel):
    """A tool: its contract from code, its safety from admins."""

    name: str
    description: str
    source: str
    input_schema: dict[str, Any]
    version: str = Field(description="Digest of the contract. A change voids pending approvals.")
    enabled: bool
    missing: bool = Field(description="Its source no longer lists it.")
    effect_class: str
    consequential: bool
    approval_mode: str
    idempotency: str
    trust: str
    timeout_seconds: int
    max_attempts: int
    locked_fields: list[str] = Field(description="Arguments that people who decide may not change.")
    secret_fields: list[str]
    pii_fields: list[str]
    starters: list[str] = Field(description="Groups whose members' runs may call it. Empty: everybody's.")
    owner: str | None


class ToolPage(Page[ToolOut]):
    """Tools, sorted by name."""


@router.get(
    "/tools",
    auth=Bearer("configuration:read"),
    response={200: ToolPage, **problems(422)},
    operation_id="list_tools",
    summary="List tools",
)
def list_tools(request: ApiRequest, listing: Query[Listing]) -> ToolPage:
    """Every known tool, sorted by name, including disabled ones."""
    require_any(request, "agentapp.start_run", "agentapp.view_tool")
    found, following = page_of(Tool.objects.select_related("source").prefetch_related("starters"), "name", listing)
    return ToolPage(items=[_shown(tool) for tool in found], next=following)


def _shown(tool: Tool) -> ToolOut:
    return ToolOut(
        name=tool.name,
        description=tool.description,
        source=tool.source.name,
        input_schema=tool.input_schema,
        version=tool.version,
        enabled=tool.enabled,
        missing=tool.missing_since is not None,
        effect_class=tool.effect_class,
        consequential=tool.consequential,
        approval_mode=tool.approval_mode,
        idempotency=tool.idempotency,
        trust=tool.trust,
        timeout_seconds=tool.timeout_seconds,
        max_attempts=tool.max_attempts,
        locked_fields=tool.locked_fields,
        secret_fields=tool.secret_fields,
        pii_fields=tool.pii_fields,
        starters=sorted(group.name for group in tool.starters.all()),
        owner=tool.owner or None,
    )
