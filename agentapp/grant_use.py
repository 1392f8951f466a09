"""When a person would be asked about a call: the grants that may answer instead, and the use of one."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools.counting import Counter
from agentapp.toolset import Configuration
from approvals import granted, grants
from approvals.granted import Wanted
from approvals.models import Grant
from approvals.policy import Ruling


def wanted(
    run: Run,
    tool: Tool,
    arguments: dict[str, Any],
    ruling: Ruling,
    outside: Callable[[], Collection[str]] = tuple,
    weighed: Callable[[], str] | None = None,
) -> Wanted:
    """A call as grants see it. A person's grant never allows calls of a run they started or took over."""
    starter = () if run.starter_id is None else (run.starter_id,)
    return Wanted(
        tool=tool.name,
        tool_version=tool.version,
        effect_class=tool.effect_class,
        agent=run.agent_snapshot["name"],
        arguments=arguments,
        ruling=ruling,
        excluded=frozenset((*starter, *run.takers)),
        outside=outside,
        weighed=weighed,
    )


def find(configuration: Configuration, wanted: Wanted) -> list[Grant]:
    """The grants that seem to allow a call. Nothing is read for a call that no grant may cover."""
    if not granted.may_be_granted(wanted.ruling, wanted.effect_class):
        return []
    return [grant for grant in configuration.grants if granted.covers(grant, wanted)]


def use(configuration: Configuration, wanted: Wanted, execution: ToolExecution) -> Grant | None:
    """Count a call against the first grant that allows it now. None: a person is asked."""
    for grant in find(configuration, wanted):
        if grants.use(grant, wanted, execution.run_id, execution.pk):
            return grant
    return None


def counter_of(execution: ToolExecution, limits: Mapping[str, int]) -> Counter:
    """The counter for the tool of a call: within its own limits, and those of the grant it runs under."""
    grant_id = execution.grant_id
    if grant_id is None:
        return Counter(limits)
    return Counter(limits, lambda kind, number: grants.count(grant_id, kind, number))


def allowed_by(ruling: Ruling, grant: Grant | None = None) -> str:
    """What lets a call run without a person, as its row names it."""
    if grant is not None:
        return f"grant:{grant.reference}"
    return f"rule:{ruling.rule}" if ruling.rule else "read"
