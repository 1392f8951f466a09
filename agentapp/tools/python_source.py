"""Tools from Python modules, as named in TOOL_MODULES."""

import functools
import importlib

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from agentapp.tools import declared
from agentapp.tools.base import Tool
from agentapp.tools.sources import Row


def modules() -> dict[str, list[Tool]]:
    """Every module in TOOL_MODULES with its tools. Raises ImproperlyConfigured, naming what is wrong."""
    found = {name: list(_tools_of(name)) for name in settings.TOOL_MODULES}
    seen: dict[str, str] = {}
    for module, tools in found.items():
        for tool in tools:
            if tool.name in seen:
                raise ImproperlyConfigured(
                    f"TOOL_MODULES: {module} and {seen[tool.name]} both have a tool {tool.name!r}."
                )
            seen[tool.name] = module
    return found


def get(name: str) -> Tool | None:
    """The tool with this name. None: no module in TOOL_MODULES has it."""
    return _by_name(tuple(settings.TOOL_MODULES)).get(name)


def of_row(row: Row) -> Tool | None:
    """See `sources.implementation_of`."""
    return get(row.name)


@functools.lru_cache(maxsize=8)
def _by_name(names: tuple[str, ...]) -> dict[str, Tool]:
    return {tool.name: tool for tools in modules().values() for tool in tools}


@functools.lru_cache(maxsize=64)
def _tools_of(name: str) -> tuple[Tool, ...]:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise ImproperlyConfigured(f"TOOL_MODULES names {name!r}, which cannot be imported: {error}") from error
    tools = tuple(item for item in vars(module).values() if isinstance(item, Tool))
    for tool in tools:
        try:
            declared.check(tool)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}.{tool.name}: {error}") from error
    return tools
