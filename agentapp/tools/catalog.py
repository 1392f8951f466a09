"""A tool about tools, for agents that have many: list them, search them, read about one in full.

Name this module in TOOL_MODULES to offer it.
"""

from typing import Annotated, Any, Literal

from agentapp.messages import ToolSpec
from agentapp.tools.base import ToolContext, ToolError, tool

MAX_FOUND = 50


@tool("tools", effect="read", trust="trusted_system", result_max_kb=32)
def catalog(
    action: Literal["list", "search", "help"],
    context: ToolContext,
    about: Annotated[str, "For search: words. For help: the name of a tool."] = "",
) -> Any:
    """See which tools you can use.

    `list` names each with what it is for, `search` those in which all the words occur, `help` gives everything
    about one: its full description and its arguments.
    """
    if action == "help":
        return _help(context.tools, about)
    words = about.lower().split() if action == "search" else []
    found = [spec for spec in context.tools if all(word in f"{spec.name} {spec.description}".lower() for word in words)]
    shown = {spec.name: spec.description.split("\n\n")[0] for spec in found[:MAX_FOUND]}
    return shown if len(found) <= MAX_FOUND else {**shown, "…": f"{len(found) - MAX_FOUND} more; search by words"}


def _help(tools: tuple[ToolSpec, ...], name: str) -> dict[str, Any]:
    for spec in tools:
        if spec.name == name:
            return {"name": spec.name, "description": spec.description, "arguments": spec.input_schema}
    raise ToolError(f"There is no tool {name!r} here. There are: {', '.join(spec.name for spec in tools)}.")
