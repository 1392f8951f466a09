"""The agents that runs can be started for."""

from ninja import Query, Router
from pydantic import BaseModel, Field

from agentapp.api.bearer import ApiRequest, Bearer, require_any
from agentapp.api.errors import problems
from agentapp.api.paging import Listing, Page, page_of
from agentapp.api.wire import money
from agentapp.models import Agent

router = Router(tags=["Configuration"])


class RouteOut(BaseModel):
    """A named kind of task. It discloses some of the agent's tools."""

    name: str
    description: str
    tools: list[str]


class AgentOut(BaseModel):
    """An agent that can be started."""

    name: str
    description: str
    driver: str
    model: str | None
    routes: list[RouteOut]
    tools: list[str]
    max_steps: int
    max_tokens: int | None
    max_cost: str | None = Field(description="In US dollars.")


class AgentPage(Page[AgentOut]):
    """Enabled agents, sorted by name."""


@router.get(
    "/agents",
    auth=Bearer("configuration:read"),
    response={200: AgentPage, **problems(422)},
    operation_id="list_agents",
    summary="List agents",
)
def list_agents(request: ApiRequest, listing: Query[Listing]) -> AgentPage:
    """The agents that runs can be started for, with their routes and tools. Instructions are not shown."""
    require_any(request, "agentapp.start_run", "agentapp.view_agent")
    rows = Agent.objects.filter(enabled=True).prefetch_related("tools", "routes__tools")
    found, following = page_of(rows, "name", listing)
    return AgentPage(items=[_shown(agent) for agent in found], next=following)


def _shown(agent: Agent) -> AgentOut:
    return AgentOut(
        name=agent.name,
        description=agent.description,
        driver=agent.driver,
        model=agent.model or None,
        routes=[
            RouteOut(
                name=route.name, description=route.description, tools=sorted(tool.name for tool in route.tools.all())
            )
            for route in agent.routes.all()
        ],
        tools=sorted(tool.name for tool in agent.tools.all()),
        max_steps=agent.max_steps,
        max_tokens=agent.max_tokens,
        max_cost=None if agent.max_cost is None else money(agent.max_cost),
    )
